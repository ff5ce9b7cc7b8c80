import dormouse_trainer as dormouse

run = dormouse.Run()
import numpy as np

world = dormouse.World(run)
data = np.random.default_rng(0)
x, y = data.normal(size=(500, 8)), data.normal(size=500)
weights = np.zeros(8)


def gradient_of(part):
    rows = np.array(part) % 500
    return x[rows].T @ (x[rows] @ weights - y[rows]) / len(rows)


run.keep(weights=weights)
batch = run.batch_of(100)  # 100 samples where the document has no batch
for step in run.steps(200):
    with run.attempt():
        gradients = [gradient_of(part) for part in batch.parts]  # the numbers of this rank's samples
        weights -= 0.1 * batch.gain * batch.average(gradients, world.sum)
