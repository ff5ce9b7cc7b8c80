"""Data-parallel training of the digits with MPI (mpi4py) and numpy: the gradients are added up by allreduce."""

import common  # first: it imports no framework, and the signals must be taken before slow imports

OPTIONS = common.arguments(__doc__, learning_rate=0.2).parse_args()
RUN = common.begin("train_mpi", OPTIONS)

import numpy as np
from dormouse_trainer import mpi
from mpi4py import MPI


def main():
    options, run, world = OPTIONS, RUN, mpi.World(RUN, MPI.COMM_WORLD)
    x, y = common.load_digits()
    parameters = common.initial(options.hidden)
    run.keep(parameters=parameters)

    for step in run.steps(options.steps):
        rows = common.batch_of(step, options.batch, len(y))[run.rank :: run.world_size]
        common.pause(options, run.world_size)
        # What this rank was asked for travels with the gradient: all ranks see the same sum at the same step.
        wishes = run.wishes()
        mine = [part.ravel() for part in common.gradient(parameters, x[rows], y[rows])] + [wishes]
        total = world.sum(np.concatenate(mine).astype(np.float32))
        run.agreed(total[-len(wishes) :])
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
