"""Resized in place: the test is the agent, and writes the files of members."""

import json
import os
import signal
import socket

import dormouse_trainer as dormouse
import harness
import numpy as np
import pytest
from dormouse_trainer import membership
from dormouse_trainer.checkpoints import read
from dormouse_trainer.place import Place


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


class Agents:
    """The agents of one job: containers by the ids of their members."""

    def __init__(self, folder, steps, step_ms, program="train_in_place.py"):
        self.folder, self.arguments = folder, (steps, step_ms)
        self.program = program
        self.generation, self.members, self.ports = 0, [], {}
        self.processes = {}

    def environment(self, member):
        folder = self.folder / member
        files = {"MEMBERS": folder / "members", "ACK": folder / "ack", "MEMBER": member, "GENERATION": self.generation}
        env = harness.environment(folder, **{"DORMOUSE_" + name: value for name, value in files.items()})
        # One folder of checkpoints for the job.
        (self.folder / "checkpoint").mkdir(exist_ok=True)
        return {**env, "DORMOUSE_CHECKPOINT_DIR": str(self.folder / "checkpoint")}

    def start(self, *members):
        for member in members:
            self.ports.setdefault(member, free_port())
            self.processes[member] = harness.start(harness.command(self.program, *self.arguments), self.environment(member))

    def announce(self, members, leaving=(), cause="resized"):
        """A generation, to everybody who runs."""
        self.members = members
        document = {
            "generation": self.generation,
            "members": [
                {"id": member, "rank": rank, "address": "127.0.0.1", "port": self.ports[member], "slots": 1}
                for rank, member in enumerate(members)
            ],
            "leaving": list(leaving),
            "deadline": "2030-01-01T00:00:00Z" if leaving else None,
            "cause": cause,
        }
        for member in self.processes:
            path = self.folder / member / "members"
            path.with_suffix(".new").write_text(json.dumps(document))
            os.rename(path.with_suffix(".new"), path)

    def ack(self, member):
        path = self.folder / member / "ack"
        return json.loads(path.read_text()) if path.exists() else {}

    def await_ack(self, members, state):
        """All have answered this generation in this way; their steps."""

        def answered():
            answers = [self.ack(member) for member in members]
            wanted = all((it.get("generation"), it.get("state")) == (self.generation, state) for it in answers)
            return wanted and [it.get("step") for it in answers]

        return harness.await_that("%s by %s" % (state, members), answered)

    def await_step(self, step):
        harness.await_that("step %d" % step, lambda: any(it["step"] >= step for it in self.progress()))

    def progress(self):
        return harness.lines(self.folder / self.members[0])

    def step(self):
        return max((it["step"] for it in self.progress()), default=0)

    def begin(self, *members):
        self.generation = 1
        self.start(*members)
        self.announce(list(members), cause="started")
        self.await_ack(members, "joined")

    def grow(self, *members):
        self.generation += 1
        self.start(*members)
        assert self.await_ack(members, "ready") == [None] * len(members)
        self.announce(self.members + list(members))
        steps = self.await_ack(self.members, "joined")
        assert len(set(steps)) == 1, "all join at one step: %s" % steps

    def shrink(self, *members):
        self.generation += 1
        staying = [member for member in self.members if member not in members]
        self.announce(staying, leaving=members)
        steps = self.await_ack(members, "left") + self.await_ack(staying, "joined")
        assert len(set(steps)) == 1, "all leave and go on at one step: %s" % steps
        for member in members:
            assert "left True" in harness.finish(self.processes.pop(member))

    def finish(self):
        return [harness.finish(self.processes.pop(member)) for member in self.members]


@pytest.fixture
def agents(tmp_path):
    made = []

    def make(*arguments, **more):
        made.append(Agents(tmp_path / str(len(made)), *arguments, **more))
        made[-1].folder.mkdir()
        return made[-1]

    yield make
    for agents in made:
        for process in agents.processes.values():
            process.kill()
            process.communicate()


def one_process(agents, steps):
    alone = agents(steps, 0)
    alone.begin("a")
    alone.finish()
    return [it["loss"] for it in alone.progress()]


def assert_followed(progress, alone):
    assert [it["step"] for it in progress] == list(range(1, len(alone) + 1)), "no step lost, none twice"
    assert np.abs(np.array([it["loss"] for it in progress]) - alone).max() < 1e-5


