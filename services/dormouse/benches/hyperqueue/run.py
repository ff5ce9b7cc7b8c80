"""From a submission to a program's first instruction, beside HyperQueue in the same run.

run.py DORMOUSE [COUNT]: each round submits COUNT jobs one after the other, waiting for each, to one
system and then to the other, and then as many at once, each by a submission of its own. The clients
are the Python clients of both, the program (stamp.c) says when it began, and fork and exec alone
stand beside them. Both run on this machine, with two workers or two containers at once.
"""

import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dormouse_client import Client
from hyperqueue import Job
from hyperqueue import client as hyperqueue

ROUNDS = 3
SERVER = "import sys, time; from hyperqueue.cluster import LocalCluster, WorkerConfig; LocalCluster(sys.argv[1], WorkerConfig(cores=2)); time.sleep(1e6)"


class Stamps:
    """Where programs say when they began."""

    def __init__(self, folder: Path, program: Path) -> None:
        self.folder, self.program, self.made = folder, program, 0

    def next(self) -> tuple[list[str], Path]:
        self.made += 1
        file = self.folder / str(self.made)
        return [str(self.program), str(file)], file

    @staticmethod
    def wait(file: Path) -> int:
        """When it began."""
        limit = time.monotonic() + 60
        while time.monotonic() < limit:
            try:
                if text := file.read_text():
                    return int(text)
            except FileNotFoundError:
                pass
            time.sleep(0.0002)
        raise TimeoutError(f"{file} was not written")


def summary(began: list[int], asked: list[int]) -> tuple[float, float]:
    """The median and the 99th per cent, in milliseconds."""
    waits = sorted((b - a) / 1e6 for b, a in zip(began, asked, strict=True))
    return statistics.median(waits), waits[int(len(waits) * 0.99)]


def alone(stamps: Stamps, count: int) -> tuple[float, float]:
    began, asked = [], []
    for _ in range(count):
        words, file = stamps.next()
        asked.append(time.time_ns())
        subprocess.run(words, check=True)
        began.append(stamps.wait(file))
    return summary(began, asked)


def of_hyperqueue(server: Path, stamps: Stamps, count: int) -> tuple[float, float, float]:
    client = hyperqueue.Client(server)

    def submit() -> Path:
        words, file = stamps.next()
        job = Job()
        job.program(words, stdout=None, stderr=None)
        client.submit(job)
        return file

    began, asked = [], []
    for _ in range(count):
        asked.append(time.time_ns())
        began.append(stamps.wait(submit()))
        time.sleep(0.02)
    first = time.time_ns()
    files = [submit() for _ in range(count)]
    last = max(stamps.wait(file) for file in files)
    return *summary(began, asked), count / (last - first) * 1e9


async def of_dormouse(url: str, stamps: Stamps, count: int) -> tuple[float, float, float]:
    async with Client.connect(url, tenant="bench", timeout=60) as client:

        async def submit() -> Path:
            words, file = stamps.next()
            job = {"command": {"start": words}, "demand": {"cpu": 1}}
            await client.submit(job, "accepted")
            return file

        began, asked = [], []
        for _ in range(count):
            asked.append(time.time_ns())
            began.append(stamps.wait(await submit()))
            time.sleep(0.02)
        first = time.time_ns()
        files = [await submit() for _ in range(count)]
        last = max(stamps.wait(file) for file in files)
        return *summary(began, asked), count / (last - first) * 1e9


def main() -> None:
    dormouse, count = sys.argv[1], int((sys.argv + ["200"])[2])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = folder / "stamp"
        source = Path(__file__).with_name("stamp.c")
        subprocess.run(["cc", "-O2", "-o", program, source], check=True)
        (folder / "stamps").mkdir()
        stamps = Stamps(folder / "stamps", program)
        server = subprocess.Popen([sys.executable, "-c", SERVER, folder / "hq"])
        up = subprocess.Popen(
            [dormouse, "up", "--data", folder / "data", "--capacity", "cpu=2,memory=8Gi"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "RUST_LOG": "error"},
            text=True,
        )
        try:
            said = ""
            while not (url := re.search(r"nats://[0-9.:]+", said)):
                said += up.stderr.readline()
            time.sleep(2)
            for _ in range(ROUNDS):
                print("fork and exec alone: median {:.2f} ms, p99 {:.2f} ms".format(*alone(stamps, count)))
                form = "median {:.2f} ms, p99 {:.2f} ms; {:.0f} jobs/s submitted one by one"
                print("HyperQueue:          " + form.format(*of_hyperqueue(folder / "hq", stamps, count)))
                print("Dormouse:            " + form.format(*asyncio.run(of_dormouse(url[0], stamps, count))), flush=True)
        finally:
            # HyperQueue's server does not end by itself.
            server.kill()
            up.terminate()
            up.wait(30)


if __name__ == "__main__":
    main()
