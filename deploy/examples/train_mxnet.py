"""Data-parallel training of the digits with MXNet: the parameter servers (kvstore dist_sync) add up the gradients."""

import common  # first: the signal handlers must precede MXNet's slow import

SIGNALS = common.Signals()

import mxnet as mx
import numpy as np
from mxnet import autograd, nd


def main():
    options = common.arguments(__doc__, learning_rate=0.2).parse_args()
    store = mx.kv.create("dist_sync")
    # DORMOUSE_RANK, not store.rank: the scheduler numbers workers in the order in which they come.
    rank, size = common.RANK, store.num_workers
    x, y = common.load_digits()
    checkpoints, progress = common.Checkpoints(), common.Progress(options.steps)

    parameters, step = [nd.array(parameter) for parameter in common.initial(options.hidden)], 0
    resumed = checkpoints.load()
    if resumed:
        step = resumed[0]
        with np.load(resumed[1]) as saved:
            parameters = [nd.array(saved["p%d" % index]) for index in range(len(parameters))]
    elif options.resume:
        raise SystemExit("train_mxnet: --resume, but DORMOUSE_RESUME_FROM is not set")
    signals_key = len(parameters)
    for key, parameter in enumerate(parameters):
        parameter.attach_grad()
        store.init(key, nd.zeros_like(parameter))
    store.init(signals_key, nd.zeros(2))
    signals_sum = nd.zeros(2)
    sums = [nd.zeros_like(parameter) for parameter in parameters]

    def save():
        if rank == 0:
            named = {"p%d" % index: parameter.asnumpy() for index, parameter in enumerate(parameters)}
            checkpoints.save(step, lambda file: np.savez(file, **named))

    def loss_of(rows):
        hidden = nd.array(x[rows])
        if len(parameters) == 4:
            hidden = nd.tanh(nd.dot(hidden, parameters[0]) + parameters[1])
        return nd.softmax_cross_entropy(nd.dot(hidden, parameters[-2]) + parameters[-1], nd.array(y[rows]))

    stopped = False
    while step < options.steps and not stopped:
        rows = common.batch_of(step, options.batch, len(y))[rank::size]
        common.pause(options.step_ms, size)
        with autograd.record():
            loss = loss_of(rows)
        loss.backward()
        # No optimizer is set on the servers: what is pulled is the sum of what all workers pushed. The signals go the
        # same way, so that all workers see them at the same step.
        save_asked, SIGNALS.save = SIGNALS.save, False
        store.push(signals_key, nd.array([SIGNALS.stop, save_asked]))
        for key, parameter in enumerate(parameters):
            store.push(key, parameter.grad)
        for key, total in enumerate(sums):
            store.pull(key, out=total)
        store.pull(signals_key, out=signals_sum)
        for parameter, total in zip(parameters, sums):
            parameter -= options.learning_rate / options.batch * total
        asked = signals_sum.asnumpy()
        stopped, wanted = asked[0] > 0, asked[1] > 0
        step += 1
        if progress.due(step) or (stopped and rank == 0):
            arrays = [parameter.asnumpy() for parameter in parameters]
            progress.report(step, workers=size, **common.evaluate(arrays, x, y))
        if wanted or stopped or (options.checkpoint_every and step % options.checkpoint_every == 0):
            save()
    SIGNALS.ignore()
    if not stopped:
        save()  # a stop asked for after the last step still finds a checkpoint


if __name__ == "__main__":
    main()
