"""The adapters, each with the real framework: what is saved at a random step holds the steps done."""

import os
import pickle
import shutil
import signal
import sys
from pathlib import Path

import dormouse_trainer as dormouse
import harness
import pytest
from dormouse_trainer.checkpoints import read

STEPS, SAVES = 160, 50


@pytest.fixture(autouse=True)
def signals():
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def needs(module):
    """The framework; without it a test says so, and fails where DORMOUSE_NO_SKIP is set."""
    if os.environ.get("DORMOUSE_NO_SKIP"):
        return __import__(module)
    return pytest.importorskip(module, reason="scripts/install.sh trainers installs it")


class Asker:
    """Asks for a save in random steps by a signal, and looks in the step after each."""

    def __init__(self, name, folder, counted):
        generator = harness.seeded(name)
        self.asked = set(generator.sample(range(STEPS - 1), SAVES))
        self.folder, self.counted = folder, counted
        self.checked = 0

    def step(self, step):
        """Called within each step, before its end."""
        if step - 1 in self.asked:
            saved = read(self.folder / "checkpoint")
            assert (saved.step, self.counted(saved)) == (step, step)
            self.checked += 1
        if step in self.asked:
            os.kill(os.getpid(), signal.SIGUSR1)


def a_run(folder, **more):
    return dormouse.Run(environ=harness.environment(folder, **more))


def kept(saved):
    return pickle.loads((saved / "state.pickle").read_bytes())


# ── scikit-learn ─────────────────────────────────────────────────────────────────────────────────


def fitted(run, act=lambda step: None):
    import numpy as np
    from dormouse_trainer import sklearn
    from sklearn.linear_model import SGDClassifier

    data = np.random.default_rng(3)
    x, y = data.normal(size=(400, 6)), data.integers(0, 3, size=400)

    def batch_of(step):
        act(step)
        rows = np.random.default_rng((7, step)).integers(0, 400, size=10)
        return x[rows], y[rows]

    return sklearn.partial_fit(run, SGDClassifier(random_state=1), batch_of, STEPS, classes=[0, 1, 2])


def test_sklearn_saves_hold_the_steps_done(tmp_path):
    needs("sklearn")
    # SGD counts the rows it has seen, from 1 on.
    asker = Asker("sklearn", tmp_path, lambda saved: round((kept(saved)["model"].t_ - 1) / 10))
    fitted(a_run(tmp_path), asker.step)
    assert asker.checked == SAVES


def test_sklearn_stopped_and_resumed_is_the_model_of_an_undisturbed_run(tmp_path):
    needs("sklearn")
    whole = fitted(a_run(tmp_path / "whole"))
    at = harness.seeded("sklearn stops").randrange(1, STEPS - 1)
    first = a_run(tmp_path / "1")
    fitted(first, lambda step: first.ask_stop() if step == at else None)
    assert first.done == at + 1
    resumed = fitted(a_run(tmp_path / "2", resume_from=tmp_path / "1" / "checkpoint"))
    assert (resumed.coef_ == whole.coef_).all() and resumed.t_ == whole.t_


# ── XGBoost ──────────────────────────────────────────────────────────────────────────────────────


def boosted(run, act=lambda step: None):
    import numpy as np
    import xgboost
    from dormouse_trainer import xgboost as dx

    data = np.random.default_rng(3)
    x = data.normal(size=(200, 5))
    matrix = xgboost.DMatrix(x, label=x[:, 0] + data.normal(size=200) / 10)

    class Act(xgboost.callback.TrainingCallback):
        def after_iteration(self, model, epoch, evals_log):
            act(run.done)

    params = {"max_depth": 2, "nthread": 1, "seed": 1}
    return dx.train(run, params, matrix, STEPS, callbacks=[Act()], evals=[(matrix, "train")], verbose_eval=False)


def test_xgboost_saves_hold_the_rounds_done(tmp_path):
    xgboost = needs("xgboost")

    def rounds(saved):
        return xgboost.Booster(model_file=str(saved / "model.ubj")).num_boosted_rounds()

    asker = Asker("xgboost", tmp_path, rounds)
    boosted(a_run(tmp_path), asker.step)
    assert asker.checked == SAVES
    assert rounds(read(tmp_path / "checkpoint")) == STEPS
    assert harness.lines(tmp_path)[-1]["train_rmse"] < 1.0


def test_xgboost_stopped_and_resumed_has_every_round_once(tmp_path):
    needs("xgboost")
    whole = boosted(a_run(tmp_path / "whole"))
    at = harness.seeded("xgboost stops").randrange(1, STEPS - 1)
    first = a_run(tmp_path / "1")
    boosted(first, lambda step: first.ask_stop() if step == at else None)
    assert (first.done, first.stopped) == (at + 1, True)
    second = boosted(a_run(tmp_path / "2", resume_from=tmp_path / "1" / "checkpoint"))
    assert second.num_boosted_rounds() == STEPS
    assert second.get_dump() == whole.get_dump()
    finished = a_run(tmp_path / "3", resume_from=tmp_path / "2" / "checkpoint")
    assert boosted(finished).num_boosted_rounds() == STEPS


