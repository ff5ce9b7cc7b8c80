"""Softmax regression with numpy over sockets, resized in place: the loss follows that of one process.

Arguments: steps, milliseconds of a step.
"""

import sys
import time

import dormouse_trainer as dormouse

run = dormouse.Run(report_every_s=0.0)

import numpy as np

world = dormouse.World(run, meet_within_s=30.0)
generator = np.random.default_rng(5)
x, y = generator.normal(size=(600, 20)), generator.integers(0, 4, size=600)
weights = np.zeros((20, 4))
losses = [0.0]
run.keep(weights=weights, losses=losses)

for step in run.steps(int(sys.argv[1])):
    with run.attempt():
        time.sleep(float(sys.argv[2]) / 1000.0)
        rows = np.random.default_rng((7, step)).integers(0, len(y), size=120)[run.rank :: run.world_size]
        logits = x[rows] @ weights
        shares = np.exp(logits - logits.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        picked = shares[np.arange(len(rows)), y[rows]]
        error = shares.copy()
        error[np.arange(len(rows)), y[rows]] -= 1.0
        # One sum, and what it changes after it: a step is done or it is not.
        total = world.sum(np.append((x[rows].T @ error).ravel(), -np.log(picked).sum()))
        weights -= 0.5 / 120 * total[:-1].reshape(weights.shape)
        losses.append(total[-1] / 120)
        run.report(loss=losses[-1], members=run.world_size)

assert len(losses) - 1 == run.done, "a step was lost or repeated: %d, %d" % (len(losses) - 1, run.done)
print("end rank %d of %d done %d left %s stopped %s" % (run.rank, run.world_size, run.done, run.left, run.stopped))
