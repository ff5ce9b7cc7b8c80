"""A regression with MXNet's parameter server. Arguments: steps, and the step in which the worker of rank 1 is asked
to stop (-1: none)."""

import os
import signal
import sys

import dormouse_trainer as dormouse

run = dormouse.Run()

import mxnet as mx
from dormouse_trainer import mxnet
from mxnet import nd

store = mx.kv.create("dist_sync")
mxnet.agree(run, store)
weights, counter = nd.zeros((8,)), {"steps": 0}
store.init(0, nd.zeros((8,)))
mxnet.keep(run, [weights])
run.keep(counter=counter)
total = nd.zeros((8,))

for step in run.steps(int(sys.argv[1])):
    store.push(0, nd.ones((8,)) / run.world_size)
    store.pull(0, out=total)
    weights += total
    counter["steps"] += 1
    if step == int(sys.argv[2]) and run.rank == 1:
        os.kill(os.getpid(), signal.SIGTERM)

assert abs(float(weights[0].asscalar()) - run.done) < 1e-3, "weights %s, done %d" % (weights[0], run.done)
assert counter["steps"] == run.done
print("rank %d of %d done %d stopped %s" % (run.rank, run.world_size, run.done, run.stopped), flush=True)
