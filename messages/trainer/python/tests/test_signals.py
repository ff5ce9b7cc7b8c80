"""Signals at every moment of a program's run, one and two at once, with and without workers that load data."""

import contextlib
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading

import dormouse_trainer as dormouse
import harness
import pytest
from dormouse_trainer.checkpoints import read

TERM, USR1 = signal.SIGTERM, signal.SIGUSR1


@contextlib.contextmanager
def signals_kept():
    """Whatever is done with them in it, they are afterwards as they were."""
    kept = {number: signal.getsignal(number) for number in (TERM, USR1)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def steps_saved(folder):
    saved = read(folder / "checkpoint")
    kept = pickle.loads((saved / "state.pickle").read_bytes())["state"]
    assert kept["steps"] == saved.step
    return saved.step


def signalled(folder, phase, numbers, *workers, group=False):
    """Runs the program, and sends it signals in one phase; what it says at its end."""
    argv = harness.command("phases.py", phase, *workers)
    process = harness.start(argv, harness.environment(folder), stdin=subprocess.PIPE)
    harness.await_line(process, "at " + phase)
    for number in numbers:
        (os.killpg if group else os.kill)(process.pid, number)
    process.stdin.write("\n")
    process.stdin.flush()
    # Python's own tracker of shared memory may complain after it: SIGUSR1 ends that.
    return next(line for line in harness.finish(process).splitlines() if line.startswith("done"))


@pytest.mark.parametrize("numbers", [[TERM], [TERM, TERM], [USR1, TERM], [TERM, USR1]])
@pytest.mark.parametrize(
    ("phase", "done"), [("import", 1), ("step", 1), ("evaluation", 21), ("save", 22), ("exit", 40)]
)
def test_a_stop_at_any_moment_loses_no_step(tmp_path, phase, done, numbers):
    last = signalled(tmp_path, phase, numbers)
    assert last == "done %d stopped %s" % (done, phase != "exit")
    assert steps_saved(tmp_path) == done


@pytest.mark.parametrize("phase", ["import", "step", "evaluation", "save", "exit"])
def test_a_save_at_any_moment_lets_it_run_on(tmp_path, phase):
    assert signalled(tmp_path, phase, [USR1, USR1]) == "done 40 stopped False"
    assert steps_saved(tmp_path) == 40


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize(("phase", "done"), [("step", 1), ("evaluation", 21), ("exit", 40)])
def test_four_workers_survive_a_signal_to_the_whole_group(tmp_path, phase, done, method):
    last = signalled(tmp_path, phase, [TERM, USR1], method, group=True)
    assert last == "done %d stopped %s" % (done, phase != "exit")
    assert steps_saved(tmp_path) == done


def end_a_forked_worker():
    """How a worker ends that a pool forks and then ends by SIGTERM."""
    child = multiprocessing.get_context("fork").Process(target=signal.pause)
    child.start()
    try:
        child.terminate()
        child.join(harness.LIMIT_S)
        return child.exitcode
    finally:
        # What a worker ignores must not keep the tests from their end.
        child.kill()
        child.join()


def test_a_forked_worker_can_be_ended_by_its_pool(tmp_path):
    """Without `ignore_signals` a child has the signals as they were before the run."""
    with signals_kept():
        run = dormouse.Run(environ=harness.environment(tmp_path))
        assert end_a_forked_worker() == -TERM
        assert not run.requests.stop


def test_a_forked_worker_has_the_signals_as_they_were_before_the_first_run(tmp_path):
    """However many runs have taken them, one over the other."""
    with signals_kept():
        runs = [dormouse.Run(environ=harness.environment(tmp_path)) for _ in range(8)]
        assert end_a_forked_worker() == -TERM
        assert not any(run.requests.stop for run in runs)


def test_a_run_that_has_lost_the_signals_does_not_set_them_in_a_forked_worker(tmp_path):
    """The process ignored them as the run began, and has set them itself since."""
    with signals_kept():
        with signals_kept():
            signal.signal(TERM, signal.SIG_IGN)
            earlier = [dormouse.Run(environ=harness.environment(tmp_path)) for _ in range(8)]
        run = dormouse.Run(environ=harness.environment(tmp_path))
        assert end_a_forked_worker() == -TERM
        assert not any(each.requests.stop for each in [run, *earlier])


def test_a_handler_over_a_run_that_is_over_ends_by_the_signal(tmp_path):
    """A program's own handler calls the run's: in a forked worker the run is not there."""
    with signals_kept():
        run = dormouse.Run(environ=harness.environment(tmp_path))
        own = signal.getsignal(TERM)
        signal.signal(TERM, lambda number, frame: own(number, frame))
        assert end_a_forked_worker() == -TERM
        assert not run.requests.stop


def test_a_worker_that_a_thread_forks_can_be_ended(tmp_path):
    with signals_kept():
        run = dormouse.Run(environ=harness.environment(tmp_path))
        ends = []
        forks = threading.Thread(target=lambda: ends.append(end_a_forked_worker()))
        forks.start()
        forks.join()
        assert ends == [-TERM]
        assert run.requests.installed


def test_a_run_that_takes_the_signals_twice_gives_them_back(tmp_path):
    with signals_kept():
        before = signal.getsignal(TERM)
        run = dormouse.Run(environ=harness.environment(tmp_path))
        assert run.requests.install()
        run.requests.restore()
        assert signal.getsignal(TERM) == before


def test_a_run_that_ends_leaves_a_later_one_the_signals(tmp_path):
    with signals_kept():
        earlier, later = (dormouse.Run(environ=harness.environment(tmp_path)) for _ in range(2))
        earlier.requests.ignore()
        assert signal.getsignal(TERM) == later.requests.handlers[TERM]


def test_a_run_that_ends_under_a_later_one_leaves_it_the_signals(tmp_path):
    with signals_kept():
        before = signal.getsignal(TERM)
        earlier, later = (dormouse.Run(environ=harness.environment(tmp_path)) for _ in range(2))
        earlier.requests.restore()
        assert signal.getsignal(TERM) == later.requests.handlers[TERM]
        os.kill(os.getpid(), TERM)
        assert later.requests.stop
        later.requests.restore()
        assert signal.getsignal(TERM) == before


def test_the_checkpoint_command_waits_for_the_save(tmp_path):
    """`checkpoint.command: [python3, -m, dormouse_trainer, save]`."""
    env = harness.environment(tmp_path)
    program = harness.start(harness.command("save_on_request.py"), env)
    harness.await_line(program, "running")
    harness.run([sys.executable, "-m", "dormouse_trainer", "save"], env)
    assert read(tmp_path / "checkpoint").step >= 1
    os.kill(program.pid, TERM)
    harness.finish(program)


def test_the_checkpoint_command_outside_a_job_says_so(tmp_path):
    assert "this is no job" in harness.run([sys.executable, "-m", "dormouse_trainer", "save"], {}, code=2)
