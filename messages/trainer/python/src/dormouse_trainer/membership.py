"""Who is in the gang, for a job that is resized in place: the files between the agent and one member.

`DORMOUSE_MEMBERS` is replaced by a rename after each change and holds one *generation*: who is in, who
leaves, until when, why. An id is never used twice, rank 0 is always the coordinator, survivors keep their order.
The member answers by renaming `DORMOUSE_ACK`: `ready` (a newcomer has started and waits to be listed),
`joined`, `left`, or `refused`.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import FrozenSet, NamedTuple, Optional, Tuple

from .place import Place

READY, JOINED, LEFT, REFUSED = "ready", "joined", "left", "refused"

#: The cause of a generation that answers a member's death.
LOST = "lost"


class Member(NamedTuple):
    """One member as the others reach it."""

    id: str
    rank: int
    address: str
    port: int
    slots: int = 1


class Membership(NamedTuple):
    """One generation."""

    generation: int
    #: Those who stay or come, by rank, numbered from 0 without a gap.
    members: Tuple[Member, ...]
    #: The ids of those who are to go.
    leaving: FrozenSet[str] = frozenset()
    deadline: Optional[str] = None
    cause: Optional[str] = None

    def of(self, member_id: str) -> Optional[Member]:
        """A member that stays or comes."""
        return next((member for member in self.members if member.id == member_id), None)

    @property
    def coordinator(self) -> Member:
        return self.members[0]

    @property
    def size(self) -> int:
        return len(self.members)


def parse(text: bytes) -> Membership:
    """Reads the document. Members that leave are taken out, also where it still lists them."""
    document = json.loads(text)
    leaving = frozenset(_id(entry) for entry in document.get("leaving") or ())
    listed = sorted(document["members"], key=lambda entry: int(entry["rank"]))
    staying = [entry for entry in listed if str(entry["id"]) not in leaving]
    members = tuple(
        Member(str(entry["id"]), rank, str(entry["address"]), int(entry["port"]), int(entry.get("slots") or 1))
        for rank, entry in enumerate(staying)
    )
    return Membership(
        int(document["generation"]), members, leaving, document.get("deadline"), document.get("cause")
    )


def _id(entry) -> str:
    return str(entry["id"] if isinstance(entry, dict) else entry)


class Members:
    """The two files of one member."""

    def __init__(self, place: Place, every_s: float = 1.0, clock=time.monotonic):
        self._file, self._ack, self.own = place.members, place.ack, place.member
        self._first = place.generation
        self._every_s, self._clock = every_s, clock
        self._next_s = 0.0
        self.latest: Optional[Membership] = None

    @property
    def is_elastic(self) -> bool:
        """Whether this job is resized in place."""
        return self._file is not None and self.own is not None

    def look(self, now: bool = False) -> Optional[Membership]:
        """The newest membership; reads the file when it is time, or `now`."""
        if self.is_elastic and (now or self._clock() >= self._next_s):
            self._next_s = self._clock() + self._every_s
            try:
                found = parse(Path(self._file).read_bytes())
            except (OSError, ValueError, KeyError, TypeError, AttributeError):
                # Not there yet; it is replaced by a rename, so never half of it.
                return self.latest
            if self.latest is None or found.generation > self.latest.generation:
                self.latest = found
        return self.latest

    def is_newcomer(self) -> bool:
        """Whether the file does not list this member yet."""
        latest = self.look(now=True)
        if latest is None:
            return True
        return latest.generation < (self._first or 0) or (
            latest.of(self.own) is None and self.own not in latest.leaving
        )

    def ready(self) -> None:
        """A newcomer has started."""
        self.acknowledge(self._first or 0, READY, None)

    def acknowledge(self, generation: int, state: str, step: Optional[int]) -> None:
        """Tells the agent what this member has done about a generation."""
        if self._ack is None:
            return
        document = {"generation": generation, "state": state}
        if step is not None:
            document["step"] = step
        temporary = Path(self._ack).with_name(Path(self._ack).name + ".new")
        temporary.write_text(json.dumps(document), encoding="utf-8")
        os.rename(temporary, self._ack)
