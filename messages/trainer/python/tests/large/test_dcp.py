"""PyTorch: a model that is divided among the ranks, by torch.distributed.checkpoint. `make trainers-all` runs it."""

import harness
import numpy as np
import test_torch

PROGRAM = harness.HERE / "large" / "train_dcp.py"
harness.LIMIT_S = 180.0


def gang(*arguments, **more):
    return test_torch.gang(*arguments, program=PROGRAM, **more)


def test_all_ranks_save_their_parts_whichever_is_asked(tmp_path):
    generator = harness.seeded("torch parts")
    words = ["%d:SIGUSR1:%d" % (generator.randrange(2), step) for step in generator.sample(range(79), 20)]
    assert gang(tmp_path, 2, 80, *words)[0] == "rank 0 of 2 done 80 stopped False checked 20"


def test_worlds_of_4_2_and_3_share_what_was_saved_and_follow_the_loss_of_one(tmp_path):
    generator = harness.seeded("torch worlds of parts")
    first, second = sorted(generator.sample(range(1, 59), 2))
    gang(tmp_path / "whole", 1, 60)
    ends = gang(tmp_path / "4", 4, 60, "%d:SIGTERM:%d" % (generator.randrange(4), first))
    assert {end.split(" done ")[1] for end in ends} == {"%d stopped True checked 0" % (first + 1)}
    gang(tmp_path / "2", 2, 60, "1:SIGTERM:%d" % second, resume_from=tmp_path / "4" / "checkpoint")
    gang(tmp_path / "3", 3, 60, resume_from=tmp_path / "2" / "checkpoint")
    alone = harness.lines(tmp_path / "whole")
    parts = [line for folder in "423" for line in harness.lines(tmp_path / folder)]
    assert [line["step"] for line in parts] == [line["step"] for line in alone] == list(range(1, 61))
    apart = np.array([line["loss"] for line in parts]) - np.array([line["loss"] for line in alone])
    assert np.abs(apart).max() < 1e-5
