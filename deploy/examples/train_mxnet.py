"""Data-parallel training of the digits with MXNet: the parameter servers (kvstore dist_sync) add up the gradients."""

import common  # first: the signals must be taken before MXNet's slow import

OPTIONS = common.arguments(__doc__, learning_rate=0.2).parse_args()
RUN = common.begin("train_mxnet", OPTIONS)

import mxnet as mx
from dormouse_trainer import mxnet
from mxnet import autograd, nd


def main():
    options, run, store = OPTIONS, RUN, mx.kv.create("dist_sync")
    mxnet.agree(run, store)
    x, y = common.load_digits()
    parameters = [nd.array(parameter) for parameter in common.initial(options.hidden)]
    mxnet.keep(run, parameters)
    for key, parameter in enumerate(parameters):
        parameter.attach_grad()
        store.init(key, nd.zeros_like(parameter))
    sums = [nd.zeros_like(parameter) for parameter in parameters]

    def loss_of(rows):
        hidden = nd.array(x[rows])
        if len(parameters) == 4:
            hidden = nd.tanh(nd.dot(hidden, parameters[0]) + parameters[1])
        return nd.softmax_cross_entropy(nd.dot(hidden, parameters[-2]) + parameters[-1], nd.array(y[rows]))

    for step in run.steps(options.steps):
        rows = common.batch_of(step, options.batch, len(y))[run.rank :: run.world_size]
        common.pause(options, run.world_size)
        with autograd.record():
            loss = loss_of(rows)
        loss.backward()
        # No optimizer is set on the servers: what is pulled is the sum of what all workers pushed.
        for key, parameter in enumerate(parameters):
            store.push(key, parameter.grad)
        for key, total in enumerate(sums):
            store.pull(key, out=total)
        for parameter, total in zip(parameters, sums):
            parameter -= options.learning_rate / options.batch * total
        if run.report_due:
            arrays = [parameter.asnumpy() for parameter in parameters]
            run.report(workers=run.world_size, **common.evaluate(arrays, x, y))


if __name__ == "__main__":
    main()
