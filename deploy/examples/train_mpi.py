"""Data-parallel training of the digits with MPI (mpi4py) and numpy: the gradients are added up by allreduce."""

import common  # first: it imports no framework, and the signals must be taken before slow imports

OPTIONS = common.arguments(__doc__, learning_rate=0.2).parse_args()
RUN = common.begin("train_mpi", OPTIONS)

import numpy as np
from dormouse_trainer import mpi
from mpi4py import MPI


def gradient(parameters, x, y):
    """Sum over the rows of the cross-entropy's gradient, for softmax regression or one tanh layer."""
    if len(y) == 0:
        return [np.zeros_like(parameter) for parameter in parameters]
    hidden = np.tanh(x @ parameters[0] + parameters[1]) if len(parameters) == 4 else x
    logits = hidden @ parameters[-2] + parameters[-1]
    error = np.exp(logits - logits.max(axis=1, keepdims=True))
    error /= error.sum(axis=1, keepdims=True)
    error[np.arange(len(y)), y] -= 1.0
    top = [hidden.T @ error, error.sum(axis=0)]
    if len(parameters) == 2:
        return top
    back = (error @ parameters[2].T) * (1.0 - hidden**2)
    return [x.T @ back, back.sum(axis=0)] + top


def main():
    options, run, world = OPTIONS, RUN, mpi.World(RUN, MPI.COMM_WORLD)
    x, y = common.load_digits()
    parameters = common.initial(options.hidden)
    run.keep(parameters=parameters)

    for step in run.steps(options.steps):
        rows = common.batch_of(step, options.batch, len(y))[run.rank :: run.world_size]
        common.pause(options.step_ms, run.world_size)
        # What this rank was asked for travels with the gradient: all ranks see the same sum at the same step.
        mine = [part.ravel() for part in gradient(parameters, x[rows], y[rows])] + [run.wishes()]
        total = world.sum(np.concatenate(mine).astype(np.float32))
        run.agreed(total[-3:])
        offset = 0
        for parameter in parameters:
            part = total[offset : offset + parameter.size].reshape(parameter.shape)
            parameter -= options.learning_rate / options.batch * part
            offset += parameter.size
        if run.report_due:
            run.report(workers=run.world_size, **common.evaluate(parameters, x, y))
    MPI.Finalize()


if __name__ == "__main__":
    main()
