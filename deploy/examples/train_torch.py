"""Data-parallel training of the digits with torch over gloo, from RANK and WORLD_SIZE alone.

The global batch is of --batch samples, or follows the containers where the document has `batch: {min: …, max: …}`.
"""

import common  # first: the signals must be taken before torch's slow import

OPTIONS = common.arguments(__doc__, learning_rate=0.2).parse_args()
RUN = common.begin("train_torch", OPTIONS)

import numpy as np
import torch
import torch.distributed as dist
from dormouse_trainer import torch as dormouse_torch


def main():
    options, run = OPTIONS, RUN
    dist.init_process_group("gloo")
    dormouse_torch.agree(run)
    torch.set_num_threads(1)
    x, y = common.load_digits()

    layers = [torch.nn.Linear(64, options.hidden or 10)]
    if options.hidden:
        layers += [torch.nn.Tanh(), torch.nn.Linear(options.hidden, 10)]
    model = torch.nn.Sequential(*layers)
    with torch.no_grad():
        # Linear keeps its weight transposed.
        for parameter, array in zip(model.parameters(), common.initial(options.hidden)):
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(array.T)))
    run.keep(model=model)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.learning_rate)
    batch = run.batch_of(options.batch)

    def loss_of(part):
        rows = common.samples(part, options.batch, len(y))
        return torch.nn.functional.cross_entropy(model(torch.from_numpy(x[rows])), torch.from_numpy(y[rows]))

    for step in run.steps(options.steps):
        common.pause(options, run.world_size, batch.size)
        dormouse_torch.backward(run, model, (loss_of(part) for part in batch.parts))
        optimizer.param_groups[0]["lr"] = options.learning_rate * batch.gain
        optimizer.step()
        if run.report_due:
            arrays = [parameter.detach().numpy().T for parameter in model.parameters()]
            run.report(workers=run.world_size, **common.evaluate(arrays, x, y))
    if run.is_coordinator:
        print("train_torch: %d steps done, %d taken" % (run.done, batch.taken), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
