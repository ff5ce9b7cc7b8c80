"""Resized in place: a run meets its members anew between two steps.

1. A newcomer says `ready` once its program has come to its loop, and waits until the file lists it.
2. Members agree on the newest generation that one of them has seen, as on a stop; so all change at the same step.
3. Who leaves says `left` and ends its loop. The others number themselves anew and meet by `rebuild`
   ([`world`] brings one over sockets); newcomers get step and state from the coordinator. Each says `joined`.
4. A member's death interrupts a step (`MemberLost`). Whoever is left waits for the generation that says so,
   meets anew, and goes on from the coordinator's state: a step counts when the coordinator has done it.
5. A program without `rebuild` says `refused`: the job is then resized by checkpoint and restart.
"""

from __future__ import annotations

import contextlib
import time
from typing import Callable, Iterator, Optional, TypeVar

from .membership import JOINED, LEFT, REFUSED, Members, Membership

T = TypeVar("T")

# Between two looks while nothing else can be done.
_PAUSE_S = 0.05


class MemberLost(Exception):
    """Another member has gone in the middle of what all do together."""


class Superseded(Exception):
    """A newer generation has come while the members were to meet."""


class Elastic:
    """The membership of one run."""

    def __init__(self, run, lost_after_s: float = 120.0):
        self._run = run
        self._lost_after_s = lost_after_s
        self.members = Members(run.place)
        self.generation = 0
        self._rebuild: Optional[Callable[[Membership], None]] = None
        self._has_entered = False

    def rebuild_with(self, rebuild: Callable[[Membership], None]) -> None:
        """How the members of a generation meet, and newcomers get the coordinator's state."""
        self._rebuild = rebuild

    def look(self) -> int:
        """The newest generation that this member has seen."""
        latest = self.members.look(now=self._run.requests.look_wanted())
        return latest.generation if latest else 0

    def enter(self) -> bool:
        """Before each step; the first time, a member meets the others. Whether it takes part."""
        if not self._has_entered and self.members.is_elastic:
            newcomer = self.members.is_newcomer()
            if newcomer:
                self.members.ready()
                if not self._wait(lambda: not self.members.is_newcomer()):
                    return False
            self._meet(may_skip=not newcomer)
        self._has_entered = True
        return not self._run.is_over

    def change(self, generation: int) -> None:
        """After a step: the members have agreed on this generation."""
        if self.members.is_elastic and generation > self.generation:
            if self._wait(lambda: self.look_now() >= generation):
                self._meet(may_skip=False)

    def look_now(self) -> int:
        """The newest generation in the file."""
        latest = self.members.look(now=True)
        return latest.generation if latest else 0

    def guard(self, decide: Callable[[], T]) -> Optional[T]:
        """Decides after a step; None if a member was lost meanwhile, and the members have met anew."""
        try:
            return decide()
        except MemberLost:
            if not self.members.is_elastic:
                raise
            self._run._in_step = False
            if self._run.is_coordinator:
                self._run.count()
            self._recover()
            return None

    @contextlib.contextmanager
    def attempt(self) -> Iterator[None]:
        """A step that is done again if a member is lost in it."""
        try:
            yield
        except MemberLost:
            if not self.members.is_elastic:
                raise
            self._run._in_step, self._run._again = False, True
            self._recover()

    def _recover(self) -> None:
        known = self.generation
        if self._wait(lambda: self.look_now() > known, self._lost_after_s):
            self._meet(may_skip=False)

    def _meet(self, may_skip: bool) -> None:
        run = self._run
        while True:
            membership = self.members.latest
            own = membership.of(self.members.own)
            if own is None:
                run.left = True
                self.members.acknowledge(membership.generation, LEFT, run.done)
                return
            if self._rebuild is None:
                state = JOINED if may_skip else REFUSED
            else:
                try:
                    run.rank, run.world_size = own.rank, membership.size
                    self._rebuild(membership)
                except Superseded:
                    continue
                except MemberLost:
                    known = membership.generation
                    if not self._wait(lambda: self.look_now() > known, self._lost_after_s):
                        return
                    continue
                state = JOINED
            self.generation = membership.generation
            self.members.acknowledge(membership.generation, state, run.done)
            return

    def _wait(self, until: Callable[[], bool], limit_s: Optional[float] = None) -> bool:
        """Waits; False if a stop was asked for meanwhile: the coordinator then saves what it has."""
        begun = time.monotonic()
        while not until():
            if self._run.requests.stop:
                self._run.stop_alone()
                return False
            if limit_s is not None and time.monotonic() - begun > limit_s:
                raise MemberLost("no generation without the lost member has come in %d s" % limit_s)
            time.sleep(_PAUSE_S)
        return True
