"""One setting of a sweep over the digits: trains with numpy, and prints the accuracy on the part that was held out."""

import argparse
import itertools
import json
import os
import signal
import sys

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import common
import numpy as np

# A task is short and has no checkpoint: on a resize it ends and runs again.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learning-rates", type=float, nargs="+", default=[0.02, 0.1, 0.5])
    parser.add_argument("--batches", type=int, nargs="+", default=[30, 120, 480])
    parser.add_argument("--decays", type=float, nargs="+", default=[0.0, 0.001])
    parser.add_argument("--steps", type=int, default=400)
    options = parser.parse_args()
    settings = list(itertools.product(options.learning_rates, options.batches, options.decays))
    task = int(os.environ.get("DORMOUSE_TASK", "0"))
    if task >= len(settings):
        sys.exit("sweep: task %d, but there are %d settings: set tasks.count to that" % (task, len(settings)))
    rate, batch, decay = settings[task]

    x, y = common.load_digits()
    held = np.arange(len(y)) % 5 == 0
    weight, bias = common.initial(0)
    for step in range(options.steps):
        rows = common.batch_of(step, batch, int((~held).sum()))
        inputs, labels = x[~held][rows], y[~held][rows]
        logits = inputs @ weight + bias
        chance = np.exp(logits - logits.max(axis=1, keepdims=True))
        chance /= chance.sum(axis=1, keepdims=True)
        chance[np.arange(batch), labels] -= 1
        weight -= rate * (inputs.T @ chance / batch + decay * weight)
        bias -= rate * chance.mean(axis=0)

    result = common.evaluate([weight, bias], x[held], y[held])
    setting = {"learning_rate": rate, "batch": batch, "decay": decay}
    print(json.dumps({"task": task, **setting, **result}), flush=True)


if __name__ == "__main__":
    main()
