"""Softmax regression with mpi4py. Prints every step's loss; saves and ends when one of the ranks is asked to.

Arguments: steps, then `RANK:SIGNAL:STEP` for each signal that a rank sends itself within a step.
"""

import os
import signal
import sys

import dormouse_trainer as dormouse

run = dormouse.Run(report_every_s=0.0)

import numpy as np
from dormouse_trainer import mpi
from dormouse_trainer.checkpoints import read
from mpi4py import MPI

asked = {}
for word in sys.argv[2:]:
    rank, name, at = word.split(":")
    asked[int(at)] = (int(rank), getattr(signal, name))

world = mpi.World(run, MPI.COMM_WORLD)
generator = np.random.default_rng(5)
x, y = generator.normal(size=(600, 20)), generator.integers(0, 4, size=600)
weights, counter = np.zeros((20, 4)), {"steps": 0}
run.keep(weights=weights, counter=counter)
checked = 0

for step in run.steps(int(sys.argv[1])):
    former = asked.get(step - 1)
    if run.is_coordinator and former and former[1] == signal.SIGUSR1:
        saved = read(run.place.checkpoint)
        state = __import__("pickle").loads((saved / "state.pickle").read_bytes())
        assert saved.step == state["counter"]["steps"] == step, (saved.step, state["counter"], step)
        checked += 1
    rows = np.random.default_rng((7, step)).integers(0, len(y), size=120)[run.rank :: run.world_size]
    logits = x[rows] @ weights
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    picked = shares[np.arange(len(rows)), y[rows]]
    error = shares.copy()
    error[np.arange(len(rows)), y[rows]] -= 1.0
    total = world.sum(np.append((x[rows].T @ error).ravel(), -np.log(picked).sum()))
    weights -= 0.5 / 120 * total[:-1].reshape(weights.shape)
    counter["steps"] += 1
    if step in asked and asked[step][0] == run.rank:
        os.kill(os.getpid(), asked[step][1])
    run.report(loss=total[-1] / 120)

assert counter["steps"] == run.done
print("rank %d of %d done %d stopped %s checked %d" % (run.rank, run.world_size, run.done, run.stopped, checked))
