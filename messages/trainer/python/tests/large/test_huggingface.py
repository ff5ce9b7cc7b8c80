"""Hugging Face's Trainer, alone and with two ranks over gloo. `make trainers-all` runs it."""

import json
import re
import sys

import harness
from test_elastic import free_port

PROGRAM = harness.HERE / "large" / "train_huggingface.py"


def gang(folder, ranks, steps, *asked, resume_from=None):
    """As the executor starts it; what each rank says at its end."""
    port = free_port()
    cluster = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": ranks, "LOCAL_RANK": 0}
    gang = []
    for rank in range(ranks):
        # Alone it is no process group.
        among = {**cluster, "RANK": rank, "GLOO_SOCKET_IFNAME": "lo"} if ranks > 1 else {}
        env = harness.environment(folder, resume_from, rank, ranks, HF_OUTPUT=folder / "output", **among)
        gang.append(harness.start([sys.executable, str(PROGRAM), str(steps), *asked], env))
    ends = [line for process in gang for line in harness.finish(process).splitlines()]
    said = [re.fullmatch(r"(rank .*) losses (.*)", line) for line in ends]
    return [(match[1], json.loads(match[2])) for match in said if match]


def test_saves_hold_the_steps_done_and_leave_nothing_else(tmp_path):
    generator = harness.seeded("hugging face saves")
    words = ["0:SIGUSR1:%d" % step for step in generator.sample(range(59), 20)]
    [(said, _)] = gang(tmp_path, 1, 60, *words)
    assert said == "rank 0 of 1 done 60 stopped False checked 20"
    assert list((tmp_path / "output").glob("checkpoint-*")) == []


def test_a_resumed_training_repeats_and_loses_no_step(tmp_path):
    generator = harness.seeded("hugging face resumes")
    stop = generator.randrange(1, 39)
    [(said, whole)] = gang(tmp_path / "whole", 1, 40)
    assert said == "rank 0 of 1 done 40 stopped False checked 0"
    [(said, _)] = gang(tmp_path / "first", 1, 40, "0:SIGTERM:%d" % stop)
    assert said == "rank 0 of 1 done %d stopped True checked 0" % (stop + 1)
    [(said, losses)] = gang(tmp_path / "second", 1, 40, resume_from=tmp_path / "first" / "checkpoint")
    assert said == "rank 0 of 1 done 40 stopped False checked 0"
    # The Trainer's history comes back with the checkpoint: it is that of one training, loss by loss.
    assert losses == whole


def test_two_ranks_stop_at_one_step_whichever_is_asked(tmp_path):
    generator = harness.seeded("hugging face ranks")
    rank, stop = generator.randrange(2), generator.randrange(1, 19)
    ends = gang(tmp_path / "first", 2, 20, "%d:SIGTERM:%d" % (rank, stop))
    assert [said for said, _ in ends] == ["rank %d of 2 done %d stopped True checked 0" % (r, stop + 1) for r in (0, 1)]
    ends = gang(tmp_path / "second", 2, 20, resume_from=tmp_path / "first" / "checkpoint")
    assert [said for said, _ in ends] == ["rank %d of 2 done 20 stopped False checked 0" % r for r in (0, 1)]
