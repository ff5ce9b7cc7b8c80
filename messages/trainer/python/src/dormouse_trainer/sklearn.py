"""scikit-learn: models that learn by `partial_fit`.

    from dormouse_trainer import sklearn
    model = sklearn.partial_fit(run, SGDClassifier(), batch_of, total=500, classes=range(10))
"""

from __future__ import annotations

from typing import Any, Callable, Tuple

from .run import Run


def partial_fit(run: Run, model: Any, batch_of: Callable[[int], Tuple], total: int, **fit) -> Any:
    """Fits `model` on `batch_of(step)` for each step; `fit` goes to every `partial_fit`, such as `classes`.
    On a resume, `model` goes on from the checkpoint."""
    run.keep(model=model)
    for step in run.steps(total):
        model.partial_fit(*batch_of(step), **fit)
    return model
