"""XGBoost: boosting rounds as steps.

    from dormouse_trainer import xgboost
    booster = xgboost.train(run, {"max_depth": 3}, data, num_boost_round=200)

or, with a call of one's own to `xgboost.train`, `callbacks=[xgboost.Callback(run)]` and
`xgb_model=xgboost.resumed(run)`, for `num_boost_round - run.done` rounds.
"""

from __future__ import annotations

from typing import Optional

import xgboost

from .run import Run

FILE = "model.ubj"


def resumed(run: Run) -> Optional["xgboost.Booster"]:
    """The model of the checkpoint, for `xgb_model=`."""
    return xgboost.Booster(model_file=str(run.resumed / FILE)) if run.resumed else None


class Callback(xgboost.callback.TrainingCallback):
    """Counts rounds, reports the last evaluation, saves when it is due, ends when a stop is agreed.
    `total`: rounds in all, those before a resume included."""

    def __init__(self, run: Run, total: int):
        super().__init__()
        self._run = run
        self._total = total

    def before_training(self, model):
        self._run.begin(self._total)
        return model

    def after_iteration(self, model, epoch, evals_log) -> bool:
        self._run.in_step(**_last(evals_log))
        # XGBoost counts from 0 again after a resume; the run counts on.
        return self._run.step_done(lambda folder: model.save_model(str(folder / FILE)))

    def after_training(self, model):
        self._run.end()
        return model


def train(run: Run, params: dict, data, num_boost_round: int, callbacks=(), **more) -> "xgboost.Booster":
    """`xgboost.train` to `num_boost_round` rounds in all, from the checkpoint if there is one."""
    before = resumed(run)
    left = num_boost_round - run.done
    if left <= 0:
        return before
    return xgboost.train(
        params, data, left, xgb_model=before, callbacks=[*callbacks, Callback(run, num_boost_round)], **more
    )


def _last(evals_log) -> dict:
    return {
        "%s_%s" % (name, metric): values[-1] if not isinstance(values[-1], tuple) else values[-1][0]
        for name, metrics in evals_log.items()
        for metric, values in metrics.items()
    }
