"""Stand-ins for a Prometheus server."""

import http.server
import json
import threading


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
