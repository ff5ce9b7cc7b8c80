"""`make whatif-real`: how far is the model of `dormouse whatif` off a history of real processes?

A cluster of two nodes with six places each runs jobs of three tenants that come at random times (a printed seed), of one to
four containers. Their steps are paced by the clock, so that containers and not this machine's processors are the capacity.
Then the history is played again without changes, and the error that the answer states is printed. It fails where the
completion times are off by more than 10 % at the median.
"""

import argparse
import json
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TENANTS = ["ads", "search", "vision"]
MOST_OFF = 0.10
#: Places of the cluster and what a job's containers do on average, for a cluster that is busy and not full for ever.
NODES, PLACES, BUSY, STEP_MS = 2, 6, 0.8, 200
STEPS = (20, 100)


def document(index, source):
    steps = source.randint(*STEPS)
    start = ["python3", "deploy/examples/count.py", "--steps", str(steps), "--step-ms", str(STEP_MS)]
    return steps * STEP_MS / 1000, {
        "name": "job-%03d" % index, "tenant": source.choice(TENANTS), "kind": "training",
        "command": {"start": start, "resume": [*start, "--resume"]}, "demand": {"cpu": 1, "memory": "256Mi"},
        "containers": {"min": 1, "max": source.randint(1, 4)},
        "checkpoint": {"mode": "exit", "signal": "SIGTERM", "grace_s": 10},
    }


class Cluster:
    """`dormouse up` in a folder of its own."""

    def __init__(self, program, folder):
        self.program, self.folder = program, folder
        self.up = subprocess.Popen(
            [program, "up", "--data", folder / "data", "--nodes", str(NODES), "--capacity", "cpu=%d,memory=16Gi" % PLACES],
            stdout=open(folder / "up.log", "w", encoding="utf-8"), stderr=subprocess.STDOUT, cwd=ROOT,
        )

    def run(self, *arguments):
        """What it prints, or None where it failed; why is in `said`. (2: a job that was submitted waits.)"""
        command = [self.program, *map(str, arguments), "--data", self.folder / "data"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        self.said = done.stderr.strip()
        return done.stdout if done.returncode in (0, 2) else None

    def wait(self, what, is_so, patience_s):
        deadline = time.monotonic() + patience_s
        while not is_so():
            if time.monotonic() > deadline or self.up.poll() is not None:
                sys.exit("whatif-real: %s: not within %d s; see %s" % (what, patience_s, self.folder / "up.log"))
            time.sleep(0.5)

    def has_nodes(self):
        listed = self.run("nodes", "-o", "json")
        return listed is not None and len(json.loads(listed)["nodes"]) == NODES

    def is_done(self, jobs):
        listed = self.run("jobs", "--phase", "completed", "--limit", str(2 * jobs), "-o", "json")
        return listed is not None and len(json.loads(listed)["jobs"]) == jobs

    def stop(self):
        self.up.terminate()
        self.up.wait(30)


def play(cluster, jobs, source):
    """Submits the jobs at their times and waits for their ends."""
    at = began = time.monotonic()
    for index in range(jobs):
        work_s, wanted = document(index, source)
        time.sleep(max(0.0, at - time.monotonic()))
        path = cluster.folder / "job.json"
        path.write_text(json.dumps(wanted), encoding="utf-8")
        if cluster.run("submit", path) is None:
            sys.exit("whatif-real: %s was not taken: %s" % (wanted["name"], cluster.said))
        mean_s = sum(STEPS) / 2 * STEP_MS / 1000 / (NODES * PLACES * BUSY)
        at += source.expovariate(1 / mean_s)
        if index % 20 == 19:
            print("%d of %d jobs submitted, %.0f s" % (index + 1, jobs, time.monotonic() - began), flush=True)
    cluster.wait("the end of all jobs", lambda: cluster.is_done(jobs), 300)
    print("All jobs have ended, after %.0f s" % (time.monotonic() - began), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dormouse", type=Path, default=ROOT / "target/debug/dormouse")
    parser.add_argument("--folder", type=Path, default=ROOT / "demo/whatif-real")
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    print("%d jobs, seed %d" % (options.jobs, options.seed), flush=True)
    cluster = Cluster(options.dormouse, options.folder)
    try:
        cluster.wait("%d nodes" % NODES, cluster.has_nodes, 60)
        play(cluster, options.jobs, random.Random(options.seed))
        log = options.folder / "log.parquet"
        cluster.run("log", "export", "-o", log)
        answer = cluster.run("whatif", "--log", log, "-o", "json")
    finally:
        cluster.stop()
    if answer is None:
        sys.exit("whatif-real: %s" % cluster.said)
    identity = json.loads(answer)["identity"]
    print("%(decisions_equal)d of %(decisions)d allocations come out again; fairness loss off by %(loss).3f" % identity)
    print("completion times of %d jobs: off by %.1f %% at the median, %.1f %% at the 90th per cent" % (
        identity["jobs"], 100 * identity["jct_p50"], 100 * identity["jct_p90"]))
    print("Log        %s" % log)
    sys.exit(0 if identity["jobs"] == options.jobs and identity["jct_p50"] <= MOST_OFF else 1)


if __name__ == "__main__":
    main()
