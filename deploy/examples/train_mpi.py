"""Data-parallel training of the digits with MPI (mpi4py) and numpy: the gradients are added up by allreduce."""

import common  # first: it installs no framework, and the signal handlers must precede slow imports

SIGNALS = common.Signals()

import time

import numpy as np
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


def allreduce(world, values):
    """Blocking allreduce spins on a core; this one waits asleep, for the cores are shared."""
    total = np.empty_like(values)
    request = world.Iallreduce(values, total, op=MPI.SUM)
    while not request.Test():
        time.sleep(0.0005)
    return total


def main():
    options = common.arguments(__doc__, learning_rate=0.2).parse_args()
    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    x, y = common.load_digits()
    checkpoints, progress = common.Checkpoints(), common.Progress(options.steps)

    parameters, step = common.initial(options.hidden), 0
    resumed = checkpoints.load()
    if resumed:
        step = resumed[0]
        with np.load(resumed[1]) as saved:
            parameters = [saved["p%d" % index] for index in range(len(parameters))]
    elif options.resume:
        raise SystemExit("train_mpi: --resume, but DORMOUSE_RESUME_FROM is not set")

    def save():
        if rank == 0:
            named = {"p%d" % index: parameter for index, parameter in enumerate(parameters)}
            checkpoints.save(step, lambda file: np.savez(file, **named))

    stopped = False
    while step < options.steps and not stopped:
        rows = common.batch_of(step, options.batch, len(y))[rank::size]
        common.pause(options.step_ms, size)
        # The signals travel with the gradient: all ranks see the same sum at the same step.
        save_asked, SIGNALS.save = SIGNALS.save, False
        mine = [part.ravel() for part in gradient(parameters, x[rows], y[rows])]
        mine.append(np.array([SIGNALS.stop, save_asked], dtype=np.float32))
        total = allreduce(world, np.concatenate(mine).astype(np.float32))
        stopped, wanted = total[-2] > 0, total[-1] > 0
        offset = 0
        for parameter in parameters:
            part = total[offset : offset + parameter.size].reshape(parameter.shape)
            parameter -= options.learning_rate / options.batch * part
            offset += parameter.size
        step += 1
        if progress.due(step) or (stopped and rank == 0):
            progress.report(step, workers=size, **common.evaluate(parameters, x, y))
        if wanted or stopped or (options.checkpoint_every and step % options.checkpoint_every == 0):
            save()
    SIGNALS.ignore()
    if not stopped:
        save()  # a stop asked for after the last step still finds a checkpoint
    MPI.Finalize()


if __name__ == "__main__":
    main()
