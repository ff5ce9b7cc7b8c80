"""The elastic batch: what it measures, what it chooses, how steps count, and that all ranks have the same."""

import json
import math
import signal
import sys
import threading

import dormouse_trainer as dormouse
import harness
import numpy as np
import pytest
from dormouse_trainer.batch import FILE
from dormouse_trainer.checkpoints import read
from dormouse_trainer.goodput import Line, Times, best, goodput
from dormouse_trainer.noise import ENOUGH, Noise, gain
from test_elastic import Agents, free_port
from test_run import Ranks, signals  # noqa: F401

BOUNDS = {"DORMOUSE_BATCH_MIN": 32, "DORMOUSE_BATCH_MAX": 512}
BAD_BOUNDS = [{"MIN": 8}, {"MAX": 8}, {"MIN": 9, "MAX": 8}, {"MIN": 0, "MAX": 8}, {"MIN": "x", "MAX": 8}]
EXAMPLE = harness.HERE.parents[3] / "deploy" / "examples" / "train_world.py"


def a_run(folder, resume_from=None, rank=0, world_size=1, bounds=BOUNDS, **options):
    env = harness.environment(folder, resume_from, rank, world_size, **bounds)
    return dormouse.Run(environ=env, signals=False, **options)


class Clock:
    """Seconds that steps take; a step of a rank takes 10 ms, and 0.1 ms a sample."""

    def __init__(self, batch):
        self._batch, self._now_s = batch, 0.0
        batch._clock = lambda: self._now_s

    def step(self):
        self._now_s += 0.01 + 0.0001 * self._batch.share


def observe(batch, noise_scale, times=1):
    """Expected squares, as if there were four parts."""
    for _ in range(times):
        batch.observe(1.0 + noise_scale / (batch.size / 4), 1.0 + noise_scale / batch.size, parts=4)


# ── noise and gain ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("ranks, share, scale", [(2, 16, 100.0), (4, 8, 400.0), (8, 64, 50.0)])
def test_the_noise_of_synthetic_gradients_is_found(ranks, share, scale):
    generator = np.random.default_rng(harness.seeded("noise").randrange(1 << 32))
    features = 4000
    true = generator.normal(size=features)
    deviation = math.sqrt(scale * float(true @ true) / features / share)
    noise = Noise()
    for step in range(400):
        assert (noise.scale is None) == (step < ENOUGH)
        parts = true + generator.normal(0.0, deviation, size=(ranks, features))
        mean = parts.mean(axis=0)
        noise.observe(share, float((parts * parts).sum() / ranks), ranks * share, float(mean @ mean))
    assert noise.scale == pytest.approx(scale, rel=0.15)


def test_noise_that_cannot_be_told_is_passed_over_or_infinite():
    noise = Noise()
    noise.observe(32, 1.0, 32, 1.0)
    noise.observe(16, math.nan, 32, 1.0)
    noise.observe(16, math.inf, 32, 1.0)
    assert noise.observations == 0
    for _ in range(ENOUGH):
        noise.observe(16, 1.0, 32, 0.4)
    assert noise.scale == math.inf, "no gradient is left"
    for _ in range(200):
        noise.observe(16, 1.0, 32, 1.1)
    assert noise.scale == 0.0, "a larger batch has no smaller square"


def test_the_gain_is_that_of_adascale():
    assert gain(None, 32, 512) == 1.0
    assert gain(300.0, 32, 32) == 1.0
    assert gain(0.0, 32, 512) == 1.0
    assert gain(math.inf, 32, 512) == 16.0
    # AdaScale: (σ² + μ²) ÷ (σ² ÷ S + μ²), σ² the variance at the smallest batch, S the scale.
    variance, square, scale = 7.0, 0.5, 4.0
    expected = (variance + square) / (variance / scale + square)
    assert gain(32 * variance / square, 32, 128) == pytest.approx(expected)
    # Pollux: efficiency (φ + b) ÷ (φ + B).
    assert gain(300.0, 32, 128) * 32 / 128 == pytest.approx((300.0 + 32) / (300.0 + 128))


