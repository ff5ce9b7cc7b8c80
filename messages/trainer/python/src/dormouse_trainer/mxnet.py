"""MXNet: the workers of a parameter server (kvstore `dist_sync`) agree through a key of their own.

    run = dormouse.Run()                     # before `import mxnet`
    import mxnet as mx
    from dormouse_trainer import mxnet
    store = mx.kv.create("dist_sync")
    mxnet.agree(run, store)
    mxnet.keep(run, parameters)              # NDArrays, or the parameters of a gluon block
"""

from __future__ import annotations

from typing import Iterable, List, Sequence

from .run import Run

# Far from the keys that a program numbers itself.
_KEY = 1_000_003
# More entries than ranks agree on: a key keeps its length.
_ENTRIES = 8


def agree(run: Run, store, key: int = _KEY) -> None:
    """Lets the workers of `store` agree. No optimizer may be set on it for this key: what is pulled is then the
    sum of what all workers pushed."""
    import mxnet as mx

    # The executor's rank, not store.rank: the scheduler numbers workers in the order in which they come.
    run.world_size = store.num_workers
    store.init(key, mx.nd.zeros(_ENTRIES))
    total = mx.nd.zeros(_ENTRIES)

    def agreement(values: List[float]) -> Sequence[float]:
        store.push(key, mx.nd.array(values + [0.0] * (_ENTRIES - len(values))))
        store.pull(key, out=total)
        return [float(value) for value in total.asnumpy()[: len(values)]]

    # A store of one process keeps the last value; one of several sums.
    if store.num_workers > 1 or "dist" in store.type:
        run.agree_with(agreement)


class Arrays:
    """NDArrays as one thing that can be kept."""

    def __init__(self, arrays: Iterable):
        # Parameters of gluon blocks hold their array.
        self._arrays = [array.data() if hasattr(array, "list_data") else array for array in arrays]

    def state_dict(self) -> list:
        return [array.asnumpy() for array in self._arrays]

    def load_state_dict(self, state: list) -> None:
        for array, values in zip(self._arrays, state):
            array[:] = values


def keep(run: Run, arrays: Iterable) -> None:
    """Saves NDArrays (or the values of `block.collect_params()`), and restores them on a resume."""
    run.keep(arrays=Arrays(arrays))
