"""The service: plans over HTTP, with jobs, a store and a page. ``provision serve`` starts it (extra ``serve``).

- ``messages``: requests, answers and problems as pydantic models.
- ``store``: instances, plans, results and events in SQLite or PostgreSQL, by digest.
- ``work``: the queue of jobs, the worker processes, what a job does, and the stream of its events.
- ``api``: the HTTP interface and its description. ``views``: plans and answers for pages. ``page``: the page.
- ``watch``: settings, token, hosts, limits, headers; metrics for Prometheus, and the log.
- ``app``, ``server``: the application, and how it is run. ``client``: the same functions from Python.
"""
