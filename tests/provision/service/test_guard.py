"""Who may come in: tokens, hosts, origins, sizes; and what every answer says about itself."""

import os
import signal
import socket
import ssl
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from multiprocessing import active_children

import pytest
from openapi_spec_validator import validate
from served import Client, answer, process, served, until

from provision import InputError
from provision.service import guard, messages, processes
from provision.service.api.operation import description
from provision.service.settings import Settings

TOKEN = "correct-horse-battery"


@pytest.fixture(scope="module")
def locked(tmp_path_factory):
    with served(tmp_path_factory.mktemp("locked"), token=TOKEN) as url:
        yield url


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    with served(tmp_path_factory.mktemp("open"), body_mib=1, bodies_mib=1, workloads=5) as address:
        yield address


def test_nothing_without_the_token_but_the_page(locked):
    for path in ("/api/v1/jobs", "/metrics", "/api/v1/instances"):
        assert answer(locked, "GET", path)[0] == 401
        assert answer(locked, "GET", path, headers={"Authorization": f"Bearer {TOKEN}x"})[0] == 401
        assert answer(locked, "GET", path, headers={"Authorization": f"Bearer {TOKEN}"})[0] == 200
    for path in ("/", "/healthz", "/static/main.js"):
        assert answer(locked, "GET", path)[0] == 200
    with pytest.raises(InputError, match="token"):
        Client(locked).methods()
    assert Client(locked, TOKEN).methods()


def test_other_hosts_and_other_sites_are_refused(url):
    assert answer(url, "GET", "/healthz", headers={"Host": "evil.example"})[0] == 421
    assert answer(url, "GET", "/healthz", headers={"Origin": "https://evil.example"})[0] == 403
    assert answer(url, "GET", "/healthz", headers={"Origin": url})[0] == 200
    forged = answer(url, "POST", "/api/v1/jobs", b"{}", {"Content-Type": "text/plain"})
    assert forged[0] == 415
    assert "Access-Control-Allow-Origin" not in answer(url, "OPTIONS", "/api/v1/jobs")[1]


def test_bodies_and_instances_are_bounded(url):
    assert answer(url, "POST", "/api/v1/jobs", b" " * (2**20 + 1), {"Content-Type": "application/json"})[0] == 413
    chunks = (b" " * 2**16 for _ in range(20))
    assert answer(url, "POST", "/api/v1/jobs", chunks, {"Content-Type": "application/json"})[0] == 413
    status, _, text = answer(url, "POST", "/api/v1/jobs", {"verb": "solve", "instance": "parvagpu-s5"})
    assert status == 422 and "split it" in text
    bomb = b"a: &a [x,x,x,x,x,x,x,x,x,x]\n" + b"".join(
        b"%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n" % (n, n, *[n - 1] * 10) for n in range(98, 106)
    )
    assert answer(url, "POST", "/api/v1/instances", bomb, {"Content-Type": "application/yaml"})[0] == 400


def test_a_body_that_does_not_come_is_not_waited_for(url, monkeypatch):
    monkeypatch.setattr(guard, "BODY_S", 0.2)
    headers = {"Content-Type": "application/json", "Content-Length": "100"}
    assert answer(url, "POST", "/api/v1/jobs", b"{", headers)[0] == 408


def test_small_bodies_are_parsed_beside_the_event_loop(url, monkeypatch):
    """The parser waits for an answer of the event loop."""
    begun, answered = threading.Event(), threading.Event()

    def parse(name, text):
        begun.set()
        assert answered.wait(60)
        return {}

    monkeypatch.setattr(messages, "parse", parse)
    with ThreadPoolExecutor() as pool:
        sent = pool.submit(answer, url, "POST", "/api/v1/jobs", {})
        assert begun.wait(60) and answer(url, "GET", "/healthz")[0] == 200
        answered.set()
        assert sent.result()[0] == 422


def test_large_bodies_are_read_in_a_process(url, monkeypatch):
    """Others are answered while it stands still, and the next body is read after it died or took too long."""
    large = b'{"a":"' + b"x" * processes.SMALL_BYTES + b'"}'

    def send(body=large, kind="json"):
        return answer(url, "POST", "/api/v1/instances", body, {"Content-Type": f"application/{kind}"})

    def sent_and_stopped(threads):
        """What is sent, which takes long to read, and its process, which stands still from now on."""
        sent = threads.submit(send, b"- [1, 2, 3, 4]\n" * 60_000, "yaml")
        process = until(lambda: next((one for one in active_children() if one.name == processes.NAME), None))
        os.kill(process.pid, signal.SIGSTOP)
        return sent, process

    status, _, text = send()
    assert status == 422 and '"field":"a"' in text
    with ThreadPoolExecutor() as threads:
        first, process = sent_and_stopped(threads)
        others = [threads.submit(send) for _ in range(2)]
        assert answer(url, "GET", "/healthz")[0] == 200 and answer(url, "POST", "/api/v1/jobs", {})[0] == 422
        process.kill()
        assert "too much time or memory" in first.result()[2]
        assert all('"field":"a"' in one.result()[2] for one in others)
        monkeypatch.setattr(processes, "READ_S", 0.1)
        assert "too much time or memory" in sent_and_stopped(threads)[0].result()[2]


