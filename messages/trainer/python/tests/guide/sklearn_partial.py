import dormouse_trainer as dormouse

run = dormouse.Run()
import numpy as np
from dormouse_trainer import sklearn
from sklearn.linear_model import SGDClassifier

data = np.random.default_rng(0)
x, y = data.normal(size=(400, 6)), data.integers(0, 3, size=400)


def batch_of(step):
    rows = np.random.default_rng((7, step)).integers(0, 400, size=10)
    return x[rows], y[rows]


model = sklearn.partial_fit(run, SGDClassifier(), batch_of, total=200, classes=[0, 1, 2])
