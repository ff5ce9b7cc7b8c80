"""A model server for handwritten digits: numpy behind HTTP, a replica of `kind: inference`.

It fits a linear classifier when it starts. POST /predict takes {"pixels": [64 numbers from 0 to 16]} and answers
{"digit": …, "replica": …}. An answer takes --work-ms by the clock, as a device of its own would take, so that containers and
not this machine's processors are the capacity.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))

from serve import MOST_BYTES, REPLICA, Handler, Server  # noqa: E402

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "digits.npz")


def digits():
    """Images of 8 × 8 pixels and what they show."""
    with numpy.load(DATA) as found:
        return found["x"].astype(float), found["y"].astype(int)


class Model:
    """Least squares on the first two thirds of the images."""

    is_loaded = True

    def __init__(self, work_ms):
        self.work_s, self.device = work_ms / 1000.0, threading.Lock()
        pixels, shown = digits()
        known = len(pixels) * 2 // 3
        self.weights = numpy.linalg.lstsq(self.of(pixels[:known]), numpy.eye(10)[shown[:known]], rcond=None)[0]
        found = (self.of(pixels[known:]) @ self.weights).argmax(1)
        self.accuracy = float((found == shown[known:]).mean())

    @staticmethod
    def of(pixels):
        return numpy.hstack([pixels / 16.0, numpy.ones((len(pixels), 1))])

    def predict(self, pixels):
        with self.device:
            began = time.monotonic()
            digit = int((self.of(numpy.array([pixels], dtype=float)) @ self.weights).argmax())
            time.sleep(max(0.0, self.work_s - (time.monotonic() - began)))
        return digit


class Digits(Handler):
    """One connection."""

    def do_POST(self):
        try:
            length = int(self.headers.get("Content-Length") or 0)
            pixels = json.loads(self.rfile.read(min(length, MOST_BYTES)))["pixels"]
            digit = self.server.model.predict([float(it) for it in pixels])
        except (ValueError, KeyError, TypeError):
            self.answer(400, {"error": "pixels are to be 64 numbers"})
            return
        self.answer(200, {"digit": digit, "replica": REPLICA})


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work-ms", type=float, default=50.0)
    options = parser.parse_args()
    server = Server(("", int(os.environ.get("DORMOUSE_PORT", "8000"))), Digits)
    server.model = Model(options.work_ms)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=server.stop).start())
    print("digits: ready, %.1f %% of the unseen images are right" % (100 * server.model.accuracy), flush=True)
    server.serve_forever(poll_interval=0.05)
    server.server_close()


if __name__ == "__main__":
    main()
