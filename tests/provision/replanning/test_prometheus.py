"""Rates from a Prometheus server: the real one, and ones that misbehave."""

import http.server
import shutil
import subprocess
import threading
import time

import pytest
from prometheus_server import answering, vector

import provision
from provision.cli import main
from provision.models.base.errors import InputError
from provision.replanning import prometheus
from provision.replanning.prometheus import rates_now


@pytest.fixture(scope="module")
def s2():
    return provision.read("parvagpu-s2")


def test_rates_from_a_server(s2):
    server, url = answering(vector(("bert", "12.5"), ("something", "3")))
    assert rates_now(url, s2) == {"bert": 12.5}
    server.shutdown()


@pytest.mark.parametrize("body, code, problem", [
    ("<html>", 200, "no vector"), ("{}", 200, "no vector"), ('{"data": {"result": 3}}', 200, "no vector"),
    (vector(("bert", "NaN")), 200, "no rate"), (vector(("bert", "-1")), 200, "no rate"),
    (vector(("other", "1")), 200, "no workload"), (vector(), 200, "there is nothing"), ("bad query", 400, "refuses"),
])
def test_nonsense_from_a_server_is_one_line(s2, body, code, problem):
    server, url = answering(body, code)
    with pytest.raises(InputError, match=problem):
        rates_now(url, s2)
    server.shutdown()


@pytest.mark.parametrize("url", ["http://[", "http://a:b", "http://a b", "http://", "file:///etc/hostname", "x"])
def test_addresses_that_are_none_are_one_line(s2, url):
    with pytest.raises(InputError, match="prometheus"):
        rates_now(url, s2)


def test_a_server_that_dribbles_is_not_waited_for(s2, monkeypatch):
    """Every byte comes in time, and the answer never does."""
    monkeypatch.setattr(prometheus, "PATIENCE_S", 0.5)
    ended = threading.Event()

    class Dribbling(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            while not ended.wait(0.05):
                self.wfile.write(b" ")
                self.wfile.flush()

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Dribbling)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with pytest.raises(InputError, match="no whole answer within"):
        rates_now(f"http://127.0.0.1:{server.server_address[1]}", s2)
    ended.set()
    server.shutdown()


def test_an_answer_that_is_too_long_or_says_two_things_is_not_taken(s2, monkeypatch):
    server, url = answering(vector(*[("bert", "1")] * 50))
    with pytest.raises(InputError, match="50 rates with model='bert'; use sum by"):
        rates_now(url, s2)
    monkeypatch.setattr(prometheus, "MOST_BYTES", 100)
    with pytest.raises(InputError, match="ask for less"):
        rates_now(url, s2)
    server.shutdown()


def test_a_server_that_is_down_loses_nothing(tmp_path, capsys):
    running = tmp_path / "plan.json"
    assert main(["solve", "parvagpu-s1", "--out", str(running)]) == 0
    before = running.read_bytes()
    flags = ["--prometheus", "http://127.0.0.1:9", "--out", str(running), "--force"]
    assert main(["replan", "parvagpu-s1", str(running), *flags]) == 2
    assert "does not answer" in capsys.readouterr().err and running.read_bytes() == before
    assert main(["replan", "parvagpu-s1", str(running), "--prometheus", "ftp://x"]) == 2


@pytest.mark.skipif(not shutil.which("prometheus"), reason="there is no prometheus program")
def test_the_real_server_with_an_exporter_of_known_counters(tmp_path, s2):
    """A counter that grows by 30 a second is 30 requests/s."""
    started = time.monotonic()

    class Exporter(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            count = 30 * (time.monotonic() - started)
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(f'nv_inference_request_success{{model="bert"}} {count}\n'.encode())

        def log_message(self, *arguments):
            pass

    exporter = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Exporter)
    threading.Thread(target=exporter.serve_forever, daemon=True).start()
    port = free_port()
    (tmp_path / "p.yml").write_text(
        "global: {scrape_interval: 1s}\nscrape_configs:\n"
        f"- {{job_name: t, static_configs: [{{targets: ['127.0.0.1:{exporter.server_address[1]}']}}]}}\n"
    )
    server = subprocess.Popen(
        ["prometheus", f"--config.file={tmp_path}/p.yml", f"--storage.tsdb.path={tmp_path}/data",
         f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.DEVNULL,
    )
    try:
        assert rate_after(f"http://127.0.0.1:{port}", s2) == pytest.approx(30, rel=0.1)
    finally:
        server.kill()
        exporter.shutdown()


def free_port():
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        return server.server_address[1]


def rate_after(url, instance, patience_s=60):
    """The rate of bert once the server has scraped for as long as the query looks back."""
    until, last = time.monotonic() + patience_s, 0.0
    while True:
        time.sleep(2)
        try:
            found = rates_now(url, instance, "sum by (model) (rate(nv_inference_request_success[6s]))")["bert"]
        except InputError:
            found = 0.0
        if time.monotonic() > until or 0 < found < 1.02 * last:
            return found
        last = found
