import dormouse_trainer as dormouse

run = dormouse.Run()
import numpy as np

data = np.random.default_rng(0)
x, y = data.normal(size=(500, 8)), data.normal(size=500)
weights = np.zeros(8)
run.keep(weights=weights)
for step in run.steps(200):
    error = x @ weights - y
    weights -= 0.1 * x.T @ error / 500
    run.report(loss=float(error @ error) / 500)
