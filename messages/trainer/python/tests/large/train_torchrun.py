"""Softmax regression under torchrun, whose members come and go: it saves and loads its own snapshot.

Argument: the milliseconds that a step takes at least. What it saves and logs lies in DORMOUSE_CHECKPOINT_DIR:
torchrun starts the workers of all members again at every change, and any of them may be its rank 0 then. It ends when
there is a file `end`.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

BATCH = 120


def problem():
    """The same on every rank."""
    torch.set_num_threads(1)
    torch.manual_seed(3)
    x, y = torch.randn(600, 20, dtype=torch.float64), torch.randint(0, 4, (600,))
    model = torch.nn.Linear(20, 4, dtype=torch.float64)
    return x, y, model, torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)


def rows_of(step):
    return torch.randint(0, 600, (BATCH,), generator=torch.Generator().manual_seed(step))


def alone(steps):
    """The losses of one process that nobody resizes."""
    x, y, model, optimizer = problem()
    losses = []
    for step in range(steps):
        rows = rows_of(step)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def save(state, path):
    """By a rename: a worker that is killed meanwhile leaves the former file."""
    new = path.with_suffix(".new")
    torch.save(state, new)
    os.replace(new, path)


def main():
    pause_s = float(sys.argv[1]) / 1000
    folder = Path(os.environ["DORMOUSE_CHECKPOINT_DIR"])
    snapshot = folder / "snapshot.pt"
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    x, y, model, optimizer = problem()
    # One of them reads: all go on from the same step.
    held = [torch.load(snapshot, weights_only=False) if rank == 0 and snapshot.exists() else None]
    dist.broadcast_object_list(held, src=0)
    done = 0
    if held[0] is not None:
        done = held[0]["done"]
        model.load_state_dict(held[0]["model"])
        optimizer.load_state_dict(held[0]["optimizer"])
    replica = DistributedDataParallel(model)
    ends = False
    while not ends:
        time.sleep(pause_s)
        rows = rows_of(done)[rank::world]
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(replica(x[rows]), y[rows], reduction="sum")
        (loss * world / BATCH).backward()
        optimizer.step()
        ends = rank == 0 and (folder / "end").exists()
        total = torch.tensor([loss.item() / BATCH, ends], dtype=torch.float64)
        dist.all_reduce(total)
        loss, ends = total.tolist()
        done += 1
        if rank == 0:
            state = {"done": done, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            with open(folder / "steps.jsonl", "a") as lines:
                line = {"step": done, "loss": loss, "world": world, "at": time.time()}
                lines.write(json.dumps(line) + "\n")
            save(state, snapshot)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
