"""A checkpoint is whole or not there, whenever the program is killed."""

import json
import os
import signal
import time

import harness
import pytest
from dormouse_trainer import checkpoints
from dormouse_trainer.checkpoints import BadCheckpoint, Saving, read


def save(directory, step):
    saving = Saving(directory, step)
    folder = saving.begin()
    (folder / "model").write_text("model of %d" % step)
    (folder / "part").mkdir()
    (folder / "part" / "0").write_text(str(step))
    return saving.commit()


def test_killed_by_sigkill_during_saves_the_last_whole_one_is_left(tmp_path):
    generator = harness.seeded("killed in a save")
    for trial in range(12):
        folder = tmp_path / str(trial)
        process = harness.start(harness.command("save_for_ever.py"), harness.environment(folder))
        harness.await_line(process, "first")
        time.sleep(generator.uniform(0.0, 0.06))
        os.killpg(process.pid, signal.SIGKILL)
        harness.finish(process, -signal.SIGKILL)
        saved = read(folder / "checkpoint")
        assert saved.step >= 1
        for part in range(10):
            assert (saved / str(part)).read_bytes() == b"%d" % saved.step * 1000


class Killed(BaseException):
    """Here the process would end."""


def test_stopped_before_any_call_to_the_system_the_former_one_or_the_new_one_is_whole(tmp_path, monkeypatch):
    """Every fsync, rename and removal of one save in turn is the one that does not happen any more."""
    for last in range(100):
        directory = tmp_path / str(last)
        directory.mkdir()
        save(directory, 1)
        calls = 0

        def counted(name, call):
            def counting(*arguments, **more):
                nonlocal calls
                calls += 1
                if calls > last:
                    raise Killed(name)
                return call(*arguments, **more)

            return counting

        with monkeypatch.context() as patched:
            for module, name in [(os, "fsync"), (os, "rename"), (checkpoints.shutil, "rmtree")]:
                patched.setattr(module, name, counted(name, getattr(module, name)))
            try:
                save(directory, 2)
                finished = True
            except Killed:
                finished = False
        found = read(directory)
        assert (found / "model").read_text() == "model of %d" % found.step
        if finished:
            assert found.step == 2 and last >= 8
            return
    raise AssertionError("the save never came to its end")


def test_the_same_step_may_be_saved_twice(tmp_path):
    save(tmp_path, 3)
    assert (save(tmp_path, 3) / "model").read_text() == "model of 3"
    assert len(list(tmp_path.glob("step-*"))) == 1


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder, named: (folder / "checkpoint.json").unlink(),
        lambda folder, named: (folder / "checkpoint.json").write_text('{"step":'),
        lambda folder, named: (folder / "checkpoint.json").write_text("[]"),
        lambda folder, named: (named / "model").unlink(),
        lambda folder, named: (named / "model").write_text("longer than it was"),
    ],
)
def test_what_is_not_whole_is_not_loaded(tmp_path, spoil):
    spoil(tmp_path, save(tmp_path, 1).folder)
    with pytest.raises(BadCheckpoint):
        read(tmp_path)


def test_the_manifest_is_what_the_agent_reads(tmp_path):
    saved = save(tmp_path, 9)
    manifest = json.loads((tmp_path / "checkpoint.json").read_bytes())
    assert (manifest["step"], manifest["bytes"]) == (9, len("model of 9") + 1)
    newest = max(path.stat().st_mtime_ns for path in saved.folder.rglob("*") if path.is_file())
    assert (tmp_path / "checkpoint.json").stat().st_mtime_ns >= newest, "written last"


def test_a_manifest_of_many_files_stays_small(tmp_path):
    saving = Saving(tmp_path, 1)
    folder = saving.begin()
    for part in range(600):
        (folder / ("a-shard-with-a-long-name-%05d" % part)).touch()
    saving.commit()
    assert (tmp_path / "checkpoint.json").stat().st_size < 64 * 1024
    assert read(tmp_path).manifest["files_total"] == 600


def test_one_of_another_program_needs_a_step_only(tmp_path):
    (tmp_path / "checkpoint.json").write_text('{"step": 5}')
    found = read(tmp_path)
    assert (found.step, found.folder) == (5, tmp_path)
