"""From a submission to a program's first instruction, beside HyperQueue in the same run.

run.py DORMOUSE [COUNT [AT_ONCE [SEED]]]: each round submits COUNT jobs one after the other to one
system and then to the other, waiting for each job to begin and then for a random gap; then AT_ONCE
jobs without waiting, each by a submission of its own. Rounds take the two systems in turn, the one
first, then the other. The gap is random and long because a fixed one meets a scheduler's interval
always at the same moment: with 20 ms, HyperQueue starts every job 22 ms late. The clients are the
Python clients of both, the program (stamp.c) says when it began, and fork and exec alone stand
beside them. All of it is done with two slots (two processors' worth of jobs at once) and with many.
"""

import asyncio
import os
import random
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

ROUNDS = 4
GAP_S = (0.05, 0.15)
SLOTS = (2, 64)
SERVER = "import sys, time; from hyperqueue.cluster import LocalCluster, WorkerConfig; LocalCluster(sys.argv[1], WorkerConfig(cores=int(sys.argv[2]))); time.sleep(1e6)"


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


def gap() -> None:
    time.sleep(random.uniform(*GAP_S))


def of_hyperqueue(server: Path, stamps: Stamps, count: int, at_once: int) -> tuple[float, float, float]:
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
        gap()
    first = time.time_ns()
    files = [submit() for _ in range(at_once)]
    last = max(stamps.wait(file) for file in files)
    return *summary(began, asked), at_once / (last - first) * 1e9


async def of_dormouse(url: str, stamps: Stamps, count: int, at_once: int) -> tuple[float, float, float]:
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
            gap()
        first = time.time_ns()
        files = [await submit() for _ in range(at_once)]
        last = max(stamps.wait(file) for file in files)
        return *summary(began, asked), at_once / (last - first) * 1e9


def compare(dormouse: str, slots: int, count: int, at_once: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = folder / "stamp"
        source = Path(__file__).with_name("stamp.c")
        subprocess.run(["cc", "-O2", "-o", program, source], check=True)
        (folder / "stamps").mkdir()
        stamps = Stamps(folder / "stamps", program)
        server = subprocess.Popen([sys.executable, "-c", SERVER, folder / "hq", str(slots)])
        up = subprocess.Popen(
            [dormouse, "up", "--data", folder / "data", "--capacity", f"cpu={slots},memory=64Gi"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "RUST_LOG": "error"},
            text=True,
        )
        form = "median {:.2f} ms, p99 {:.2f} ms; {:.0f} jobs/s"
        systems = {
            "HyperQueue": lambda: of_hyperqueue(folder / "hq", stamps, count, at_once),
            "Dormouse": lambda: asyncio.run(of_dormouse(url[0], stamps, count, at_once)),
        }
        try:
            said = ""
            while not (url := re.search(r"nats://[0-9.:]+", said)):
                said += up.stderr.readline()
            time.sleep(2)
            for number in range(ROUNDS):
                print("fork and exec alone: median {:.2f} ms, p99 {:.2f} ms".format(*alone(stamps, count)))
                for name in sorted(systems, reverse=number % 2 == 0):
                    print(f"{name + ':':20} " + form.format(*systems[name]()), flush=True)
        finally:
            # HyperQueue's server does not end by itself.
            server.kill()
            up.terminate()
            up.wait(30)


def main() -> None:
    dormouse, *numbers = sys.argv[1:]
    count, at_once, seed = [int(it) for it in numbers] + [100, 1500, time.time_ns() % 10**6][len(numbers) :]
    random.seed(seed)
    print(f"{count} jobs with gaps of {GAP_S[0] * 1000:.0f} to {GAP_S[1] * 1000:.0f} ms (seed {seed}), then {at_once} at once")
    for slots in SLOTS:
        print(f"{slots} slots:")
        compare(dormouse, slots, count, at_once)


if __name__ == "__main__":
    main()
