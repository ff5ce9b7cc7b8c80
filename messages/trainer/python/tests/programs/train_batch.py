"""Learns a constant from noisy samples with numpy over sockets and an elastic batch. Prints each step of each rank.

Arguments: steps, milliseconds of a step, `agree_every`.
"""

import json
import sys
import time

import dormouse_trainer as dormouse

run = dormouse.Run(report_every_s=0.0, agree_every=int(sys.argv[3]))

import numpy as np

world = dormouse.World(run, meet_within_s=30.0)
weights, taken = np.zeros(20), {"steps": 0}
run.keep(weights=weights, taken=taken)
batch = run.batch_of(8)


def gradient_of(part):
    # Each sample is a function of its number: which rank takes it does not matter.
    samples = np.stack([np.random.default_rng((3, number)).normal(1.0, 6.0, size=20) for number in part])
    return weights - samples.mean(axis=0)


for step in run.steps(int(sys.argv[1])):
    with run.attempt():
        rows, size, gain = batch.rows, batch.size, batch.gain
        time.sleep(float(sys.argv[2]) / 1000.0 + 0.00002 * batch.share)
        mean = batch.average([gradient_of(part) for part in batch.parts], world.sum)
        weights -= 0.002 * gain * mean
        taken["steps"] += 1
        line = {"step": step, "rank": run.rank, "of": run.world_size, "size": size, "gain": gain}
        print("step " + json.dumps({**line, "rows": [rows.start, rows.stop]}), flush=True)
        run.report(members=run.world_size)

assert taken["steps"] == batch.taken, (taken, batch.taken)
end = (run.rank, run.world_size, run.done, batch.seen, run.left, run.stopped)
print("end rank %d of %d done %d seen %d left %s stopped %s" % end)
