"""A model server of the standard library: one replica of `kind: inference`.

It listens on DORMOUSE_PORT. GET /healthz says 503 until the model is loaded, then 200; POST /predict takes {"x": 0.3}
and answers {"y": …, "replica": …}; GET /predict?x=0.3 does the same. At SIGTERM it takes no more connections, ends what is
under way, and exits with 0.
"""

import argparse
import http.server
import json
import os
import signal
import socket
import threading
import time
import urllib.parse

REPLICA = os.environ.get("DORMOUSE_MEMBER", "0")
#: No request is larger.
MOST_BYTES = 1 << 20


class Model:
    """3 x + 0.5, after as long as loading and computing would take."""

    def __init__(self, load_s, work_ms):
        self.is_loaded, self.work_ms = False, work_ms
        # A processor does one thing at a time.
        self.processor = threading.Lock()
        threading.Thread(target=self._load, args=(load_s,), daemon=True).start()

    def _load(self, load_s):
        time.sleep(load_s)
        self.is_loaded = True

    def predict(self, x):
        with self.processor:
            time.sleep(self.work_ms / 1000.0)
        return 3 * x + 0.5


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    # Head and body are written apart: with Nagle's algorithm the body waits for the other side to have
    # acknowledged the head, which on a kept connection takes it 40 ms.
    disable_nagle_algorithm = True
    # A connection that says nothing ends; longer than a gateway keeps one.
    timeout = 120
    is_idle = True

    def setup(self):
        super().setup()
        self.server.open.add(self)

    def finish(self):
        self.server.open.discard(self)
        super().finish()

    def parse_request(self):
        self.is_idle = False
        return super().parse_request()

    def handle_one_request(self):
        self.is_idle = True
        if not self.server.is_stopping:
            super().handle_one_request()
        else:
            self.close_connection = True

    def answer(self, status, message):
        body = json.dumps(message).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.server.is_stopping:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        model = self.server.model
        if url.path == "/healthz":
            self.answer(200 if model.is_loaded else 503, {"loaded": model.is_loaded})
        elif url.path == "/predict":
            self.predict(urllib.parse.parse_qs(url.query).get("x", [""])[0])
        else:
            self.answer(404, {"error": "there is /healthz and /predict"})

    def do_POST(self):
        length = int(self.headers.get("Content-Length") or 0)
        if length > MOST_BYTES:
            self.close_connection = True
            self.answer(413, {"error": "a request has at most %d bytes" % MOST_BYTES})
            return
        try:
            x = json.loads(self.rfile.read(length))["x"]
        except (ValueError, KeyError, TypeError):
            x = ""
        self.predict(x)

    def predict(self, x):
        try:
            x = float(x)
        except (TypeError, ValueError):
            self.answer(400, {"error": "x is to be a number"})
            return
        self.answer(200, {"y": self.server.model.predict(x), "replica": REPLICA})

    def log_message(self, *_):
        pass


class Server(http.server.ThreadingHTTPServer):
    """Ends when what is under way has ended."""

    daemon_threads = False
    block_on_close = True
    is_stopping = False

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.open = set()

    def stop(self):
        self.is_stopping = True
        self.shutdown()
        for handler in list(self.open):
            if handler.is_idle:
                handler.connection.shutdown(socket.SHUT_RD)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--load-s", type=float, default=0.0, help="how long the model takes to load")
    parser.add_argument("--work-ms", type=float, default=0.0, help="how long a prediction takes")
    options = parser.parse_args()
    port = int(os.environ.get("DORMOUSE_PORT", "8000"))
    server = Server(("", port), Handler)
    server.model = Model(options.load_s, options.work_ms)

    # `serve_forever` must not wait for itself.
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.stop).start())
    print("serve: on port %d" % port, flush=True)
    server.serve_forever(poll_interval=0.05)
    server.server_close()
    print("serve: done", flush=True)


if __name__ == "__main__":
    main()
