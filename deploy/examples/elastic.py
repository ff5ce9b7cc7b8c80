"""Fits a line by gradient descent while members come and go: `resize: in_place` by hand, standard library only.

The coordinator, member 0, listens on its port. For each step it sends every member the parameters and a part of the
batch, and adds up their gradients with its own; the batch is the same whoever takes part. Between two steps it looks
who is in (DORMOUSE_MEMBERS); a member that dies in a step is left out, and the step is done again without it.
"""

import argparse
import json
import os
import random
import signal
import socket
import sys
import time

SAMPLES = 2000
SHORT_S = 0.05
#: How often progress is reported.
PROGRESS_S = 0.2


class Stop:
    """SIGTERM asks the coordinator to save and end."""

    is_asked = False

    @classmethod
    def on_term(cls, *_):
        cls.is_asked = True


def rename_into(path, message):
    """Writes a file whole, by a rename."""
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(message, file)
    os.rename(path + ".new", path)


class Members:
    """The file that says who takes part, and the one in which this member answers."""

    def __init__(self):
        # Without Dormouse: one member.
        self.path, self.answer = os.environ.get("DORMOUSE_MEMBERS"), os.environ.get("DORMOUSE_ACK")
        self.own = int(os.environ.get("DORMOUSE_MEMBER", "0"))
        self.first = int(os.environ.get("DORMOUSE_GENERATION", "0"))
        self.ids, self.leaving, self.generation, self.coordinator = [self.own], [], 0, None
        self.look()

    def look(self):
        """Whether others take part than before."""
        if not self.path:
            return False
        with open(self.path, encoding="utf-8") as file:
            found = json.load(file)
        before = (self.generation, self.ids)
        self.generation, self.leaving = found["generation"], found["leaving"]
        self.ids = [member["id"] for member in found["members"]]
        self.coordinator = found["members"][0]
        return (self.generation, self.ids) != before

    def say(self, state, step=None, generation=None):
        """Answers: ready, joined, left or refused."""
        if not self.answer:
            return
        generation = self.generation if generation is None else generation
        rename_into(self.answer, {"generation": generation, "state": state, "step": step})


class Line:
    """A connection that carries JSON, a message a line."""

    def __init__(self, connection):
        self.socket, self.file = connection, connection.makefile("r", encoding="utf-8")

    def send(self, message):
        self.socket.sendall((json.dumps(message) + "\n").encode())

    def receive(self):
        text = self.file.readline()
        if not text:
            raise ConnectionError("the other end is gone")
        return json.loads(text)


def data():
    source = random.Random(7)
    points = [source.uniform(-1, 1) for _ in range(SAMPLES)]
    return [(x, 3 * x + 0.5 + source.gauss(0, 0.1)) for x in points]


def gradient(samples, slope, offset):
    """Sums, so that they add up to the same over any parts."""
    errors = [(slope * x + offset - y, x) for x, y in samples]
    return [sum(e * x for e, x in errors), sum(e for e, _ in errors), sum(e * e for e, _ in errors)]


def follow(members, samples, step_ms):
    """A member that is not the coordinator: does what it is sent until it is told that it is out."""
    line = connect(members)
    line.send({"member": members.own})
    if members.first:
        members.say("ready", generation=members.first)
    generation = -1
    while True:
        order = line.receive()
        members.generation = order["generation"]
        if order["kind"] == "out":
            if order["leaves"]:
                members.say("left", order["step"])
            print("elastic: out at step %d" % order["step"], flush=True)
            return
        if generation != members.generation:
            generation = members.generation
            members.say("joined", order["step"])
            print("elastic: in, generation %d, step %d" % (generation, order["step"]), flush=True)
        begin, end = order["part"]
        time.sleep(step_ms / 1000.0 / order["members"])
        line.send({"order": order["order"], "sums": gradient(samples[begin:end], *order["parameters"])})


def connect(members):
    while True:
        try:
            return Line(socket.create_connection((members.coordinator["address"], members.coordinator["port"])))
        except OSError:
            time.sleep(SHORT_S)


