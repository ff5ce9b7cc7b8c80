"""Data-parallel training of the digits with torch: DistributedDataParallel over gloo, from RANK and WORLD_SIZE alone."""

import common  # first: the signals must be taken before torch's slow import

OPTIONS = common.arguments(__doc__, learning_rate=0.2).parse_args()
RUN = common.begin("train_torch", OPTIONS)

import numpy as np
import torch
import torch.distributed as dist
from dormouse_trainer import torch as dormouse_torch
from torch.nn.parallel import DistributedDataParallel


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
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.learning_rate)

    for step in run.steps(options.steps):
        rows = common.batch_of(step, options.batch, len(y))[run.rank :: run.world_size]
        common.pause(options.step_ms, run.world_size)
        optimizer.zero_grad()
        logits = replica(torch.from_numpy(x[rows]))
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(y[rows]), reduction="sum")
        # DDP averages over the workers; the sum over the global batch is wanted, divided by its size.
        (loss * run.world_size / options.batch).backward()
        optimizer.step()
        if run.report_due:
            arrays = [parameter.detach().numpy().T for parameter in model.parameters()]
            run.report(workers=run.world_size, **common.evaluate(arrays, x, y))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