# ── MXNet ────────────────────────────────────────────────────────────────────────────────────────


def test_mxnet_saves_hold_the_steps_done(tmp_path):
    mx = needs("mxnet")
    from dormouse_trainer import mxnet

    asker = Asker("mxnet", tmp_path, lambda saved: round(float(kept(saved)["arrays"][0][0])))
    run, weights = a_run(tmp_path), mx.nd.zeros((4,))
    mxnet.keep(run, [weights])
    for step in run.steps(STEPS):
        asker.step(step)
        weights += 1
    assert asker.checked == SAVES
    again = a_run(tmp_path / "2", resume_from=tmp_path / "checkpoint")
    restored = mx.nd.zeros((4,))
    mxnet.keep(again, [restored])
    assert float(restored[0].asscalar()) == again.done == STEPS


def mxnet_gang(folder, workers, steps, stop_at, resume_from=None):
    """A scheduler, a server and workers; what the workers print."""
    from test_elastic import free_port

    cluster = {"DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_PS_ROOT_PORT": free_port(), "DMLC_NODE_HOST": "127.0.0.1"}
    cluster.update(DMLC_NUM_WORKER=workers, DMLC_NUM_SERVER=1)
    cluster = {name: str(value) for name, value in cluster.items()}
    serve = [sys.executable, "-c", "import mxnet"]
    helpers = [harness.start(serve, {**cluster, "DMLC_ROLE": role}) for role in ("scheduler", "server")]
    gang = [
        harness.start(
            harness.command("train_mxnet.py", steps, stop_at),
            harness.environment(folder, resume_from, rank, workers, DMLC_ROLE="worker", **cluster),
        )
        for rank in range(workers)
    ]
    ends = [harness.finish(worker).splitlines()[-1] for worker in gang]
    for helper in helpers:
        harness.finish(helper)
    return ends


def test_mxnet_workers_stop_at_one_step_and_go_on_as_three(tmp_path):
    needs("mxnet")
    at = harness.seeded("mxnet gang").randrange(5, 50)
    ends = mxnet_gang(tmp_path / "1", 2, 60, at)
    assert ends == ["rank %d of 2 done %d stopped True" % (rank, at + 1) for rank in range(2)]
    ends = mxnet_gang(tmp_path / "2", 3, 60, -1, resume_from=tmp_path / "1" / "checkpoint")
    assert ends == ["rank %d of 3 done 60 stopped False" % rank for rank in range(3)]


# ── mpi4py ───────────────────────────────────────────────────────────────────────────────────────


def mpi_gang(folder, ranks, steps, *asked, resume_from=None):
    mpiexec = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(mpiexec) if mpiexec.exists() else shutil.which("mpiexec")
    argv = [mpiexec, "-n", str(ranks), *harness.command("train_mpi.py", steps, *asked)]
    env = harness.environment(folder, resume_from)
    # The communicator knows the ranks; hydra's processes share one environment here.
    del env["DORMOUSE_RANK"], env["DORMOUSE_WORLD_SIZE"]
    return sorted(line for line in harness.run(argv, env).splitlines() if line.startswith("rank"))


def test_mpi_saves_hold_the_steps_done_whichever_rank_is_asked(tmp_path):
    needs("mpi4py")
    generator = harness.seeded("mpi saves")
    asked = generator.sample(range(STEPS - 1), SAVES)
    words = ["%d:SIGUSR1:%d" % (generator.randrange(2), step) for step in asked]
    ends = mpi_gang(tmp_path, 2, STEPS, *words)
    assert ends[0] == "rank 0 of 2 done %d stopped False checked %d" % (STEPS, SAVES)


def test_mpi_worlds_of_4_2_and_3_follow_the_loss_of_one(tmp_path):
    needs("mpi4py")
    import numpy as np

    generator = harness.seeded("mpi worlds")
    first, second = sorted(generator.sample(range(1, 119), 2))
    mpi_gang(tmp_path / "whole", 1, 120)
    ends = mpi_gang(tmp_path / "4", 4, 120, "%d:SIGTERM:%d" % (generator.randrange(4), first))
    assert {end.split(" done ")[1] for end in ends} == {"%d stopped True checked 0" % (first + 1)}
    mpi_gang(tmp_path / "2", 2, 120, "1:SIGTERM:%d" % second, resume_from=tmp_path / "4" / "checkpoint")
    ends = mpi_gang(tmp_path / "3", 3, 120, resume_from=tmp_path / "2" / "checkpoint")
    assert ends[2] == "rank 2 of 3 done 120 stopped False checked 0"
    alone = harness.lines(tmp_path / "whole")
    parts = [line for folder in "423" for line in harness.lines(tmp_path / folder)]
    assert [line["step"] for line in parts] == [line["step"] for line in alone] == list(range(1, 121))
    apart = np.array([line["loss"] for line in parts]) - np.array([line["loss"] for line in alone])
    assert np.abs(apart).max() < 1e-5
