"""The service: plans over HTTP, with jobs, a store and a page. ``provision serve`` starts it (extra ``serve``).

- ``requests``, ``answers``, ``problems``: what comes in, what goes out, and what is wrong, as pydantic models.
- ``store``: instances, plans, results and events in SQLite or PostgreSQL, by digest.
- ``jobs``, ``pool``, ``worker``, ``verbs``: the queue, the processes that work on it, and what a job does.
- ``operations``, ``openapi``, ``stream``, ``downloads``: the HTTP interface and its description.
- ``guard``, ``metrics``, ``logs``: token, hosts, limits, headers; what Prometheus and the log are told.
- ``app``, ``server``: all of it put together, and run. ``client``: the same functions from Python.
"""
