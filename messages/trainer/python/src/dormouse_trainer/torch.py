"""PyTorch: the ranks of a process group agree, and save together what is divided among them.

    run = dormouse.Run()                     # before `import torch`
    import torch.distributed as dist
    from dormouse_trainer import torch as dt
    dist.init_process_group("gloo")
    dt.agree(run)
    run.keep(model=model, optimizer=optimizer)      # each has a state_dict

Where each rank holds a part of the model (`fully_shard`, DTensors), `Run(shards=True)` and

    dt.keep_shards(run, model, optimizer)           # instead of keep: each rank writes and reads its own part

With a batch that follows the containers, `backward` replaces `loss.backward()` and DistributedDataParallel:

    batch = run.batch_of(120)
    dt.backward(run, model, (loss_of(rows) for rows in batch.parts))

Data loaders take `worker_init_fn=dormouse.ignore_signals`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Iterable, List, Sequence

from .batch import check_parts
from .run import Run

#: The folder within a checkpoint that torch.distributed.checkpoint writes.
SHARDS = "shards"


def agree(run: Run, group=None) -> None:
    """Lets the ranks of a process group agree; they take their rank and world from it, as under torchrun."""
    import torch
    import torch.distributed as dist

    run.rank, run.world_size = dist.get_rank(group), dist.get_world_size(group)
    device = "cuda" if dist.get_backend(group) == "nccl" else "cpu"

    def agreement(values: List[float]) -> Sequence[float]:
        most = torch.tensor(values, dtype=torch.float64, device=device)
        dist.all_reduce(most, op=dist.ReduceOp.MAX, group=group)
        return most.tolist()

    run.agree_with(agreement)


def backward(run: Run, model, losses: Iterable, group=None) -> None:
    """Computes the gradients of a step, in place of `loss.backward()` and DistributedDataParallel: their mean over the
    samples of all ranks. `losses` has the mean loss of each of the rank's parts of the batch."""
    import torch

    batch, parts, flats = run.batch, run.batch.parts, []
    # Computed one by one: a loss holds its memory until its gradients are there.
    for loss in [losses] if isinstance(losses, torch.Tensor) else losses:
        model.zero_grad(set_to_none=True)
        loss.backward()
        flats.append(_flat(model) if len(parts) > 1 else None)
    check_parts(parts, flats)
    if len(parts) > 1:
        mean = sum(flat * (len(part) / batch.share) for flat, part in zip(flats, parts))
        squares = torch.stack([flat @ flat for flat in flats] + [mean @ mean]).tolist()
        batch.observe(sum(squares[:-1]) / len(flats), squares[-1], parts=len(flats))
        _unflatten(model, mean)
    average(run, model, group)


def average(run: Run, model, group=None) -> None:
    """Averages the gradients of a model over the samples of all ranks, by one all_reduce, and observes their noise for
    an elastic batch. Each rank has the mean over its own samples. Not for a model that is divided among the ranks, nor
    under DistributedDataParallel, which has averaged already."""
    import torch
    import torch.distributed as dist

    batch = run.batch
    if run.world_size == 1:
        return
    flat = _flat(model)
    # A rank without samples has no mean.
    weighted = flat * (batch.share / batch.size) if batch.share else torch.zeros_like(flat)
    entries = torch.cat([weighted, (flat @ flat / run.world_size).reshape(1)])
    dist.all_reduce(entries, group=group)
    mean = entries[:-1]
    if batch.is_elastic:
        square, mean_square = torch.stack([entries[-1], mean @ mean]).tolist()
        batch.observe(square, mean_square)
    _unflatten(model, mean)


def _flat(model):
    """All gradients in a row; in single precision at least, for squares of half precision would overflow."""
    import torch

    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients = [torch.zeros_like(it) if it.grad is None else it.grad for it in parameters]
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    return flat if flat.element_size() >= 4 else flat.float()


def _unflatten(model, flat) -> None:
    offset = 0
    for parameter in model.parameters():
        if parameter.requires_grad:
            part = flat[offset : offset + parameter.numel()].reshape(parameter.shape)
            parameter.grad = part.to(parameter.dtype)
            offset += parameter.numel()


def keep_shards(run: Run, model, *optimizers) -> None:
    """Saves a model that is divided among the ranks, and its optimizers, by torch.distributed.checkpoint (torch 2.3
    or later): each rank writes its own part. On a resume each loads what is its part now, also in a world of another
    size. Call it on all ranks, after [`agree`] and after the model has been divided."""
    from torch.distributed import checkpoint as dcp
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

    if not run.shards:
        raise ValueError("each rank writes its own part of the checkpoint: begin with Run(shards=True)")

    def state() -> dict:
        model_state, optimizer_state = get_state_dict(model, optimizers)
        return {"model": model_state, "optimizers": optimizer_state}

    def write(folder: Path) -> None:
        try:
            dcp.save(state(), checkpoint_id=folder / SHARDS)
        except dcp.CheckpointException as error:
            # All ranks get it, whichever of them could not write; the checkpoint before this one stands.
            raise OSError("not all ranks wrote their part: %s" % error) from error

    if run.resumed:
        held = state()
        dcp.load(held, checkpoint_id=run.resumed / SHARDS)
        set_state_dict(model, optimizers, model_state_dict=held["model"], optim_state_dict=held["optimizers"])
    run.keep_by(write)
