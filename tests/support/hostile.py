"""Mutated requests: what a client that means harm, or an unlucky one, may send."""

import json
import random
from copy import deepcopy

PATHS = (
    "/", "/healthz", "/metrics", "/api/v1/jobs", "/api/v1/instances", "/api/v1/methods", "/api/v1/openapi.json",
    "/api/v1/jobs/{}", "/api/v1/jobs/{}/events", "/api/v1/jobs/{}/drawing", "/api/v1/jobs/{}/report",
    "/api/v1/jobs/{}/files", "/api/v1/jobs/{}/changes?before={}", "/api/v1/instances/{}",
    "/api/v1/jobs?limit={}&before={}", "/static/{}",
)
WORDS = (
    "x", "..", "../../etc/passwd", "%2e%2e%2fetc%2fpasswd", "0" * 64, "f" * 16, "%00", "%ff", "a" * 3000, "-1", "1e9",
    "parvagpu-s1", "igniter-999999-seed0", "parvagpu-s5-x9999", "'; drop table jobs; --", "{{7*7}}", "<script>",
    "%F0%9F",
)
VALUES = (
    None, True, False, 0, -1, 1e308, 10**30, 0.1, "", "x", "\x00", "\ud800", "../x", "a" * 5000, [], {}, [[]], [None],
    {"a": {"b": []}}, float("nan"), float("inf"), -float("inf"), "1e9", "auto", "parvagpu-s1",
)
METHODS = ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "BREW")
TYPES = ("application/json", "application/yaml", "text/plain", "", "application/json; charset=utf-16", "x" * 300)
HEADERS = {
    "Content-Length": ("-1", "x", "99999999999999999999", "1_0"), "Host": ("evil.example", "", "[", "localhost:x"),
    "Origin": ("https://evil.example", "null", "http://[", "x"), "Authorization": ("Bearer", "Bearer \xff", "Basic x"),
    "Last-Event-ID": ("-1", "x", "9" * 30), "Transfer-Encoding": ("chunked", "gzip"), "Expect": ("x",),
}


def requests(count, seed, good):
    """Requests as (method, path, body, headers).

    Parameters
    ----------
    count, seed
        How many, and of the random numbers.
    good
        Bodies that the server takes, to be mutated; plain content.
    """
    draw = random.Random(seed)
    for _ in range(count):
        method = draw.choice(METHODS if draw.random() < 0.3 else ("POST",))
        path = "/api/v1/jobs" if method == "POST" and draw.random() < 0.8 else draw.choice(PATHS)
        while "{}" in path:
            path = path.replace("{}", draw.choice(WORDS).replace(" ", "%20"), 1)
        headers = {"Content-Type": draw.choice(TYPES) if draw.random() < 0.2 else "application/json"}
        if draw.random() < 0.15:
            name = draw.choice(list(HEADERS))
            headers[name] = draw.choice(HEADERS[name])
        yield method, path, _body(draw, good), headers


def _body(draw, good):
    text = json.dumps(_mutated(draw, draw.choice(good), draw.randint(1, 4)))
    kind = draw.random()
    if kind < 0.1:
        at = draw.randrange(len(text))
        return (text[:at] + draw.choice(("}", "[", "\x00", "é", '"', "{" * 500)) + text[at:]).encode()
    if kind < 0.15:
        return draw.randbytes(draw.randint(0, 200))
    if kind < 0.2:
        return text[: draw.randrange(len(text))].encode()
    return text.encode()


def _mutated(draw, content, times):
    """Content with values replaced, fields dropped, doubled or renamed at random places."""
    content = json.loads(json.dumps(content))
    for _ in range(times):
        places = list(_places(content))
        holder, key = draw.choice(places)
        change = draw.random()
        if change < 0.6:
            holder[key] = deepcopy(draw.choice(VALUES))
        elif change < 0.75:
            holder.pop(key)
        elif isinstance(holder, list):
            holder.insert(key, deepcopy(draw.choice(VALUES)))
        else:
            holder[draw.choice(WORDS)] = deepcopy(holder[key])
        if not list(_places(content)):
            break
    return content


def _places(content):
    pairs = content.items() if isinstance(content, dict) else enumerate(content) if isinstance(content, list) else ()
    for key, value in list(pairs):
        yield content, key
        yield from _places(value)


def send(connection, method, path, body, headers):
    """The status and the text of the answer to a request; the connection is fresh afterwards."""
    try:
        connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
        for name, value in ({"Content-Length": str(len(body))} | headers).items():
            connection.putheader(name, value.encode("latin-1"))
        connection.endheaders(body)
        found = connection.getresponse()
        return found.status, found.read().decode("utf-8", "replace")
    finally:
        connection.close()
