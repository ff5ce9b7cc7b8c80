"""PyTorch: DistributedDataParallel over gloo. `make trainers-all` runs it."""

import sys

import harness
import numpy as np
from dormouse_trainer.checkpoints import read
from test_elastic import free_port

PROGRAM = harness.HERE / "large" / "train_torch.py"


def gang(folder, ranks, steps, *asked, resume_from=None, program=PROGRAM):
    """As the executor starts it; what the ranks say at their end."""
    port = free_port()
    gang = []
    for rank in range(ranks):
        cluster = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": 0}
        env = harness.environment(folder, resume_from, rank, ranks, GLOO_SOCKET_IFNAME="lo", **cluster)
        gang.append(harness.start([sys.executable, str(program), str(steps), *asked], env))
    ends = [harness.finish(process).splitlines() for process in gang]
    return [line for end in ends for line in end if line.startswith("rank")]


def test_saves_hold_the_steps_done_whichever_rank_is_asked(tmp_path):
    generator = harness.seeded("torch saves")
    asked = generator.sample(range(159), 50)
    words = ["%d:SIGUSR1:%d" % (generator.randrange(2), step) for step in asked]
    assert gang(tmp_path, 2, 160, *words)[0] == "rank 0 of 2 done 160 stopped False checked 50"


def test_worlds_of_4_2_and_3_follow_the_loss_of_one(tmp_path):
    generator = harness.seeded("torch worlds")
    first, second = sorted(generator.sample(range(1, 79), 2))
    gang(tmp_path / "whole", 1, 80)
    ends = gang(tmp_path / "4", 4, 80, "%d:SIGTERM:%d" % (generator.randrange(4), first))
    assert {end.split(" done ")[1] for end in ends} == {"%d stopped True checked 0" % (first + 1)}
    gang(tmp_path / "2", 2, 80, "1:SIGTERM:%d" % second, resume_from=tmp_path / "4" / "checkpoint")
    gang(tmp_path / "3", 3, 80, resume_from=tmp_path / "2" / "checkpoint")
    alone = harness.lines(tmp_path / "whole")
    parts = [line for folder in "423" for line in harness.lines(tmp_path / folder)]
    assert [line["step"] for line in parts] == [line["step"] for line in alone] == list(range(1, 81))
    apart = np.array([line["loss"] for line in parts]) - np.array([line["loss"] for line in alone])
    assert np.abs(apart).max() < 1e-5
