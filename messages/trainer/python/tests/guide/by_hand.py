import dormouse_trainer as dormouse

run = dormouse.Run(save_every=50)
import numpy as np

weights = np.load(run.resumed / "weights.npy") if run.resumed else np.zeros(8)
for step in run.steps(200):
    weights = weights + 1.0
    if run.save_due:
        with run.saving() as folder:
            np.save(folder / "weights.npy", weights)
