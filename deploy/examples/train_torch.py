"""Data-parallel training of the digits with torch: DistributedDataParallel over gloo, from RANK and WORLD_SIZE alone."""

import common  # first: the signal handlers must precede torch's slow import

SIGNALS = common.Signals()

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    options = common.arguments(__doc__, learning_rate=0.2).parse_args()
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    x, y = common.load_digits()
    checkpoints, progress = common.Checkpoints(), common.Progress(options.steps)

    layers = [torch.nn.Linear(64, options.hidden or 10)]
    if options.hidden:
        layers += [torch.nn.Tanh(), torch.nn.Linear(options.hidden, 10)]
    model, step = torch.nn.Sequential(*layers), 0
    arrays, resumed = common.initial(options.hidden), checkpoints.load()
    if resumed:
        step = resumed[0]
        with np.load(resumed[1]) as saved:
            arrays = [saved["p%d" % index] for index in range(len(arrays))]
    elif options.resume:
        raise SystemExit("train_torch: --resume, but DORMOUSE_RESUME_FROM is not set")
    with torch.no_grad():
        # Linear keeps its weight transposed.
        for parameter, array in zip(model.parameters(), arrays):
            parameter.copy_(torch.from_numpy(np.ascontiguousarray(array.T)))
    replica = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=options.learning_rate)

    def as_arrays():
        return [parameter.detach().numpy().T for parameter in model.parameters()]

    def save():
        if rank == 0:
            named = {"p%d" % index: array for index, array in enumerate(as_arrays())}
            checkpoints.save(step, lambda file: np.savez(file, **named))

    stopped = False
    while step < options.steps and not stopped:
        rows = common.batch_of(step, options.batch, len(y))[rank::size]
        common.pause(options.step_ms, size)
        optimizer.zero_grad()
        logits = replica(torch.from_numpy(x[rows]))
        loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(y[rows]), reduction="sum")
        # DDP averages over the workers; the sum over the global batch is wanted, divided by its size.
        (loss * size / options.batch).backward()
        optimizer.step()
        save_asked, SIGNALS.save = SIGNALS.save, False
        asked = torch.tensor([float(SIGNALS.stop), float(save_asked)])
        dist.all_reduce(asked)
        stopped, wanted = bool(asked[0] > 0), bool(asked[1] > 0)
        step += 1
        if progress.due(step) or (stopped and rank == 0):
            progress.report(step, workers=size, **common.evaluate(as_arrays(), x, y))
        if wanted or stopped or (options.checkpoint_every and step % options.checkpoint_every == 0):
            save()
    SIGNALS.ignore()
    if not stopped:
        save()  # a stop asked for after the last step still finds a checkpoint
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
