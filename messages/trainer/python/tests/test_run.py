"""The run itself: steps, saves, resumes, reports, ranks that agree."""

import os
import pickle
import signal
import threading

import dormouse_trainer as dormouse
import harness
import pytest
from dormouse_trainer.checkpoints import read


def a_run(folder, **options):
    more = {name: options.pop(name) for name in ("resume_from", "rank", "world_size") if name in options}
    return dormouse.Run(environ=harness.environment(folder, **more), **options)


def train(run, state, total, at=None, act=None):
    """Counts into `state`; does `act` in step `at`."""
    for step in run.steps(total):
        state["steps"] += 1
        if step == at:
            act()


@pytest.fixture(autouse=True)
def signals():
    """Whatever a test does with them, the next one finds Python's own."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def test_outside_a_job_nothing_happens(tmp_path):
    run, state = dormouse.Run(environ={}), {"steps": 0}
    run.keep(state=state)
    due = []
    for _ in run.steps(5):
        state["steps"] += 1
        run.report(loss=1.0)
        due.append(run.save_due)
    assert (state["steps"], due, run.stopped) == (5, [False] * 5, False)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_the_end_is_saved_and_reported(tmp_path):
    run, state = a_run(tmp_path), {"steps": 0}
    run.keep(state=state)
    train(run, state, 7)
    saved = read(tmp_path / "checkpoint")
    assert saved.step == 7
    assert pickle.loads((saved / "state.pickle").read_bytes()) == {"state": {"steps": 7}}
    assert harness.lines(tmp_path)[-1] == {"step": 7, "steps_total": 7}


def test_a_stop_saves_after_the_step_and_a_resume_goes_on(tmp_path):
    run, state = a_run(tmp_path / "1"), {"steps": 0}
    run.keep(state=state)
    train(run, state, 100, 41, lambda: os.kill(os.getpid(), signal.SIGTERM))
    assert (run.stopped, run.done, state["steps"]) == (True, 42, 42)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_IGN, "a late signal would kill it"
    run, state = a_run(tmp_path / "2", resume_from=tmp_path / "1" / "checkpoint"), {"steps": 0}
    run.keep(state=state)
    assert state == {"steps": 42}
    train(run, state, 100)
    assert (run.stopped, state["steps"]) == (False, 100)


def test_fifty_saves_at_random_steps_hold_the_steps_done(tmp_path):
    generator = harness.seeded("random saves")
    asked = set(generator.sample(range(400), 50))
    run, state = a_run(tmp_path), {"steps": 0}
    run.keep(state=state)
    seen = []
    for step in run.steps(400):
        if step - 1 in asked:
            saved = read(tmp_path / "checkpoint")
            kept = pickle.loads((saved / "state.pickle").read_bytes())
            assert (saved.step, kept["state"]["steps"]) == (step, step)
            seen.append(step - 1)
        state["steps"] += 1
        if step in asked:
            generator.choice([lambda: os.kill(os.getpid(), signal.SIGUSR1), run.ask_save])()
    assert set(seen) | {399} == asked | {399}
    assert len(list((tmp_path / "checkpoint").glob("step-*"))) == 1, "the ones before are removed"


def test_a_program_may_save_by_itself(tmp_path):
    run = a_run(tmp_path, save_every=10)
    saved = []
    for step in run.steps(25):
        if run.save_due:
            with run.saving() as folder:
                (folder / "model").write_text(str(step + 1))
            saved.append(step + 1)
            assert not run.save_due, "it is done"
    assert saved == [10, 20, 25]
    assert (read(tmp_path / "checkpoint") / "model").read_text() == "25"


def test_a_save_that_fails_leaves_the_former_one(tmp_path):
    run = a_run(tmp_path)
    for step in run.steps(6):
        if step == 1:
            run.save(lambda folder: (folder / "model").write_text("good"))
        if step == 3:
            with pytest.raises(ZeroDivisionError), run.saving() as folder:
                (folder / "model").write_text("bad")
                1 / 0
            break
    saved = read(tmp_path / "checkpoint")
    assert (saved.step, (saved / "model").read_text()) == (2, "good")
    assert not list((tmp_path / "checkpoint").glob(".saving*"))


def test_a_stop_with_nothing_kept_is_told(tmp_path, capfd):
    run = a_run(tmp_path)
    for step in run.steps(5):
        run.ask_stop()
    assert run.done == 1
    assert "nothing was saved" in capfd.readouterr().err


def test_former_handlers_are_called_and_come_back(tmp_path):
    called = []
    signal.signal(signal.SIGUSR1, lambda number, frame: called.append(number))
    former = signal.getsignal(signal.SIGUSR1)
    with dormouse.Run(environ={}) as run:
        run.keep(state={})
        for _ in run.steps(2):
            os.kill(os.getpid(), signal.SIGUSR1)
        assert called == [signal.SIGUSR1] * 2
    assert signal.getsignal(signal.SIGUSR1) is former


def test_an_error_gives_the_signals_back(tmp_path):
    with pytest.raises(ZeroDivisionError), a_run(tmp_path) as run:
        for _ in run.steps(2):
            1 / 0
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert not (tmp_path / "checkpoint" / "checkpoint.json").exists()


def test_a_thread_takes_no_signals_but_saves_when_asked(tmp_path):
    state, runs = {"steps": 0}, []

    def work():
        run = a_run(tmp_path)
        runs.append(run)
        run.keep(state=state)
        train(run, state, 9, 4, lambda: (tmp_path / "container" / "save-request").touch())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not runs[0].requests.installed
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert state["steps"] == 9 and not (tmp_path / "container" / "save-request").exists()


def test_requests_of_many_threads_are_not_lost(tmp_path):
    run = a_run(tmp_path)
    threads = [threading.Thread(target=run.ask_save) for _ in range(50)]
    answers = 0
    for thread in threads:
        thread.start()
        answers += run.requests.save_wanted()
    for thread in threads:
        thread.join()
    answers += run.requests.save_wanted()
    assert answers >= 1 and not run.requests.save_wanted()


def test_a_stop_in_an_evaluation_ends_it(tmp_path):
    run, state, evaluated = a_run(tmp_path), {"steps": 0}, 0
    run.keep(state=state)
    for step in run.steps(10):
        state["steps"] += 1
        for batch in run.watch(range(100)):
            evaluated += 1
            if (step, batch) == (2, 5):
                run.ask_save()
            if (step, batch) == (2, 6):
                assert read(tmp_path / "checkpoint").step == 3, "saved within the evaluation"
            if (step, batch) == (4, 7):
                run.ask_stop()
    assert (evaluated, run.done, state["steps"]) == (408, 5, 5)
    assert read(tmp_path / "checkpoint").step == 5


def test_a_stop_in_a_warm_up_saves_what_there_is(tmp_path):
    run, state = a_run(tmp_path), {"steps": 0}
    run.keep(state=state)
    for _ in run.watch(range(100)):
        run.ask_stop()
    train(run, state, 10)
    assert (state["steps"], run.stopped, read(tmp_path / "checkpoint").step) == (0, True, 0)


def test_reports_are_few_and_the_last_one_always_comes(tmp_path):
    run = a_run(tmp_path, report_every_s=1000.0)
    calls = []
    for step in run.steps(50):
        run.report(loss=1.0 / (step + 1), nan=float("nan"), costly=lambda: calls.append(1) or 2.0)
    assert harness.lines(tmp_path) == [
        {"step": 1, "steps_total": 50, "loss": 1.0, "costly": 2.0},
        {"step": 50, "steps_total": 50, "loss": 0.02, "costly": 2.0},
    ]
    assert len(calls) == 2


def test_what_cannot_be_restored_in_place_is_refused(tmp_path):
    run = a_run(tmp_path)
    for value in (3, "text", (1, 2)):
        with pytest.raises(TypeError, match="keep a dict"):
            run.keep(value=value)


class Ranks:
    """Ranks in threads that agree at a barrier, as an allreduce would."""

    def __init__(self, size):
        self.size, self.values = size, {}
        self.barrier = threading.Barrier(size, timeout=20)

    def agreement(self, rank):
        def agree(values):
            self.values[rank] = values
            self.barrier.wait()
            most = [max(entries) for entries in zip(*self.values.values())]
            self.barrier.wait()
            return most

        return agree


@pytest.mark.parametrize("every", [1, 5])
@pytest.mark.parametrize("shards", [False, True])
def test_one_rank_is_asked_and_all_stop_at_one_step(tmp_path, every, shards):
    generator = harness.seeded("one rank is asked")
    ranks, runs = Ranks(4), {}
    asked, at = generator.randrange(4), generator.randrange(60)

    def work(rank):
        run = a_run(tmp_path, rank=rank, world_size=4, agree_every=every, shards=shards)
        runs[rank] = run
        run.agree_with(ranks.agreement(rank))
        for step in run.steps(100):
            if (rank, step) == (asked, at):
                run.ask_stop()
            if run.save_due:
                with run.saving() as folder:
                    (folder / ("rank-%d" % rank)).write_text(str(step + 1))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stopped = {run.done for run in runs.values()}
    assert stopped == {(at // every + 1) * every}
    saved = read(tmp_path / "checkpoint")
    files = sorted(path.name for path in saved.folder.iterdir())
    assert files == (["rank-0", "rank-1", "rank-2", "rank-3"] if shards else ["rank-0"])
    assert {(saved / name).read_text() for name in files} == {str(saved.step)}
