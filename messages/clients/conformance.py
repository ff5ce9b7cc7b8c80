#!/usr/bin/env python3
"""Judges the clients: runs each language's driver over conformance.json, and compares.

    conformance.py --main nats://127.0.0.1:4222 --driver python=COMMAND --driver go=COMMAND ...

`--main` is the broker of a running `dormouse up`. Beside it the judge makes two brokers of its own:

restricted  a nats-server ($DORMOUSE_NATS_SERVER) that denies most subjects, answers nothing on some,
            and for the tenant `slow` acknowledges without a decision ever coming
cutting     a proxy before the main broker that ends a connection once, when a message with the text
            `cut-after-this` has gone to the broker and the acknowledgement has not come back

Standard library only. Ends with 1 where a driver answers otherwise than the suite says.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LIMIT_S = 120


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Restricted:
    """A broker where little is allowed and less is answered."""

    CONFIG = """
listen: "127.0.0.1:%d"
max_payload: 8MB
no_auth_user: anybody
authorization {
  users: [{user: anybody, password: anybody, permissions: {
    publish: {allow: ["_INBOX.>", "dormouse.in.absent.>", "dormouse.in.mute.>", "dormouse.in.slow.>", "dormouse.tenant.absent.>", "dormouse.tenant.slow.>"]}
    subscribe: {allow: ["_INBOX.>", "dormouse.status.>", "dormouse.in.mute.>", "dormouse.in.slow.>"]}
  }}]
}
"""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        config = folder / "restricted.conf"
        config.write_text(self.CONFIG % self.port)
        server = os.environ.get("DORMOUSE_NATS_SERVER", "nats-server")
        self.process = subprocess.Popen([server, "-c", str(config), "--log", str(folder / "restricted.log")])
        while True:
            try:
                self.socket = socket.create_connection(("127.0.0.1", self.port))
                break
            except OSError:
                if self.process.poll() is not None:
                    raise SystemExit(f"{server} does not start") from None
                time.sleep(0.02)
        self.socket.sendall(b'CONNECT {"verbose":false,"pedantic":false}\r\nSUB dormouse.in.mute.> 1\r\nSUB dormouse.in.slow.> 2\r\nPING\r\n')
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self) -> None:
        """Acknowledges what the tenant `slow` publishes, as a stream would; keeps silent else."""
        stream = self.socket.makefile("rb")
        while line := stream.readline():
            words = line.split()
            if line.startswith(b"PING"):
                self.socket.sendall(b"PONG\r\n")
            elif line.startswith((b"MSG", b"HMSG")):
                stream.read(int(words[-1]) + 2)
                inbox = words[3]
                if words[1].startswith(b"dormouse.in.slow."):
                    ack = b'{"stream":"DORMOUSE_IN","seq":7}'
                    self.socket.sendall(b"PUB %s %d\r\n%s\r\n" % (inbox, len(ack), ack))

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


class Cutting:
    """A proxy that ends a connection between a message and its acknowledgement, once a driver."""

    MARK = b"cut-after-this"

    def __init__(self, url: str) -> None:
        host, port = re.fullmatch(r"nats://([^:/]+):(\d+)/?", url).groups()  # type: ignore[union-attr]
        self.broker = (host, int(port))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.armed = True
        self.cuts = 0
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            client, _ = self.listener.accept()
            broker = socket.create_connection(self.broker)
            pair = (client, broker)
            # The client is to connect to this proxy again, not to the address that the broker gives.
            threading.Thread(target=self.pump, args=(client, broker, pair, True), daemon=True).start()
            threading.Thread(target=self.pump, args=(broker, client, pair, False), daemon=True).start()

    def pump(self, source: socket.socket, sink: socket.socket, pair: tuple[socket.socket, ...], up: bool) -> None:
        tail = b""
        try:
            while data := source.recv(65536):
                cut = up and self.armed and self.MARK in tail + data
                tail = data[-len(self.MARK) :]
                if cut:
                    # No acknowledgement goes back; the rest of the message may not arrive before.
                    self.armed = False
                    self.cuts += 1
                    pair[0].shutdown(socket.SHUT_RDWR)
                sink.sendall(data)
        except OSError:
            pass
        finally:
            if not up:
                return
            # What was sent up has to arrive: no reset.
            try:
                pair[1].shutdown(socket.SHUT_WR)
            except OSError:
                pass


def matches(expected: Any, found: Any, tenant: str, where: str = "") -> list[str]:
    """How `found` differs."""
    if isinstance(expected, dict):
        if "$in_order" in expected:
            rest = iter(found or [])
            missing = [item for item in expected["$in_order"] if item not in rest]
            return [f"{where} lacks {missing[0]} in this place: {found}"] if missing else []
        if "$some" in expected:
            some = any(not matches(expected["$some"], item, tenant) for item in found or [])
            return [] if some else [f"{where} has none like {expected['$some']}: {found}"]
        if "$tenant" in expected:
            return matches(f"{tenant}/{expected['$tenant']}", found, tenant, where)
        if not isinstance(found, dict):
            return [f"{where} is {found!r}, not {expected}"]
        wrong = []
        for key, value in expected.items():
            wrong += matches(value, found.get(key), tenant, f"{where}.{key}")
        return wrong
    return [] if expected == found else [f"{where} is {found!r}, not {expected!r}"]


def run(language: str, command: str, arguments: list[str], cases: list[dict[str, Any]]) -> tuple[list[str], dict[str, str]]:
    """A driver's faults, and the hashes of what it published, by case."""
    tenant = f"conformance-{language}"
    words = [*shlex.split(command), *arguments, "--tenant", tenant, "--cases", str(HERE / "conformance.json")]
    began = time.monotonic()
    process = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=LIMIT_S, check=False)
    said = {}
    for line in process.stdout.splitlines():
        answer = json.loads(line)
        said[answer.pop("case")] = answer
    faults, hashes = [], {}
    if process.returncode != 0:
        faults.append(f"{language}: the driver ended with {process.returncode}")
    for case in cases:
        name = case["name"]
        answer = said.get(name)
        wrong = ["no answer"] if answer is None else matches(case["expect"], answer, tenant)
        if answer and not wrong and "ok" in answer and "sha256" in answer["ok"] and case.get("bytes") != "differ":
            hashes[name] = answer["ok"]["sha256"]
        faults += [f"{language}: {name}: {fault}; it said {json.dumps(answer)[:400]}" for fault in wrong]
    print(f"{language}: {len(cases) - len({f.split(': ')[1] for f in faults})} of {len(cases)} cases in {time.monotonic() - began:.1f} s", flush=True)
    return faults, hashes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--main", required=True, help="the broker of a running `dormouse up`")
    parser.add_argument("--driver", action="append", required=True, metavar="LANGUAGE=COMMAND")
    options = parser.parse_args()
    cases = json.loads((HERE / "conformance.json").read_text(encoding="utf-8"))["cases"]
    faults: list[str] = []
    hashes: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory(prefix="dormouse-conformance-") as folder:
        restricted, cutting = Restricted(Path(folder)), Cutting(options.main)
        urls = ["--main", options.main, "--restricted", f"nats://127.0.0.1:{restricted.port}"]
        urls += ["--cutting", f"nats://127.0.0.1:{cutting.port}"]
        try:
            for driver in options.driver:
                language, command = driver.split("=", 1)
                cutting.armed, cuts = True, cutting.cuts
                found, own = run(language, command, urls, cases)
                faults += found
                if cutting.cuts == cuts:
                    faults.append(f"{language}: its connection was not cut, so the suite has not tried that")
                for case, sha256 in own.items():
                    hashes.setdefault(case, {})[language] = sha256
        finally:
            restricted.stop()
    for case, own in hashes.items():
        if len(set(own.values())) > 1:
            faults.append(f"{case}: the bytes differ: {own}")
    for fault in faults:
        print(f"conformance: {fault}", file=sys.stderr)
    print(f"{len(cases) * len(options.driver)} answers, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
