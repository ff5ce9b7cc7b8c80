"""PyTorch: a batch that follows the ranks, in the example of the digits. `make trainers-all` runs it."""

import sys

import harness
import pytest
import torch
from test_batch import BOUNDS
from test_elastic import free_port

PROGRAM = harness.HERE.parents[3] / "deploy" / "examples" / "train_torch.py"


def digits(folder, ranks, steps=3000, resume_from=None, stop=False, batch=32, **bounds):
    """The last line of progress and the steps taken."""
    port, processes = free_port(), []
    for rank in range(ranks):
        cluster = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": 0}
        env = harness.environment(folder, resume_from, rank, ranks, GLOO_SOCKET_IFNAME="lo", **cluster, **bounds)
        arguments = ["--steps", steps, "--hidden", 32, "--batch", batch, "--learning-rate", 0.1]
        processes.append(harness.start([sys.executable, str(PROGRAM), *map(str, arguments)], env))
    if stop:
        harness.await_that("progress", lambda: harness.lines(folder) and harness.lines(folder)[-1]["step"] > 300)
        processes[-1].terminate()
    outputs = [harness.finish(process).splitlines() for process in processes]
    taken = next(int(line.split()[-2]) for line in outputs[0] if line.startswith("train_torch:"))
    return harness.lines(folder)[-1], taken


def test_the_digits_come_to_the_same_accuracy_in_fewer_steps(tmp_path):
    fixed, all_steps = digits(tmp_path / "fixed", 2)
    elastic, taken = digits(tmp_path / "elastic", 2, **BOUNDS)
    assert all_steps == 3000 and fixed["step"] == elastic["step"] == 3000
    assert fixed["accuracy"] > 0.98
    assert abs(fixed["accuracy"] - elastic["accuracy"]) <= 0.01
    assert taken < 1500


def test_a_resume_with_other_ranks_comes_to_the_same_accuracy(tmp_path):
    first, before = digits(tmp_path / "2", 2, steps=4000, stop=True, **BOUNDS)
    assert first["step"] < 4000
    last, taken = digits(tmp_path / "3", 3, steps=4000, resume_from=tmp_path / "2" / "checkpoint", **BOUNDS)
    assert (last["step"], last["workers"]) == (4000, 3)
    assert last["accuracy"] > 0.98 and before < taken < 2000


@pytest.mark.parametrize("batch", [32, 2])
def test_a_fixed_batch_gives_the_same_loss_for_any_number_of_ranks(tmp_path, batch):
    """Also where the shares are not equal, and where a rank has no sample."""
    losses = [digits(tmp_path / str(ranks), ranks, 60, batch=batch)[0]["loss"] for ranks in (1, 3)]
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)


def test_a_rank_alone_sees_the_noise_between_two_halves():
    import dormouse_trainer as dormouse
    from dormouse_trainer import torch as dormouse_torch

    run = dormouse.Run(environ={name: str(value) for name, value in BOUNDS.items()}, signals=False)
    batch, model = run.batch_of(32), torch.nn.Linear(50, 1, bias=False, dtype=torch.float64)
    torch.manual_seed(harness.seeded("halves").randrange(1 << 32))
    torch.nn.init.zeros_(model.weight)

    def loss_of(part):
        # The gradient is the mean of what is drawn: ones, with a deviation of 10. φ is 100.
        return model(1.0 + 10.0 * torch.randn(len(part), 50, dtype=torch.float64)).mean()

    halves = 0
    for _ in run.steps(6000):
        halves += len(batch.parts) == 2
        dormouse_torch.backward(run, model, (loss_of(part) for part in batch.parts))
        assert model.weight.grad.shape == (1, 50)
    assert halves > 100
    assert batch.noise_scale == pytest.approx(100.0, rel=0.4)
