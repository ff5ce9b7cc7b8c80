"""A real torchrun whose members come and go: worlds of 2, 3 and 2 in place. `make trainers-all` runs it.

1. Torchrun's agents as processes, told what the executor of `resize: in_place` tells them.
2. The same through a real cluster (target/debug/dormouse, or DORMOUSE_BINARY): a job of `executor: torch` that
   grows when another job ends and shrinks when one comes.

What a change costs is printed: all workers start again by torchrun's design.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import harness
import numpy as np
import pytest
from test_elastic import free_port
from train_torchrun import alone

# Workers import torch at every change, on a machine that does much else.
harness.LIMIT_S = 180.0
PROGRAM = harness.HERE / "large" / "train_torchrun.py"
TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
ROOT = harness.HERE.parents[3]


class Members:
    """Torchrun's agents, each in its member's environment."""

    def __init__(self, folder, least, most):
        self.folder, self.least, self.most, self.port = folder, least, most, free_port()

    def start(self, member):
        # As services/node-agent/src/executor/torchrun.rs has it.
        told = {
            "NNODES": "%d:%d" % (self.least, self.most),
            "NPROC_PER_NODE": 1,
            "RDZV_BACKEND": "c10d",
            "RDZV_ENDPOINT": "127.0.0.1:%d" % self.port,
            "RDZV_ID": "ads-test-1",
            "RDZV_CONF": "is_host=%d,last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt=5" % (member == 0),
            "LOCAL_ADDR": "127.0.0.1",
            "MAX_RESTARTS": 144,
        }
        told = {"PET_%s" % name: value for name, value in told.items()}
        told.update(TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, GLOO_SOCKET_IFNAME="lo")
        env = harness.environment(self.folder, DORMOUSE_MEMBER=member, **told)
        return harness.start([TORCHRUN, str(PROGRAM), "50"], env)


def steps_of(folder):
    """What the workers logged, each step once: one that was done again after a change counts as it was then."""
    path = Path(folder) / "steps.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return list({line["step"]: line for line in lines}.values())


def reaches(folder, world, steps=10):
    """Waits until so many steps were done in a world of this size."""
    harness.await_that(
        "a world of %d" % world, lambda: [line["world"] for line in steps_of(folder)[-steps:]] == [world] * steps
    )


def judge(folder, worlds, what):
    """The losses are those of one process, the worlds as they were; says what each change cost."""
    lines = steps_of(folder)
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
    apart = np.array([line["loss"] for line in lines]) - np.array(alone(len(lines)))
    assert np.abs(apart).max() < 1e-5
    changes = [(a, b) for a, b in zip(lines, lines[1:]) if a["world"] != b["world"]]
    assert [lines[0]["world"]] + [b["world"] for _, b in changes] == worlds
    usual = float(np.median(np.diff([line["at"] for line in lines])))
    for before, after in changes:
        lost = after["at"] - before["at"] - usual
        print("%s, %d -> %d members: nothing trained for %.1f s" % (what, before["world"], after["world"], lost))


def test_the_coordinator_stays_and_the_loss_is_as_without_resizes(tmp_path):
    members = Members(tmp_path, 2, 3)
    folder = tmp_path / "checkpoint"
    coordinator, second = [members.start(member) for member in (0, 1)]
    reaches(folder, 2)
    third = members.start(2)
    reaches(folder, 3)
    # At the deadline the agent ends who is to leave: the process group, as plain processes are.
    os.killpg(third.pid, signal.SIGTERM)
    third.communicate()
    third.watchdog.cancel()
    reaches(folder, 2)
    assert coordinator.poll() is None
    (folder / "end").touch()
    for process in (coordinator, second):
        harness.finish(process)
    judge(folder, [2, 3, 2], "torchrun alone")


class Cluster:
    """`dormouse up` with one node of three processors."""

    def __init__(self, folder):
        self.data, self.asked = folder, 0
        binary = Path(os.environ.get("DORMOUSE_BINARY", ROOT / "target/debug/dormouse"))
        assert binary.exists(), "%s is not there: run `make build`" % binary
        self.command = [str(binary), "--data", str(folder)]
        (folder / "up.log").touch()
        up = ["up", "--nodes", "1", "--capacity", "cpu=3,memory=12Gi"]
        with open(folder / "up.log", "w") as log:
            self.process = subprocess.Popen([*self.command, *up], stdout=log, stderr=log, cwd=ROOT)
        harness.await_that("a node", lambda: self.json("nodes")["nodes"])

    def run(self, *words):
        return subprocess.run([*self.command, *words], capture_output=True, text=True, check=False)

    def json(self, *words):
        said = self.run(*words, "-o", "json")
        return json.loads(said.stdout) if said.returncode == 0 else {"nodes": []}

    def submit(self, **document):
        self.asked += 1
        path = self.data / ("job-%d.json" % self.asked)
        path.write_text(json.dumps({"tenant": "ads", "demand": {"cpu": 1, "memory": "1Gi"}, **document}))
        said = self.run("submit", "--detach", str(path))
        assert said.returncode == 0, said

    def log(self):
        path = self.data / "exported.jsonl"
        assert self.run("log", "export", "-o", str(path)).returncode == 0
        return [json.loads(line) for line in path.read_text().splitlines()]

    def end(self):
        # What it started runs on without it.
        self.run("job", "cancel", "--tenant", "ads", "--yes")
        self.run("job", "wait", "--tenant", "ads", "--timeout", "60s")
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
        # The supervisors of the node's containers outlive its agent.
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if str(self.data).encode() in path.read_bytes():
                    os.kill(int(path.parent.name), signal.SIGKILL)
            except OSError:
                continue


@pytest.fixture
def cluster(tmp_path):
    made = Cluster(tmp_path)
    yield made
    made.end()


def test_a_job_is_resized_in_place_in_a_real_cluster(cluster):
    filler = {"command": {"start": ["sleep", "100000"]}, "containers": {"min": 1, "max": 1}}
    cluster.submit(name="first", **filler)
    cluster.submit(
        name="trained",
        executor="torch",
        command={"start": [TORCHRUN, str(PROGRAM), "50"]},
        resize="in_place",
        containers={"min": 2, "start": 2, "max": 3},
        checkpoint={"mode": "exit", "grace_s": 3},
    )
    found = harness.await_that("a step", lambda: list(cluster.data.glob("**/steps.jsonl")))
    folder = found[0].parent
    reaches(folder, 2)
    cluster.run("job", "cancel", "ads/first", "--yes")
    reaches(folder, 3)
    cluster.submit(name="second", **filler)
    reaches(folder, 2)
    (folder / "end").touch()
    waited = cluster.run("job", "wait", "ads/trained", "--timeout", "%ds" % harness.LIMIT_S)
    assert waited.returncode == 0, (waited, cluster.run("job", "logs", "ads/trained", "--tail", "30").stdout)
    judge(folder, [2, 3, 2], "torchrun in a cluster")
    kinds = [event["type"] for event in cluster.log() if event.get("subject", "").endswith("ads/trained")]
    assert kinds.count("dormouse.partition.started.v1") == 1, kinds
    assert kinds.count("dormouse.partition.resized.v1") == 2, kinds
