"""What the example programs share: where the trainer's library is, their arguments, their data and their model.

Standard library only, and imported before the framework, so that a signal during a slow import is not lost.
"""

import argparse
import os
import sys
import time
from pathlib import Path

# The library of this repository, also where it is not installed.
_LIBRARY = Path(__file__).resolve().parents[2] / "messages" / "trainer" / "python" / "src"
if _LIBRARY.is_dir():
    sys.path.insert(0, str(_LIBRARY))

import dormouse_trainer

# One thread a process: the partition's size decides the parallelism, not the machine's.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

DATA = Path(__file__).resolve().parent / "data" / "digits.npz"


def begin(program, options, **more):
    """The run; before the framework is imported."""
    run = dormouse_trainer.Run(save_every=options.checkpoint_every, echo=True, **more)
    if options.resume and not run.resumed:
        sys.exit("%s: --resume, but DORMOUSE_RESUME_FROM is not set" % program)
    return run


def arguments(description, **defaults):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=defaults.get("steps", 500))
    parser.add_argument(
        "--step-ms",
        type=float,
        default=0.0,
        help="extra work of one step in milliseconds of one container: a sleep, shared by the workers",
    )
    parser.add_argument(
        "--exchange-ms", type=float, default=0.0, help="extra time of one step that the workers do not share: a sleep"
    )
    parser.add_argument(
        "--batch", type=int, default=120, help="the global batch, whatever the number of workers, where no document sets it"
    )
    parser.add_argument("--learning-rate", type=float, default=defaults.get("learning_rate", 0.05))
    parser.add_argument("--hidden", type=int, default=0, help="units of a hidden layer; 0: softmax regression")
    parser.add_argument("--checkpoint-every", type=int, default=0, metavar="STEPS", help="also save now and then")
    parser.add_argument("--resume", action="store_true", help="insist on a checkpoint to resume from")
    return parser


def pause(options, world_size, size=None):
    """The extra work of one step: of the whole batch, or of `size` samples."""
    shared_ms = options.step_ms / world_size * (1.0 if size is None else size / options.batch)
    if shared_ms + options.exchange_ms > 0:
        time.sleep((shared_ms + options.exchange_ms) / 1000.0)


def load_digits():
    import numpy as np

    with np.load(DATA) as data:
        return data["x"].astype(np.float32) / 16.0, data["y"].astype(np.int64)


def batch_of(step, batch, total):
    """The step's global batch: the same rows for any number of workers, so that a resize does not show in the loss."""
    import numpy as np

    return np.random.default_rng((7, step)).integers(0, total, size=batch)


def samples(numbers, batch, total):
    """Rows of samples by their numbers, counted over the whole training: the rows of [`batch_of`] in their order."""
    import numpy as np

    blocks = range(numbers.start // batch, (numbers.stop - 1) // batch + 1) if numbers else []
    rows = [batch_of(block, batch, total) for block in blocks]
    first = numbers.start // batch * batch
    return np.concatenate([np.empty(0, dtype=np.int64), *rows])[numbers.start - first : numbers.stop - first]


def initial(hidden, features=64, classes=10):
    """Weights and biases of each layer, the same in every worker."""
    import numpy as np

    generator = np.random.default_rng(11)
    sizes = [features, classes] if hidden == 0 else [features, hidden, classes]
    parameters = []
    for rows, columns in zip(sizes, sizes[1:]):
        parameters.append(generator.normal(0, rows**-0.5, size=(rows, columns)).astype(np.float32))
        parameters.append(np.zeros(columns, dtype=np.float32))
    return parameters


def gradient(parameters, x, y):
    """Sum over the rows of the cross-entropy's gradient, for softmax regression or one tanh layer."""
    import numpy as np

    if len(y) == 0:
        return [np.zeros_like(parameter) for parameter in parameters]
    hidden = np.tanh(x @ parameters[0] + parameters[1]) if len(parameters) == 4 else x
    logits = hidden @ parameters[-2] + parameters[-1]
    error = np.exp(logits - logits.max(axis=1, keepdims=True))
    error /= error.sum(axis=1, keepdims=True)
    error[np.arange(len(y)), y] -= 1.0
    top = [hidden.T @ error, error.sum(axis=0)]
    if len(parameters) == 2:
        return top
    back = (error @ parameters[2].T) * (1.0 - hidden**2)
    return [x.T @ back, back.sum(axis=0)] + top


def evaluate(parameters, x, y):
    """Mean cross-entropy and accuracy over all data."""
    import numpy as np

    hidden = x
    for weight, bias in zip(parameters[:-2:2], parameters[1:-2:2]):
        hidden = np.tanh(hidden @ weight + bias)
    logits = hidden @ parameters[-2] + parameters[-1]
    logits = logits - logits.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(logits).sum(axis=1))
    loss = float((log_sum - logits[np.arange(len(y)), y]).mean())
    return {"loss": round(loss, 6), "accuracy": round(float((logits.argmax(axis=1) == y).mean()), 4)}
