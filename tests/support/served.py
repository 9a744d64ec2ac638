"""Servers for tests: in this process on a free port, or as a process of its own."""

import json
import os
import re
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from http.client import HTTPConnection

import uvicorn

from provision.service.app import application
from provision.service.client import Client
from provision.service.guard import Connection
from provision.service.settings import Settings

STARTS_S = 120
SLOW = {"verb": "solve", "instance": "parvagpu-s3", "method": "mig-serving-slow", "time_limit_s": 300,
        "parameters": {"patience": 100_000}}
"""A job that has a plan at once and goes on looking for a better one."""


@contextmanager
def served(folder, **settings):
    """A server in a thread, with its store in a folder; yields the address."""
    settings = {"db": f"sqlite:///{folder}/store.db"} | settings
    config = uvicorn.Config(application(Settings(**settings)), "127.0.0.1", 0, log_level="error", http=Connection,
                            ws="none")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(60)


@contextmanager
def process(folder, *options):
    """``provision serve`` as a process; yields it and its address."""
    store = f"sqlite:///{folder}/store.db"
    command = [sys.executable, "-m", "provision", "serve", "--port", "0", "--db", store, *options]
    environment = os.environ | {"PROVISION_TOKEN": ""}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as running:
        lines = []
        threading.Thread(target=lambda: lines.extend(running.stderr), daemon=True).start()
        try:
            until(lambda: running.poll() is not None or any("running on" in line for line in lines))
            yield running, re.search(r"https?://[^ ]*:\d+", "".join(lines))[0], lines
        finally:
            running.kill()


def until(happened, most_s=STARTS_S):
    """Wait until something is true, and return it."""
    end = time.monotonic() + most_s
    while not (found := happened()):
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.05)
    return found


def ended(client, id, most_s=STARTS_S):
    """The job when it has ended."""
    def now():
        job = client.job(id)
        return job if job["status"] in ("done", "cancelled", "failed") else None

    return until(now, most_s)


def answer(url, method, path, body=None, headers=None):
    """Status, headers and text of a raw request."""
    host, port = url.removeprefix("http://").split(":")
    connection = HTTPConnection(host, int(port), timeout=60)
    try:
        if isinstance(body, dict):
            body, headers = json.dumps(body), {"Content-Type": "application/json"} | (headers or {})
        connection.request(method, path, body, headers or {})
        found = connection.getresponse()
        return found.status, found.headers, found.read().decode("utf-8", "replace")
    finally:
        connection.close()


__all__ = ["SLOW", "Client", "answer", "ended", "process", "served", "until"]
