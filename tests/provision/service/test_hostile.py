"""A sample of the mutated requests of ``benchmarks/service/hostile.py``: no 500, no traceback, still at work after."""

from http.client import HTTPConnection, HTTPException

import pytest
from hostile import requests, send
from served import Client, served

import provision

SAMPLE = 80


@pytest.mark.parametrize("token", [None, "a-token-of-sixteen-letters"])
def test_mutated_requests(tmp_path, token, monkeypatch):
    monkeypatch.setattr("provision.service.guard.BODY_S", 2.0)
    instance = provision.read("parvagpu-s1")
    plan = provision.solve(instance, "greedy").plan.model_dump(mode="json", exclude_none=True)
    whole = instance.model_dump(mode="json", exclude_none=True)
    good = [
        {"verb": "solve", "instance": whole, "method": "greedy", "time_limit_s": 1},
        {"verb": "verify", "instance": whole, "plan": plan},
        {"verb": "what-if", "instance": "parvagpu-s1", "vary": {"rate": "1:2:1"}, "method": "greedy"},
        {"verb": "diff", "instance": "parvagpu-s1", "plan": plan, "status": {"gpus": [], "leftovers": []}},
        whole,
    ]
    with served(tmp_path, token=token, queue=5) as url:
        host, port = url.removeprefix("http://").split(":")
        seen = set()
        for method, path, body, headers in requests(SAMPLE, 1, good):
            connection = HTTPConnection(host, int(port), timeout=30)
            try:
                if path.endswith("/events"):
                    continue
                status, text = send(connection, method, path, body, headers)
            except (ConnectionError, HTTPException, TimeoutError):
                continue  # the server hangs up on what is no HTTP
            seen.add(status)
            assert status < 500 and "Traceback" not in text, (method, path, body, headers, text)
        assert Client(url, token).call("GET", "/healthz")["status"] == "ok"
        assert {422, 201} <= seen if token is None else {401} <= seen
