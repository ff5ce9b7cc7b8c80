"""PyTorch: the ranks of a process group agree.

    run = dormouse.Run()                     # before `import torch`
    import torch.distributed as dist
    from dormouse_trainer import torch as dt
    dist.init_process_group("gloo")
    dt.agree(run)
    run.keep(model=model, optimizer=optimizer)      # each has a state_dict

Data loaders take `worker_init_fn=dormouse.ignore_signals`.
"""

from __future__ import annotations

from typing import List, Sequence

from .run import Run


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
