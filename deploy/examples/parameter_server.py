"""Fits a line with a parameter server beside its workers, who come and go: `roles: {ps: ...}`, standard library only.

The server holds the parameters. Each worker asks it for them, takes a gradient over a part of the samples and sends it
back; the server applies what comes, in any order (asynchronous descent). The coordinator, rank 0, tells the server
where to begin, reports progress and saves. With `resize: in_place` a worker that is to leave sees that in
DORMOUSE_MEMBERS.
"""

import argparse
import json
import os
import random
import signal
import socket
import socketserver
import sys
import threading
import time

SAMPLES = 2000
BATCH = 200
SHORT_S = 0.05
#: How often progress is reported.
PROGRESS_S = 0.2


class Stop:
    """SIGTERM asks a worker to end; the coordinator saves before it does."""

    is_asked = False

    @classmethod
    def on_term(cls, *_):
        cls.is_asked = True


def data():
    source = random.Random(7)
    points = [source.uniform(-1, 1) for _ in range(SAMPLES)]
    return [(x, 3 * x + 0.5 + source.gauss(0, 0.1)) for x in points]


class Parameters:
    """What the server holds; nothing before the coordinator has said where to begin."""

    def __init__(self):
        self.lock, self.step, self.values, self.loss = threading.Lock(), None, None, None

    def answer(self, message):
        with self.lock:
            if message["kind"] == "begin":
                self.step, self.values = message["step"], message["values"]
            elif message["kind"] == "gradient" and self.step is not None:
                self.values = [value - slope for value, slope in zip(self.values, message["gradient"])]
                self.step, self.loss = self.step + 1, message["loss"]
            return {"step": self.step, "values": self.values, "loss": self.loss}


def serve():
    """The server: a thread a connection, until it is stopped."""
    parameters = Parameters()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self):
            for line in self.rfile:
                self.wfile.write((json.dumps(parameters.answer(json.loads(line))) + "\n").encode())

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address, daemon_threads = True, True

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with Server(("", int(os.environ["DORMOUSE_PORT"])), Handler) as server:
        print("ps: serves on port %s" % os.environ["DORMOUSE_PORT"], flush=True)
        server.serve_forever()


class Client:
    """A worker's connection to the server, which may not be there yet."""

    def __init__(self):
        roles = dict(role.split("=") for role in os.environ["DORMOUSE_ROLE_PEERS"].split(";"))
        host, port = roles["ps"].split(",")[0].rsplit(":", 1)
        while True:
            try:
                self.socket = socket.create_connection((host, int(port)))
                break
            except OSError:
                time.sleep(SHORT_S)
        self.file = self.socket.makefile("r", encoding="utf-8")

    def ask(self, message):
        self.socket.sendall((json.dumps(message) + "\n").encode())
        text = self.file.readline()
        if not text:
            raise ConnectionError("the server is gone")
        return json.loads(text)


class Membership:
    """The file that says who takes part, and the one in which this worker answers; neither without `in_place`."""

    def __init__(self):
        self.path, self.answer = os.environ.get("DORMOUSE_MEMBERS"), os.environ.get("DORMOUSE_ACK")
        self.own = int(os.environ.get("DORMOUSE_MEMBER", "0"))
        self.said = None
        first = int(os.environ.get("DORMOUSE_GENERATION", "0"))
        if first:
            self.say("ready", first)

    def say(self, state, generation):
        if self.said != (state, generation):
            self.said = (state, generation)
            with open(self.answer + ".new", "w", encoding="utf-8") as file:
                json.dump({"generation": generation, "state": state}, file)
            os.rename(self.answer + ".new", self.answer)

    def leaves(self):
        """Whether this worker is to leave; answers."""
        if not self.path:
            return False
        with open(self.path, encoding="utf-8") as file:
            found = json.load(file)
        is_leaving = self.own in found["leaving"]
        if is_leaving or self.own in [member["id"] for member in found["members"]]:
            self.say("left" if is_leaving else "joined", found["generation"])
        return is_leaving


def gradient(samples, values):
    slope, offset = values
    errors = [(slope * x + offset - y, x) for x, y in samples]
    count = len(samples)
    sums = [2 * sum(e * x for e, x in errors) / count, 2 * sum(e for e, _ in errors) / count]
    return sums, sum(e * e for e, _ in errors) / count


def load():
    """Step and parameters to go on from."""
    folder = os.environ.get("DORMOUSE_RESUME_FROM")
    if not folder:
        return 0, [0.0, 0.0]
    with open(os.path.join(folder, "checkpoint.json"), encoding="utf-8") as file:
        saved = json.load(file)
    return saved["step"], saved["values"]


def save(answer):
    """So little that all of it stands in checkpoint.json."""
    folder = os.environ.get("DORMOUSE_CHECKPOINT_DIR")
    if folder and answer["step"] is not None:
        path = os.path.join(folder, "checkpoint.json")
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump({"step": answer["step"], "values": answer["values"]}, file)
        os.rename(path + ".new", path)


def report(answer, steps):
    line = json.dumps({"step": min(answer["step"], steps), "steps_total": steps, "loss": round(answer["loss"] or 0, 6)})
    print(line, flush=True)
    if os.environ.get("DORMOUSE_PROGRESS"):
        with open(os.environ["DORMOUSE_PROGRESS"], "a", encoding="utf-8") as file:
            file.write(line + "\n")


def work(options):
    """A worker, from the server's first parameters to its last step."""
    signal.signal(signal.SIGTERM, Stop.on_term)
    is_coordinator = os.environ.get("DORMOUSE_RANK", "0") == "0"
    samples, members, client = data(), Membership(), Client()
    choice, reported = random.Random(os.getpid()), 0.0
    answer = client.ask({"kind": "get"})
    if is_coordinator and answer["step"] is None:
        step, values = load()
        answer = client.ask({"kind": "begin", "step": step, "values": values})
        print("worker: from step %d" % step, flush=True)
    while not Stop.is_asked and not members.leaves():
        if answer["step"] is None:
            time.sleep(SHORT_S)
            answer = client.ask({"kind": "get"})
            continue
        if is_coordinator and (answer["step"] >= options.steps or time.monotonic() >= reported + PROGRESS_S):
            reported = time.monotonic()
            report(answer, options.steps)
        if answer["step"] >= options.steps:
            break
        time.sleep(options.step_ms / 1000.0)
        slopes, loss = gradient(choice.sample(samples, BATCH), answer["values"])
        slopes = [options.learning_rate * slope for slope in slopes]
        answer = client.ask({"kind": "gradient", "gradient": slopes, "loss": loss})
    if is_coordinator and answer["step"] is not None and answer["step"] < options.steps:
        save(client.ask({"kind": "get"}))
    values = answer["values"] or [0.0, 0.0]
    print("worker: done at step %s, %.4f x + %.4f" % (answer["step"], *values), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--step-ms", type=float, default=0.0, help="extra work of one worker's step")
    parser.add_argument("--learning-rate", type=float, default=0.05)
    options = parser.parse_args()
    if os.environ.get("DORMOUSE_ROLE") == "ps":
        serve()
    else:
        work(options)


if __name__ == "__main__":
    main()
