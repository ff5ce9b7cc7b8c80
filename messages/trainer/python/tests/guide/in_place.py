import dormouse_trainer as dormouse

run = dormouse.Run()
import numpy as np

world = dormouse.World(run)
data = np.random.default_rng(0)
x, y = data.normal(size=(500, 8)), data.normal(size=500)
weights = np.zeros(8)
run.keep(weights=weights)
for step in run.steps(200):
    with run.attempt():  # done again by those who are left, if a member dies in it
        mine = slice(run.rank, None, run.world_size)
        error = x[mine] @ weights - y[mine]
        weights -= 0.1 * world.sum(x[mine].T @ error) / 500
