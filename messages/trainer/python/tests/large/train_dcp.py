"""Softmax regression whose model is divided among the ranks (fully_shard) over gloo; saved by torch.distributed.checkpoint.

Arguments: steps, then `RANK:SIGNAL:STEP` for each signal that a rank sends itself within a step.
"""

import os
import signal
import sys

import dormouse_trainer as dormouse

run = dormouse.Run(report_every_s=0.0, shards=True)

import torch
import torch.distributed as dist
from dormouse_trainer import torch as dormouse_torch
from dormouse_trainer.checkpoints import read
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

asked = {}
for word in sys.argv[2:]:
    rank, name, at = word.split(":")
    asked[int(at)] = (int(rank), getattr(signal, name))

dist.init_process_group("gloo")
dormouse_torch.agree(run)
torch.set_num_threads(1)
torch.manual_seed(3)
x, y = torch.randn(600, 20, dtype=torch.float64), torch.randint(0, 5, (600,))
model = torch.nn.Sequential(torch.nn.Linear(20, 7), torch.nn.Tanh(), torch.nn.Linear(7, 5)).double()
fully_shard(model, mesh=init_device_mesh("cpu", (run.world_size,)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
counter = {"steps": 0}
run.keep(counter=counter)
dormouse_torch.keep_shards(run, model, optimizer)
checked = 0

for step in run.steps(int(sys.argv[1])):
    former = asked.get(step - 1)
    if run.is_coordinator and former and former[1] == signal.SIGUSR1:
        saved = read(run.place.checkpoint)
        parts = list((saved / dormouse_torch.SHARDS).glob("*.distcp"))
        assert (saved.step, len(parts)) == (step, run.world_size), (saved.step, parts, step)
        checked += 1
    rows = torch.randint(0, 600, (120,), generator=torch.Generator().manual_seed(step))[run.rank :: run.world_size]
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x[rows]), y[rows], reduction="sum")
    (loss * run.world_size / 120).backward()
    optimizer.step()
    counter["steps"] += 1
    if step in asked and asked[step][0] == run.rank:
        os.kill(os.getpid(), asked[step][1])
    total = loss.detach().clone()
    dist.all_reduce(total)
    run.report(loss=total.item() / 120)

assert counter["steps"] == run.done, (counter, run.done)
print("rank %d of %d done %d stopped %s checked %d" % (run.rank, run.world_size, run.done, run.stopped, checked), flush=True)
dist.barrier()
dist.destroy_process_group()
