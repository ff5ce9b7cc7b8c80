"""Data-parallel training of the digits with numpy: the library's sockets add up the gradients, members come and go.

The global batch is of --batch samples, or follows the containers where the document has `batch: {min: …, max: …}`.
"""

import common  # first: the signals must be taken before numpy's slow import

OPTIONS = common.arguments(__doc__, learning_rate=0.2).parse_args()
RUN = common.begin("train_world", OPTIONS)

import dormouse_trainer as dormouse
import numpy as np


def main():
    options, run, world = OPTIONS, RUN, dormouse.World(RUN)
    x, y = common.load_digits()
    parameters = common.initial(options.hidden)
    run.keep(parameters=parameters)
    batch = run.batch_of(options.batch)

    def gradient_of(part):
        rows = common.samples(part, options.batch, len(y))
        sums = common.gradient(parameters, x[rows], y[rows])
        return np.concatenate([array.ravel() for array in sums]) / max(1, len(rows))

    for step in run.steps(options.steps):
        with run.attempt():
            common.pause(options, run.world_size, batch.size)
            mean, offset = batch.average([gradient_of(part) for part in batch.parts], world.sum), 0
            for parameter in parameters:
                part = mean[offset : offset + parameter.size].reshape(parameter.shape)
                parameter -= (options.learning_rate * batch.gain * part).astype(parameter.dtype)
                offset += parameter.size
            if run.report_due:
                run.report(workers=run.world_size, **common.evaluate(parameters, x, y))
    if run.is_coordinator:
        print("train_world: %d steps done, %d taken" % (run.done, batch.taken), flush=True)


if __name__ == "__main__":
    main()