def test_worlds_of_4_2_and_3_follow_the_loss_of_one(agents):
    alone = one_process(agents, 300)
    many = agents(300, 10)
    many.begin("a", "b", "c", "d")
    many.await_step(20)
    many.shrink("b", "d")
    many.await_step(many.step() + 20)
    many.grow("e")
    ends = many.finish()
    assert [end.splitlines()[-1] for end in ends] == [
        "end rank %d of 3 done 300 left False stopped False" % rank for rank in range(3)
    ]
    assert_followed(many.progress(), alone)
    sizes = [it["members"] for it in many.progress()]
    assert sorted(set(sizes), key=sizes.index) == [4, 2, 3]
    assert read(many.folder / "checkpoint").step == 300


def test_a_member_killed_in_a_step_is_done_without(agents):
    generator = harness.seeded("a member is killed")
    alone = one_process(agents, 300)
    many = agents(300, 10)
    many.begin("a", "b", "c")
    for victim in generator.sample(["b", "c"], 2):
        many.await_step(many.step() + generator.randrange(5, 30))
        many.processes[victim].kill()
        harness.finish(many.processes.pop(victim), -signal.SIGKILL)
        many.generation += 1
        many.announce([member for member in many.members if member != victim], cause="lost")
        many.await_ack(many.members, "joined")
    many.finish()
    assert_followed(many.progress(), alone)


def test_a_generation_that_is_overtaken_while_the_members_meet(agents):
    """One of the newcomers dies before it is in: the next generation takes the other one alone."""
    many = agents(200, 10)
    many.begin("a", "b")
    many.generation += 1
    many.start("c", "d")
    many.await_ack(["c", "d"], "ready")
    many.processes["d"].kill()
    harness.finish(many.processes.pop("d"), -signal.SIGKILL)
    many.announce(["a", "b", "c", "d"])
    many.generation += 1
    many.announce(["a", "b", "c"], cause="lost")
    many.await_ack(["a", "b", "c"], "joined")
    many.finish()
    assert [it["step"] for it in many.progress()] == list(range(1, 201))


def test_a_stop_of_one_member_ends_all_at_one_step(agents):
    many = agents(100_000, 5)
    many.begin("a", "b", "c")
    many.await_step(10)
    many.processes["b"].send_signal(signal.SIGTERM)
    done = {end.split(" done ")[1].split()[0] for end in many.finish()}
    assert done == {str(read(many.folder / "checkpoint").step)}


def test_a_newcomer_that_is_not_wanted_after_all_ends_by_sigterm(agents):
    many = agents(100_000, 5)
    many.begin("a")
    many.generation += 1
    many.start("b")
    many.await_ack(["b"], "ready")
    many.processes["b"].send_signal(signal.SIGTERM)
    assert "done 0 left False stopped True" in harness.finish(many.processes.pop("b"))
    many.processes["a"].send_signal(signal.SIGTERM)
    many.finish()


def test_a_program_that_cannot_says_refused(agents):
    many = agents(100_000, 5, program="save_on_request.py")
    many.begin("a")
    many.generation += 1
    many.ports["b"] = free_port()
    many.announce(["a", "b"])
    many.await_ack(["a"], "refused")
    many.processes["a"].send_signal(signal.SIGTERM)
    harness.finish(many.processes.pop("a"))


def test_who_leaves_is_not_counted_where_the_file_still_lists_it():
    members = [{"id": name, "rank": rank, "address": "h", "port": 1} for rank, name in enumerate("abcd")]
    document = {"generation": 3, "members": members, "leaving": ["b"], "deadline": None, "cause": None}
    found = membership.parse(json.dumps(document).encode())
    assert [(member.id, member.rank) for member in found.members] == [("a", 0), ("c", 1), ("d", 2)]
    assert found.of("b") is None


def test_a_newcomer_does_not_read_what_the_incarnation_began_from(tmp_path):
    files = {"DORMOUSE_MEMBERS": tmp_path / "members", "DORMOUSE_MEMBER": "4"}
    gone = tmp_path / "gone"
    env = harness.environment(tmp_path, resume_from=gone, DORMOUSE_GENERATION=3, **files)
    assert dormouse.Run(environ=env, signals=False).resumed is None
    with pytest.raises(dormouse.BadCheckpoint):
        dormouse.Run(environ={**env, "DORMOUSE_GENERATION": "0"}, signals=False)


def test_half_a_file_is_not_a_generation(tmp_path):
    env = {"DORMOUSE_MEMBERS": str(tmp_path / "members"), "DORMOUSE_MEMBER": "a"}
    members = membership.Members(Place.of(env))
    for text in ("", "{", "[]", '{"generation": 1}'):
        (tmp_path / "members").write_text(text)
        assert members.look(now=True) is None
