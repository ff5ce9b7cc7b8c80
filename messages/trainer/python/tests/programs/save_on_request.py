"""Counts until it is stopped; saves when it is asked to."""

import time

import dormouse_trainer as dormouse

run = dormouse.Run()
state = {"steps": 0}
run.keep(state=state)
print("running", flush=True)
for step in run.steps(1_000_000):
    state["steps"] += 1
    time.sleep(0.001)
