import numpy as np

data = np.random.default_rng(0)
x, y = data.normal(size=(500, 8)), data.normal(size=500)
weights = np.zeros(8)
for step in range(200):
    error = x @ weights - y
    weights -= 0.1 * x.T @ error / 500
