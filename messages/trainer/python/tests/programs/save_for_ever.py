"""Saves after every step, ten files that agree with each other; killed at any moment by the test."""

import time

import dormouse_trainer as dormouse

run = dormouse.Run(save_every=1)
for step in run.steps(1_000_000):
    if run.save_due:
        with run.saving() as folder:
            for part in range(10):
                (folder / str(part)).write_bytes(b"%d" % (step + 1) * 1000)
                time.sleep(0.0002)
    if step == 0:
        print("first", flush=True)
