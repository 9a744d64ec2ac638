"""The service: plans over HTTP, with jobs, a store and a page. ``provision serve`` starts it (extra ``serve``).

- ``messages``: what comes in, what goes out, and what is wrong, as pydantic models.
- ``store``: instances, plans, results and events in SQLite or PostgreSQL, by digest.
- ``work``: the queue, the processes that work on it, what a job does, and the stream of what happens to it.
- ``api``: the HTTP interface and its description. ``views``: plans and answers as pages show them. ``page``: the page.
- ``watch``: settings, token, hosts, limits, headers; what Prometheus and the log are told.
- ``app``, ``server``: all of it put together, and run. ``client``: the same functions from Python.
"""