def test_bodies_of_all_requests_together_are_bounded(url):
    """The server takes 1 MiB at once: two halves and a little more are too much."""
    size = 2**19 + 1000
    head = ("POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {size}\r\n\r\n")
    whole = b" " * size, {"Content-Type": "application/json"}

    def second_is_refused():
        with connected(url) as first:
            first.sendall(head.encode() + b" " * (size - 1))
            return answer(url, "POST", "/api/v1/jobs", *whole)[0] == 503

    until(second_is_refused)
    until(lambda: answer(url, "POST", "/api/v1/jobs", *whole)[0] == 400)


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: local"])
def test_connections_without_a_request_keep_nobody_out(url, monkeypatch, sent):
    monkeypatch.setattr(guard, "MOST_OF_PEER", 10)
    with ExitStack() as stack:
        idle = [stack.enter_context(connected(url)) for _ in range(40)]
        for one in idle:
            with suppress(ConnectionError):
                one.sendall(sent)
        assert answer(url, "GET", "/healthz")[0] == 200
        assert sum(closed(one) for one in idle) >= 30


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost: local"])
def test_a_header_that_does_not_come_is_not_waited_for(url, monkeypatch, sent):
    monkeypatch.setattr(guard, "HEADER_S", 0.2)
    with connected(url) as one:
        one.sendall(sent)
        until(lambda: closed(one))
    with connected(url) as one:
        for _ in range(2):  # the second header comes late on a connection that has served a request
            one.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answered = b""
            while not answered.endswith(b"}"):  # the answer may come in pieces
                answered += one.recv(2**16)
            assert b"200 OK" in answered
        one.sendall(sent or b"G")
        until(lambda: closed(one))


def connected(url):
    """A connection to the server."""
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=30)


def closed(connection):
    """Whether the server has closed a connection."""
    connection.setblocking(False)
    try:
        return connection.recv(2**16) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True
    finally:
        connection.settimeout(30)


def test_every_answer_has_the_policy(url):
    for path in ("/", "/static/main.js", "/healthz", "/nowhere", "/static/../app.py", "/static/%2e%2e%2fapp.py"):
        _, headers, _ = answer(url, "GET", path)
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert headers["X-Content-Type-Options"] == "nosniff"
    assert answer(url, "GET", "/static/..%2fapp.py")[0] == 404
    assert answer(url, "PUT", "/api/v1/jobs")[1]["Content-Type"] == "application/problem+json"


def test_page_brings_nothing_from_elsewhere(url):
    for name in ("", "static/main.js", "static/style.css", "static/drawing.css", "static/api.js"):
        text = answer(url, "GET", f"/{name}")[2]
        assert "https://" not in text and "http://" not in text.replace("http://www.w3.org/2000/svg", "")


def test_description_is_valid_and_complete(url):
    validate(description())
    for path, operations in description()["paths"].items():
        if "get" in operations and "{" not in path:
            assert answer(url, "GET", path)[0] == 200, path
    job = description()["paths"]["/api/v1/jobs"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert job["discriminator"]["propertyName"] == "verb"


def test_metrics_count(url):
    answer(url, "GET", "/healthz")
    text = answer(url, "GET", "/metrics")[2]
    assert 'provision_http_requests_total{method="GET",route="/healthz",status="200"}' in text
    assert "provision_workers 1.0" in text


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"host": "0.0.0.0"}, "token"),
        ({"host": "0.0.0.0", "token": "short"}, "at least"),
        ({"allow_apply": True}, "--token-file"),
        ({"tls_cert": "x"}, "--tls-key"),
    ],
)
def test_unsafe_settings_are_refused(settings, words):
    with pytest.raises(InputError, match=words):
        Settings(**settings).check()


def test_tls(tmp_path):
    files = tmp_path / "cert.pem", tmp_path / "key.pem"
    made = subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-out", files[0], "-keyout", files[1]], capture_output=True, check=False,
    )
    assert made.returncode == 0, made.stderr
    with process(tmp_path, "--tls-cert", str(files[0]), "--tls-key", str(files[1])) as (_, address, lines):
        port = int(address.rpartition(":")[2])
        certificate = ssl.get_server_certificate(("127.0.0.1", port))
        assert certificate.strip() == files[0].read_text().strip()
        assert all(line.startswith("{") for line in lines)
