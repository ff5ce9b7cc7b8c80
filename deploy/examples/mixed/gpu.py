"""A program with a part of a GPU: a training job that never rests, or a notebook in which a person runs cells.

It calls the CUDA driver itself (`libcuda.so.1`, here the stand-in, whose kernels take as long as their name says).
A notebook answers what an agent asks of a Jupyter Server, no more.
"""

import argparse
import ctypes
import json
import os
import random
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

#: Of a kernel.
MICROSECONDS = 500


class Device:
    """The first device, and a kernel for it."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        context, module, self.kernel = (ctypes.c_uint64() for _ in range(3))
        self.call("cuInit", 0)
        self.call("cuCtxCreate_v2", ctypes.byref(context), 0, 0)
        self.call("cuModuleLoadData", ctypes.byref(module), b"")
        name = b"spin_%d" % (MICROSECONDS * 1000)
        self.call("cuModuleGetFunction", ctypes.byref(self.kernel), module, name)

    def call(self, name, *arguments):
        result = getattr(self.driver, name)(*arguments)
        if result:
            raise SystemExit("%s says %d" % (name, result))

    def allocate(self, size):
        at = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(size))

    def work(self, kernels):
        null = ctypes.c_void_p()
        for _ in range(kernels):
            self.call("cuLaunchKernel", self.kernel, 1, 1, 1, 1, 1, 1, 0, null, null, null)
        self.call("cuCtxSynchronize")


class Server(BaseHTTPRequestHandler):
    """One kernel, no terminal."""

    working = False

    def do_GET(self):
        kernel = {"id": "0", "execution_state": "busy" if Server.working else "idle", "connections": 1,
                  "last_activity": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())}
        answers = {"/api/kernels": [kernel], "/api/terminals": []}
        body = json.dumps(answers.get(self.path.split("?")[0], {"version": "stand-in"})).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def train(device):
    while True:
        device.work(16)


def notebook(device, source):
    address = ("127.0.0.1", int(os.environ["JUPYTER_PORT"]))
    threading.Thread(target=ThreadingHTTPServer(address, Server).serve_forever, daemon=True).start()
    while True:
        Server.working = True
        for _ in range(source.randint(10, 100)):
            device.work(16)
        Server.working = False
        time.sleep(source.uniform(0.2, 1.0))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("way", choices=["train", "notebook"])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--memory-mib", type=int, default=256)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    device = Device()
    device.allocate(options.memory_mib << 20)
    print("runs", flush=True)
    if options.way == "train":
        train(device)
    notebook(device, random.Random(options.seed))


if __name__ == "__main__":
    main()
