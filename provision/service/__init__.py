"""The service: planning over HTTP, with a queue of jobs, a database and a web page; ``provision serve`` starts it.

``api`` has the HTTP interface and its description, ``page`` the page; ``jobs`` and ``processes`` carry jobs out,
``store`` keeps them, ``guard`` checks requests, ``app`` joins all of it. ``client``: the same from Python.
"""
