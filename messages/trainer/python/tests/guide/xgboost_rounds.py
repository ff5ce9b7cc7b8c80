import dormouse_trainer as dormouse

run = dormouse.Run()
import numpy as np
from dormouse_trainer import xgboost
from xgboost import DMatrix

data = np.random.default_rng(0)
x = data.normal(size=(200, 5))
matrix = DMatrix(x, label=x[:, 0])
booster = xgboost.train(run, {"max_depth": 2}, matrix, num_boost_round=200, evals=[(matrix, "train")])
