"""A function that becomes a job: its document, and, where the command is built, a job on a cluster."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import harness
import pytest
from dormouse_trainer.notebook import CommandFailed, NotAJob, job

ROOT = harness.HERE.parents[3]
OUTSIDE = 3


def recorder(folder, code=0):
    """A command that keeps what it was given, in the place of `dormouse`."""
    program = (
        "import sys, json, pathlib; pathlib.Path(%r).write_text(sys.stdin.read()); "
        "print(json.dumps({'job': 'ads/cell'})) if %d in (0, 2) else sys.exit('refused: no')" % (str(folder / "sent"), code)
    )
    return [sys.executable, "-c", program]


def test_a_function_becomes_a_document_that_runs_alone(tmp_path):
    @job(tenant="ads", cpu=2, memory="2Gi", containers=(1, 4), command=recorder(tmp_path), env={"A": "b"})
    def cell(run, steps, text="x"):
        # A comment stays.
        for step in run.steps(steps):
            run.report(loss=1.0)
        print(text, run.done)

    assert cell(7, text='quotes " and \' and ünï').id == "ads/cell"
    sent = json.loads((tmp_path / "sent").read_text())
    assert (sent["tenant"], sent["demand"], sent["env"]) == ("ads", {"cpu": 2, "memory": "2Gi"}, {"A": "b"})
    assert sent["containers"] == {"min": 1, "max": 4} and "name" not in sent
    argv = sent["command"]["start"]
    output = harness.run([sys.executable, *argv[1:]], harness.environment(tmp_path))
    assert output.splitlines()[-1] == 'quotes " and \' and ünï 7'


def test_what_cannot_travel_is_refused_at_once(tmp_path):
    with pytest.raises(NotAJob, match="OUTSIDE"):

        @job
        def uses_a_global():
            return OUTSIDE

    here = 4
    with pytest.raises(NotAJob, match="here"):

        @job
        def uses_a_closure():
            return [here for _ in range(2)]

    @job(command=recorder(tmp_path))
    def takes_anything(value):
        return value

    with pytest.raises(NotAJob, match="JSON"):
        takes_anything(object())
    with pytest.raises(TypeError, match="missing"):
        takes_anything()
    assert takes_anything.local(5) == 5


def test_a_refusal_is_told_in_the_words_of_the_command(tmp_path):
    @job(command=recorder(tmp_path, code=1))
    def cell():
        pass

    with pytest.raises(CommandFailed, match="refused: no"):
        cell()


def built():
    """The command, where it is built."""
    binary = Path(os.environ.get("DORMOUSE_BINARY", ROOT / "target/debug/dormouse"))
    server = os.environ.get("DORMOUSE_NATS_SERVER", ROOT / ".tools/bin/nats-server")
    if binary.exists() and Path(server).exists():
        return str(binary), str(server)
    if os.environ.get("DORMOUSE_NO_SKIP"):
        pytest.fail("%s or %s is not there" % (binary, server))
    pytest.skip("neither built nor named by DORMOUSE_BINARY and DORMOUSE_NATS_SERVER")


def test_a_cell_is_trained_on_a_cluster(tmp_path):
    binary, server = built()
    env = {"DORMOUSE_NATS_SERVER": server, "DORMOUSE_DATA": str(tmp_path / "data")}
    up = harness.start([binary, "up", "--nodes", "1", "--capacity", "cpu=2,memory=2Gi"], env)
    command = ["env", "DORMOUSE_DATA=%s" % (tmp_path / "data"), binary]
    try:
        harness.await_line(up, "A cluster of")

        @job(tenant="ads", name="cell", command=command, env={"PYTHONPATH": str(harness.SOURCE)})
        def cell(run, steps):
            state = {"steps": 0}
            run.keep(state=state)
            for step in run.steps(steps):
                state["steps"] += 1
                run.report(loss=1.0 / state["steps"])
            print("counted", state["steps"])

        submitted = cell(steps=50)
        assert submitted.id == "ads/cell"
        assert submitted.wait() == "completed"
        assert "counted 50" in submitted.logs()
        assert submitted.show()["checkpoint"]["step"] == 50
    finally:
        os.kill(up.pid, signal.SIGTERM)
        up.communicate()
        shutil.rmtree(tmp_path / "data", ignore_errors=True)
