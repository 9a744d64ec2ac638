"""The service: planning over HTTP, with a queue of jobs, a database and a web page. ``provision serve`` starts it
(extra ``serve``).

- ``messages``: requests, answers and problems as pydantic models.
- ``store``: instances, plans, results and events in SQLite or PostgreSQL, by digest.
- ``work``: the queue of jobs, the worker processes, what a job does, and the stream of a job's events.
- ``api``: the HTTP interface and its description. ``page``: the page.
- ``watch``: the settings; the checks of token, host and size of requests; metrics for Prometheus; the log.
- ``app``, ``server``: the application, and the server that runs it. ``client``: the same functions from Python.
"""
