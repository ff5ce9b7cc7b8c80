"""What every example program shares: its place in the gang, signals, checkpoints, progress.

The protocol is the environment: DORMOUSE_RANK, DORMOUSE_WORLD_SIZE, DORMOUSE_PROGRESS (a file to append
JSON lines to), DORMOUSE_CHECKPOINT_DIR (where this incarnation saves), DORMOUSE_RESUME_FROM (where an earlier
one saved). A checkpoint is complete when `checkpoint.json` is there: it is written last, by a rename.

Standard library only, and imported before the framework, so that a signal during a slow import is not lost.
"""

import argparse
import json
import os
import signal
import time

# One thread a process: the partition's size decides the parallelism, not the machine's.
for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

RANK = int(os.environ.get("DORMOUSE_RANK", "0"))
WORLD_SIZE = int(os.environ.get("DORMOUSE_WORLD_SIZE", "1"))
DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "data", "digits.npz")
MANIFEST = "checkpoint.json"


class Signals:
    """SIGTERM asks to save and end, SIGUSR1 to save and run on. The training loop looks when it likes."""

    def __init__(self):
        self.stop = False
        self.save = False
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGUSR1, self._on_usr1)

    def _on_term(self, _number, _frame):
        self.stop = True

    def _on_usr1(self, _number, _frame):
        self.save = True

    @staticmethod
    def ignore():
        """At the end. Another member's agent may be slower than the agreement, and Python resets its handlers as it ends:
        a late SIGTERM would kill this process while the others wait for its good-bye."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)


class Checkpoints:
    """Saves into this incarnation's directory, loads from the one to resume from."""

    def __init__(self):
        self.directory = os.environ.get("DORMOUSE_CHECKPOINT_DIR")
        self.resume_from = os.environ.get("DORMOUSE_RESUME_FROM")
        self._last = None

    def save(self, step, write):
        """`write(file)` writes the model's bytes to an open file."""
        if not self.directory:
            return
        os.makedirs(self.directory, exist_ok=True)
        name = "step-%08d.npz" % step
        path = os.path.join(self.directory, name)
        size = _write_then_rename(path, write)
        manifest = json.dumps({"step": step, "bytes": size, "file": name}).encode()
        _write_then_rename(os.path.join(self.directory, MANIFEST), lambda file: file.write(manifest))
        if self._last not in (None, name):
            os.remove(os.path.join(self.directory, self._last))
        self._last = name

    def load(self):
        """(step, path) of the checkpoint to resume from, or None for a fresh start."""
        if not self.resume_from:
            return None
        with open(os.path.join(self.resume_from, MANIFEST), encoding="utf-8") as file:
            manifest = json.load(file)
        return manifest["step"], os.path.join(self.resume_from, manifest["file"])


def _write_then_rename(path, write):
    temporary = path + ".tmp"
    with open(temporary, "wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)
    return os.path.getsize(path)


class Progress:
    """Appends a line at most once in `every_s`, and always the last one."""

    def __init__(self, steps_total, every_s=1.0):
        self._path = os.environ.get("DORMOUSE_PROGRESS")
        self._steps_total = steps_total
        self._every_s = every_s
        self._next_s = 0.0

    def due(self, step):
        return RANK == 0 and (step >= self._steps_total or time.monotonic() >= self._next_s)

    def report(self, step, **metrics):
        self._next_s = time.monotonic() + self._every_s
        line = json.dumps({"step": step, "steps_total": self._steps_total, **metrics})
        print(line, flush=True)
        if self._path:
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(line + "\n")


def arguments(description, **defaults):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--steps", type=int, default=defaults.get("steps", 500))
    parser.add_argument(
        "--step-ms",
        type=float,
        default=0.0,
        help="extra work of one step in milliseconds of one container: a sleep, shared by the workers",
    )
    parser.add_argument("--batch", type=int, default=120, help="the global batch, whatever the number of workers")
    parser.add_argument("--learning-rate", type=float, default=defaults.get("learning_rate", 0.05))
    parser.add_argument("--hidden", type=int, default=0, help="units of a hidden layer; 0: softmax regression")
    parser.add_argument("--checkpoint-every", type=int, default=0, metavar="STEPS", help="also save now and then")
    parser.add_argument("--resume", action="store_true", help="insist on a checkpoint to resume from")
    return parser


def pause(step_ms, world_size=WORLD_SIZE):
    if step_ms > 0:
        time.sleep(step_ms / 1000.0 / world_size)


def load_digits():
    import numpy as np

    with np.load(DATA) as data:
        return data["x"].astype(np.float32) / 16.0, data["y"].astype(np.int64)


def batch_of(step, batch, total):
    """The step's global batch: the same rows for any number of workers, so that a resize does not show in the loss."""
    import numpy as np

    return np.random.default_rng((7, step)).integers(0, total, size=batch)


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
