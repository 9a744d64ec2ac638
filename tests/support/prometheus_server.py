"""Stand-ins for a Prometheus server, and the real one, which scrapes a page of a test."""

import http.server
import json
import subprocess
import threading
import time
from contextlib import contextmanager
from urllib.request import urlopen


def answering(body, code=200):
    """A server that answers everything with one body."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(code)
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server, f"http://127.0.0.1:{server.server_address[1]}"


def vector(*pairs):
    rows = [{"metric": {"model": name}, "value": [0, value]} for name, value in pairs]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": rows}})


def _scraped(url):
    """How often a server has scraped; 0 while it does not answer."""
    try:
        with urlopen(f"{url}/api/v1/query?query=count_over_time(up[1h])") as answer:
            found = json.load(answer)["data"]["result"]
    except OSError:
        return 0
    return int(found[0]["value"][1]) if found else 0


@contextmanager
def real_prometheus(folder, page, scrapes=16, patience_s=60):
    """The address of a real server that has scraped ``page(seconds since its start)`` so many times, one each quarter
    of a second: four seconds, if not told otherwise.
    """
    started = time.monotonic()

    class Exporter(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.end_headers()
            self.wfile.write(page(time.monotonic() - started).encode())

        def log_message(self, *arguments):
            pass

    exporter = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Exporter)
    threading.Thread(target=exporter.serve_forever, daemon=True).start()
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as free:
        port = free.server_address[1]
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 250ms, scrape_timeout: 250ms}\nscrape_configs:\n- {job_name: t, honor_labels: true, "
        f"static_configs: [{{targets: ['127.0.0.1:{exporter.server_address[1]}']}}]}}\n")
    server = subprocess.Popen(
        ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
         f"--web.listen-address=127.0.0.1:{port}"], stderr=subprocess.DEVNULL)
    try:
        url, until = f"http://127.0.0.1:{port}", time.monotonic() + patience_s
        while _scraped(url) < scrapes and time.monotonic() < until:
            time.sleep(0.1)
        yield url
    finally:
        server.kill()
        server.wait()
        exporter.shutdown()