# ── the choice ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("scale", [20.0, 400.0, 5000.0])
@pytest.mark.parametrize("world", [1, 4])
def test_the_choice_comes_within_three_percent_of_the_best(scale, world):
    line = Line(0.01, 0.0001)
    of = lambda size: gain(scale, 32, size)
    least, most = -(-32 // world), 2048 // world
    found = best(line, of, world, least, most)
    top = max(goodput(line, of, world, share) for share in range(least, most + 1))
    assert goodput(line, of, world, found) >= 0.97 * top
    assert least <= found <= most


def test_times_are_fitted_by_their_medians():
    times = Times()
    assert times.line(2) is None and times.nearest(2) is None
    for share in (16, 32, 64):
        for wrong in (1.0, 1.0, 1.0, 9.0, 1.0):
            times.add(2, share, (0.02 + 0.001 * share) * wrong)
    line = times.line(2)
    assert (line.fixed_s, line.sample_s) == pytest.approx((0.02, 0.001))
    assert times.nearest(5) == 2
    again = Times()
    again.load_state_dict(json.loads(json.dumps(times.state_dict())))
    assert again.line(2) == line


def test_times_that_make_no_sense_give_no_negative_line():
    for small, large in ((0.02, 0.01), (0.01, 0.04)):
        times = Times()
        times.add(1, 10, small)
        times.add(1, 20, large)
        assert min(times.line(1)) >= 0.0


def test_it_stays_until_the_noise_is_known_and_goes_to_the_best(tmp_path):
    run = a_run(tmp_path)
    batch = run.batch_of(120)
    clock, sizes = Clock(batch), []
    for _ in run.steps(3000):
        sizes.append(batch.size)
        if len(sizes) > 30:
            observe(batch, 400.0)
        clock.step()
    assert set(sizes[:40]) == {32}, "the noise is not known"
    assert sorted(set(sizes)) == list(dict.fromkeys(sizes)), "it grows, and does not go back and forth"
    assert sizes[sizes.index(64) - 1] == 32, "first twice the share"
    # √(φ · α ÷ β) = 200 is the best size; a change for less than 5 % is not made.
    line, of = Line(0.01, 0.0001), lambda size: gain(400.0, 32, size)
    assert goodput(line, of, 1, sizes[-1]) >= 0.93 * goodput(line, of, 1, 200)
    assert all(later <= 2 * former for former, later in zip(sizes, sizes[1:]))
    assert run.batch.efficiency == pytest.approx((400.0 + 32) / (400.0 + sizes[-1]), rel=0.05)


def test_linear_scaling_needs_no_noise_and_heeds_the_share(tmp_path):
    for share_max, expected in ((0, 512), (100, 100), (10, 32)):
        run = a_run(tmp_path)
        batch = run.batch_of(120, linear=True, share_max=share_max)
        clock = Clock(batch)
        for _ in run.steps(3000):
            assert batch.efficiency == pytest.approx(1.0)
            clock.step()
        assert batch.size == expected
        assert (batch.gain, len(batch.parts)) == (expected / 32, 1)


def test_bounds_without_a_multiple_of_the_ranks_have_unequal_shares(tmp_path):
    bounds = {"DORMOUSE_BATCH_MIN": 64, "DORMOUSE_BATCH_MAX": 65}
    batches = [a_run(tmp_path, rank=rank, world_size=3, bounds=bounds).batch_of(9) for rank in range(3)]
    assert [(batch.rows.start, batch.rows.stop) for batch in batches] == [(0, 21), (21, 42), (42, 64)]
    assert [batch.gain for batch in batches] == [1.0] * 3


# ── counting ─────────────────────────────────────────────────────────────────────────────────────


def test_a_step_counts_as_its_gain_and_the_rest_is_carried(tmp_path):
    run = a_run(tmp_path, save_every=10, report_every_s=0.0)
    batch = run.batch_of(120)
    done, saved, total_gain = [], [], 0.0
    state = {"taken": 0}
    run.keep(state=state)
    for step in run.steps(103):
        done.append(step)
        if (tmp_path / "checkpoint" / "checkpoint.json").exists():
            saved.append(read(tmp_path / "checkpoint").step)
        if step == 5:
            batch.agreed([100.0, 2.5])
            batch._wanted = 100
            batch._gain_at = lambda size: 2.5 if size == 100 else 1.0
        total_gain += batch.gain
        assert step == math.floor(total_gain - batch.gain)
        state["taken"] += 1
    assert done[:9] == [0, 1, 2, 3, 4, 5, 6, 8, 11]
    assert run.done == 103 and state["taken"] == batch.taken
    assert [at // 10 for at in dict.fromkeys(saved)] == list(range(1, 11)), "one save for each ten steps"
    assert batch.seen == 6 * 32 + (batch.taken - 6) * 100
    lines = harness.lines(tmp_path)
    assert lines[0] == {"step": 1, "steps_total": 103, "batch": 32, "efficiency": 1.0}
    assert lines[-1] == {"step": 103, "steps_total": 103, "batch": 100, "efficiency": 0.8}


def test_without_bounds_the_batch_is_the_programs_and_nothing_changes(tmp_path):
    run = a_run(tmp_path, world_size=7, rank=3, bounds={}, report_every_s=0.0)
    batch = run.batch_of(120, linear=True)
    assert len(run.wishes()) == 3
    for step in run.steps(4):
        observe(batch, 400.0)
        rows = range(120 * step + 120 * 3 // 7, 120 * step + 120 * 4 // 7)
        assert (batch.size, batch.gain, batch.rows, batch.parts) == (120, 1.0, rows, [rows])
    coordinator = a_run(tmp_path / "coordinator", bounds={}, report_every_s=0.0)
    coordinator.batch_of(120)
    coordinator.keep(state={})
    for _ in coordinator.steps(2):
        coordinator.report(loss=1.0)
    assert harness.lines(tmp_path / "coordinator") == [{"step": n, "steps_total": 2, "loss": 1.0} for n in (1, 2)]
    assert not (read(tmp_path / "coordinator" / "checkpoint") / FILE).exists()


def test_bounds_of_which_the_program_knows_nothing_change_nothing(tmp_path):
    run = a_run(tmp_path)
    assert len(run.wishes()) == 3
    assert list(run.steps(3)) == [0, 1, 2]
    assert harness.lines(tmp_path)[-1] == {"step": 3, "steps_total": 3}


def test_a_gradient_is_wanted_for_each_part(tmp_path):
    batch = a_run(tmp_path).batch_of(120)
    assert [len(part) for part in batch.parts] == [16, 16]
    with pytest.raises(ValueError, match="2 parts on this rank, and 1 were given"):
        batch.average(np.ones(3), sum)
    assert batch.average([np.ones(3), np.full(3, 2.0)], sum).tolist() == [1.5] * 3
    fixed = a_run(tmp_path, bounds={}).batch_of(120)
    assert fixed.average(np.ones(3), sum).tolist() == [1.0] * 3


@pytest.mark.parametrize("bounds", BAD_BOUNDS)
def test_bad_bounds_are_told(tmp_path, bounds):
    with pytest.raises(ValueError, match="DORMOUSE_BATCH_MIN"):
        a_run(tmp_path, bounds={"DORMOUSE_BATCH_" + name: value for name, value in bounds.items()})


def test_a_world_larger_than_the_batch_is_told(tmp_path):
    batch = a_run(tmp_path, world_size=9, bounds={"DORMOUSE_BATCH_MIN": 1, "DORMOUSE_BATCH_MAX": 8}).batch_of(9)
    with pytest.raises(ValueError, match="9 ranks share a batch of at most 8"):
        batch.size
    with pytest.raises(ValueError, match="at least 1"):
        a_run(tmp_path, bounds={}).batch_of(0)


# ── saved and resumed ────────────────────────────────────────────────────────────────────────────


def train(run, steps, stop_at=None):
    """Sizes, gains and rows of all steps."""
    batch = run.batch_of(120)
    clock, seen = Clock(batch), []
    run.keep(state={})
    for step in run.steps(steps):
        seen.append((step, batch.size, batch.gain, batch.rows))
        observe(batch, 400.0)
        clock.step()
        if stop_at is not None and len(seen) == stop_at:
            run.ask_stop()
    return seen


def test_a_resume_goes_on_as_if_nothing_had_been(tmp_path):
    stop_at = harness.seeded("a resume").randrange(30, 90)
    whole = train(a_run(tmp_path / "whole"), 400)
    first = train(a_run(tmp_path / "1"), 400, stop_at)
    resumed = a_run(tmp_path / "2", tmp_path / "1" / "checkpoint")
    second = train(resumed, 400)
    assert first == whole[:stop_at]
    assert second[0][0] == read(tmp_path / "1" / "checkpoint").step
    assert second[0] == whole[stop_at], "size, gain, carry and samples"
    assert [rows.start for *_, rows in second[1:]] == [rows.stop for *_, rows in second[:-1]], "no sample twice"
    assert resumed.batch.taken == stop_at + len(second)
    assert second[-1][1] == whole[-1][1]


def test_another_world_begins_with_what_was_measured(tmp_path):
    train(a_run(tmp_path / "1"), 1500)
    former = read(tmp_path / "1" / "checkpoint")
    size = json.loads((former / FILE).read_text())["size"]
    batches = [a_run(tmp_path, tmp_path / "1" / "checkpoint", rank, 3).batch_of(120) for rank in range(3)]
    assert len({(batch.size, batch.gain) for batch in batches}) == 1
    # √(φ · 3 α ÷ β) = 346 is the best size, though no world of three was measured.
    assert size < batches[0].size and 250 <= batches[0].size <= 400 and batches[0].size % 3 == 0
    assert [batch.rows.start for batch in batches[1:]] == [batch.rows.stop for batch in batches[:-1]]
    assert batches[0].noise_scale == pytest.approx(400.0)


def test_a_checkpoint_without_a_batch_and_other_bounds(tmp_path):
    run = a_run(tmp_path / "1", bounds={})
    train(run, 50)
    batch = a_run(tmp_path / "2", tmp_path / "1" / "checkpoint").batch_of(120)
    assert (batch.size, batch.seen, batch.taken) == (32, 50 * 32, 50)
    train(a_run(tmp_path / "3"), 1500)
    bounds = {"DORMOUSE_BATCH_MIN": 16, "DORMOUSE_BATCH_MAX": 40}
    batch = a_run(tmp_path / "4", tmp_path / "3" / "checkpoint", bounds=bounds).batch_of(120)
    assert 16 <= batch.size <= 40 and batch.noise_scale == pytest.approx(400.0)


def test_a_program_that_writes_its_own_files_keeps_the_batch_too(tmp_path):
    run = a_run(tmp_path, save_every=10)
    run.batch_of(120)
    for _ in run.steps(25):
        if run.save_due:
            with run.saving() as folder:
                (folder / "model").write_text("model")
    assert json.loads((read(tmp_path / "checkpoint") / FILE).read_text())["seen"] == 25 * 32


# ── many ranks ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("every", [1, 7])
@pytest.mark.parametrize("shards", [False, True])
def test_all_ranks_have_one_size_in_each_step(tmp_path, every, shards):
    generator = harness.seeded("ranks of a batch")
    ranks, seen, ends = Ranks(3), {}, {}
    asked, at = generator.randrange(3), generator.randrange(200, 600)

    def work(rank):
        run = a_run(tmp_path, rank=rank, world_size=3, agree_every=every, shards=shards, save_every=100)
        run.agree_with(ranks.agreement(rank))
        batch = run.batch_of(120)
        run.keep(state={})
        clock, seen[rank] = Clock(batch), []
        for step in run.steps(5000):
            seen[rank].append((step, batch.size, batch.gain, batch.seen))
            # What a rank sees itself is not what the others see.
            observe(batch, 400.0 * (1 + rank))
            clock.step()
            if rank == asked and step >= at:
                run.ask_stop()
        ends[rank] = (run.done, batch.seen, batch.taken)

    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen[0] == seen[1] == seen[2] and len(set(ends.values())) == 1
    assert len({size for _, size, _, _ in seen[0]}) > 2
    assert read(tmp_path / "checkpoint").step == ends[0][0] >= at


def gang(folder, program, ranks, *arguments, **more):
    """Ranks as processes; what each printed."""
    ports = [free_port() for _ in range(ranks)]
    peers = ",".join("127.0.0.1:%d" % port for port in ports)
    more = {"DORMOUSE_PEERS": peers, **more}
    environments = [harness.environment(folder, None, rank, ranks, **more) for rank in range(ranks)]
    processes = [harness.start([sys.executable, str(program), *map(str, arguments)], env) for env in environments]
    return [harness.finish(process).splitlines() for process in processes]


def steps_of(output):
    return [json.loads(line[len("step ") :]) for line in output if line.startswith("step ")]


def assert_no_sample_is_lost(by_rank):
    """All ranks have one size and gain in a step, and the samples follow each other."""
    next_row, by_step = 0, {}
    for line in (line for lines in by_rank for line in lines):
        by_step.setdefault(line["step"], []).append(line)
    for step in sorted(by_step):
        lines = sorted(by_step[step], key=lambda line: line["rank"])
        assert len({(line["size"], line["gain"], line["of"]) for line in lines}) == 1, lines
        assert [line["rank"] for line in lines] == list(range(lines[0]["of"])), lines
        for line in lines:
            assert line["rows"][0] == next_row, line
            next_row = line["rows"][1]
        assert 24 <= lines[0]["size"] <= 200 and lines[0]["size"] % len(lines) == 0
    return next_row


SMALL = {"DORMOUSE_BATCH_MIN": 24, "DORMOUSE_BATCH_MAX": 200}


@pytest.mark.parametrize("ranks, agree_every", [(1, 1), (2, 1), (3, 5)])
def test_processes_have_one_size_in_each_step(tmp_path, ranks, agree_every):
    outputs = gang(tmp_path, harness.PROGRAMS / "train_batch.py", ranks, 1000, 2, agree_every, **SMALL)
    by_rank = [steps_of(output) for output in outputs]
    rows = assert_no_sample_is_lost(by_rank)
    assert {output[-1].split(" done ")[1] for output in outputs} == {"1000 seen %d left False stopped False" % rows}
    assert len({line["size"] for line in by_rank[0]}) > 1 and len(by_rank[0]) < 1000
    assert all({"batch", "efficiency"} <= set(line) for line in harness.lines(tmp_path))


class BatchAgents(Agents):
    """Agents of a job with an elastic batch."""

    def environment(self, member):
        return {**super().environment(member), **{name: str(value) for name, value in SMALL.items()}}

    def start(self, *members):
        self.arguments = (*self.arguments[:2], 1)
        super().start(*members)


def test_members_who_come_and_go_have_the_coordinators_batch(tmp_path):
    many = BatchAgents(tmp_path, 3000, 5, program="train_batch.py")
    try:
        many.begin("a", "b")
        many.await_step(200)
        many.grow("c")
        many.await_step(many.step() + 200)
        gone = many.processes["b"]
        many.generation += 1
        many.announce(["a", "c"], leaving=["b"])
        many.await_ack(["b"], "left")
        outputs = [harness.finish(many.processes.pop("b"))]
        assert gone.returncode == 0
        outputs += many.finish()
    finally:
        for process in many.processes.values():
            process.kill()
            process.communicate()
    rows = assert_no_sample_is_lost([steps_of(output.splitlines()) for output in outputs])
    worlds = {line["of"] for output in outputs for line in steps_of(output.splitlines())}
    assert worlds == {2, 3}
    assert "done 3000 seen %d " % rows in outputs[-1]


def test_a_member_that_dies_loses_no_sample(tmp_path):
    generator = harness.seeded("a member of a batch dies")
    many = BatchAgents(tmp_path, 2000, 5, program="train_batch.py")
    try:
        many.begin("a", "b", "c")
        many.await_step(generator.randrange(50, 600))
        many.processes["b"].kill()
        harness.finish(many.processes.pop("b"), -signal.SIGKILL)
        many.generation += 1
        many.announce(["a", "c"], cause="lost")
        many.await_ack(["a", "c"], "joined")
        coordinator, other = (steps_of(output.splitlines()) for output in many.finish())
    finally:
        for process in many.processes.values():
            process.kill()
            process.communicate()
    starts = [line["rows"][0] for line in coordinator]
    taken = np.cumsum([line["size"] for line in coordinator])
    assert starts == [0, *taken[:-1]], "no sample is lost, none is taken twice"
    sizes = {line["step"]: (line["size"], line["gain"]) for line in coordinator}
    assert all(sizes[line["step"]] == (line["size"], line["gain"]) for line in other)


# ── real training ────────────────────────────────────────────────────────────────────────────────


def digits(folder, ranks, **bounds):
    """The last line of progress, and steps taken, of the digits trained by two ranks."""
    arguments = ("--steps", 3000, "--hidden", 32, "--batch", 32, "--learning-rate", 0.1)
    outputs = gang(folder, EXAMPLE, ranks, *arguments, **bounds)
    taken = next(int(line.split()[-2]) for line in outputs[0] if line.startswith("train_world:"))
    return harness.lines(folder)[-1], taken


def test_the_digits_come_to_the_same_accuracy_in_fewer_steps(tmp_path):
    fixed, all_steps = digits(tmp_path / "fixed", 2)
    elastic, taken = digits(tmp_path / "elastic", 2, **BOUNDS)
    assert all_steps == 3000 and fixed["step"] == elastic["step"] == 3000
    assert fixed["accuracy"] > 0.98
    assert abs(fixed["accuracy"] - elastic["accuracy"]) <= 0.01
    assert taken < 1500, "fewer steps, each of more samples"
    assert elastic["batch"] > 32