class Coordinator:
    """Member 0: the others' connections, by their numbers."""

    def __init__(self, members, samples):
        self.members, self.samples, self.lines, self.orders = members, samples, {}, 0
        self.listener = socket.create_server(("", int(os.environ.get("DORMOUSE_PORT", "0"))))
        self.listener.settimeout(SHORT_S)

    def accept(self):
        """Lets one more in, if there is one."""
        try:
            line = Line(self.listener.accept()[0])
            line.socket.setblocking(True)
            self.lines[line.receive()["member"]] = line
        except (OSError, ConnectionError):
            pass

    def others(self):
        return [member for member in self.members.ids if member != self.members.own]

    def meet(self, step):
        """Waits for those that are listed, and tells those that leave."""
        while not Stop.is_asked and any(member not in self.lines for member in self.others()):
            self.accept()
            self.members.look()
        for member in sorted(set(self.lines) & set(self.members.leaving)):
            self.let_go(member, step, leaves=True)
        self.members.say("joined", step)
        print("elastic: generation %d, members %s, step %d" % (self.members.generation, self.members.ids, step), flush=True)

    def let_go(self, member, step, leaves):
        order = {"kind": "out", "leaves": leaves, "step": step, "generation": self.members.generation}
        try:
            self.lines.pop(member).send(order)
        except OSError:
            pass

    def sums(self, step, parameters, step_ms):
        """The gradient over all samples; None where a member died meanwhile."""
        ids, self.orders = self.members.ids, self.orders + 1
        bounds = [len(self.samples) * at // len(ids) for at in range(len(ids) + 1)]
        parts = dict(zip(ids, zip(bounds, bounds[1:])))
        order = {"kind": "step", "order": self.orders, "generation": self.members.generation, "step": step}
        order.update(parameters=parameters, members=len(ids))
        member = None
        try:
            for member in self.others():
                self.lines[member].send(dict(order, part=parts[member]))
            time.sleep(step_ms / 1000.0 / len(ids))
            begin, end = parts[self.members.own]
            found = [gradient(self.samples[begin:end], *parameters)]
            for member in self.others():
                answer = self.lines[member].receive()
                while answer["order"] != self.orders:  # of a step that is done again
                    answer = self.lines[member].receive()
                found.append(answer["sums"])
        except (OSError, ConnectionError):
            self.lines.pop(member)
            return None
        return [sum(column) for column in zip(*found)]

    def wait_for_news(self, step):
        """A member is gone: the next members are in the file when the log has it."""
        print("elastic: a member is gone in step %d" % step, flush=True)
        while not Stop.is_asked and not self.members.look():
            self.accept()


def load():
    """Step and parameters to go on from."""
    folder = os.environ.get("DORMOUSE_RESUME_FROM")
    if not folder:
        return 0, [0.0, 0.0]
    with open(os.path.join(folder, "checkpoint.json"), encoding="utf-8") as file:
        saved = json.load(file)
    return saved["step"], saved["parameters"]


def save(step, parameters):
    """So little that all of it stands in checkpoint.json."""
    folder = os.environ.get("DORMOUSE_CHECKPOINT_DIR")
    if folder:
        rename_into(os.path.join(folder, "checkpoint.json"), {"step": step, "parameters": parameters})


def report(step, steps, **metrics):
    line = json.dumps({"step": step, "steps_total": steps, **metrics})
    print(line, flush=True)
    if os.environ.get("DORMOUSE_PROGRESS"):
        with open(os.environ["DORMOUSE_PROGRESS"], "a", encoding="utf-8") as file:
            file.write(line + "\n")


def lead(options, members, samples):
    """The coordinator: leads the others through all steps."""
    signal.signal(signal.SIGTERM, Stop.on_term)
    coordinator, (step, parameters), reported = Coordinator(members, samples), load(), 0.0
    coordinator.meet(step)
    while step < options.steps and not Stop.is_asked:
        if members.look():
            coordinator.meet(step)
        sums = coordinator.sums(step, parameters, options.step_ms)
        if sums is None:
            coordinator.wait_for_news(step)
            coordinator.meet(step)
            continue
        parameters = [p - options.learning_rate * 2 * s / SAMPLES for p, s in zip(parameters, sums)]
        step += 1
        if step == options.steps or time.monotonic() >= reported + PROGRESS_S:
            reported = time.monotonic()
            report(step, options.steps, loss=round(sums[2] / SAMPLES, 6), members=len(members.ids))
    if step < options.steps:
        save(step, parameters)
    for member in sorted(coordinator.lines):
        coordinator.let_go(member, step, leaves=False)
    print("elastic: done at step %d, %.4f x + %.4f" % (step, *parameters), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--step-ms", type=float, default=0.0, help="extra work of one step, shared by the members")
    parser.add_argument("--learning-rate", type=float, default=0.05)
    options = parser.parse_args()
    members, samples = Members(), data()
    if members.own == 0:
        lead(options, members, samples)
        return
    # One that was not told to leave, and is asked to end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        follow(members, samples, options.step_ms)
    except (OSError, ConnectionError):
        sys.exit("elastic: the coordinator is gone")


if __name__ == "__main__":
    main()
