"""The members of a gang over sockets: numpy arrays summed, a stop agreed on. For programs without a framework
that does this, and for jobs that are resized in place. Needs nothing but the standard library; arrays need numpy.

Everything passes through the coordinator: it adds up in the order of ranks, so that sums are the same on all members
and in every repetition. A frame is its length and its bytes; nothing that comes in over a socket is unpickled
but the coordinator's state, by members who connected to the coordinator's own address.
"""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from typing import Dict, List, Optional, Sequence

from .elastic import MemberLost, Superseded
from .membership import LOST, Member, Membership

_LENGTH = struct.Struct("!Q")
# How often a wait looks whether the membership has changed.
_LOOK_S = 0.2
# A greeting is short: more is not one of ours.
_GREETING_BYTES = 4096


class World:
    """All members of a run. `port_offset`: which of the member's eight ports is used."""

    def __init__(self, run, port_offset: int = 0, meet_within_s: float = 120.0):
        self._run = run
        self._offset, self._meet_within_s = port_offset, meet_within_s
        self._membership: Optional[Membership] = None
        self._listener: Optional[socket.socket] = None
        self._coordinator: Optional[socket.socket] = None
        self._others: Dict[int, socket.socket] = {}
        run.agree_with(self.agree)
        run.elastic.rebuild_with(self._rebuild)

    @property
    def rank(self) -> int:
        return self._run.rank

    @property
    def size(self) -> int:
        return self._run.world_size

    # ── what all members do together ─────────────────────────────────────────────────────────────

    def agree(self, values: Sequence[float]) -> List[float]:
        """The maximum over the members, entry by entry."""
        layout = struct.Struct("!%dd" % len(values))
        parts = self._collect(layout.pack(*values))
        if parts is not None:
            entries = [layout.unpack(part) for part in parts]
            return list(layout.unpack(self._spread(layout.pack(*map(max, zip(*entries))))))
        return list(layout.unpack(self._receive(self._coordinator)))

    def sum(self, array):
        """The sum of the members' arrays; of one shape and type."""
        import numpy as np

        array = np.ascontiguousarray(array)
        parts = self._collect(array.tobytes())
        if parts is not None:
            total = array.copy()
            for part in parts[1:]:
                total += np.frombuffer(part, dtype=array.dtype).reshape(array.shape)
            data = self._spread(total.tobytes())
        else:
            data = self._receive(self._coordinator)
        return np.frombuffer(data, dtype=array.dtype).reshape(array.shape).copy()

    def broadcast(self, data: bytes = b"") -> bytes:
        """The coordinator's bytes."""
        self._ensure()
        return self._spread(data) if self._run.is_coordinator else self._receive(self._coordinator)

    def close(self) -> None:
        """Ends all connections."""
        for connection in [self._coordinator, self._listener, *self._others.values()]:
            if connection is not None:
                connection.close()
        self._coordinator = self._listener = None
        self._others = {}

    def _collect(self, data: bytes) -> Optional[List[bytes]]:
        """To the coordinator: everybody's bytes, by rank. To the others: None."""
        self._ensure()
        if self._run.is_coordinator:
            return [data] + [self._receive(self._others[rank]) for rank in sorted(self._others)]
        self._send(self._coordinator, data)
        return None

    def _spread(self, data: bytes) -> bytes:
        for rank in sorted(self._others):
            self._send(self._others[rank], data)
        return data

    # ── meeting ──────────────────────────────────────────────────────────────────────────────────

    def _ensure(self) -> None:
        """A gang that is not resized in place meets once, at the addresses of DORMOUSE_PEERS."""
        if self._membership is None:
            peers = self._run.place.peers if self._run.world_size > 1 else ("127.0.0.1:0",)
            split = [peer.rpartition(":") for peer in peers]
            members = tuple(Member(str(rank), rank, host, int(port)) for rank, (host, _, port) in enumerate(split))
            self._gather(Membership(0, members))

    def _rebuild(self, membership: Membership) -> None:
        self._gather(membership)
        run = self._run
        if run.is_coordinator:
            self._spread(json.dumps(run.position()).encode())
            self._spread(run.state())
        else:
            run.go_to(json.loads(self._receive(self._coordinator)))
            run.restore(self._receive(self._coordinator))

    def _gather(self, membership: Membership) -> None:
        """Connects the members of a generation, each to the coordinator."""
        for connection in [self._coordinator, *self._others.values()]:
            if connection is not None:
                connection.close()
        self._coordinator, self._others, self._membership = None, {}, membership
        if membership.size > 1:
            self._accept(membership) if self._run.is_coordinator else self._connect(membership)

    def _accept(self, membership: Membership) -> None:
        if self._listener is None:
            coordinator = membership.coordinator
            self._listener = socket.create_server((coordinator.address, coordinator.port + self._offset), backlog=128)
        give_up = time.monotonic() + self._meet_within_s
        while len(self._others) < membership.size - 1:
            self._check_newer(membership)
            if time.monotonic() > give_up:
                here = [0, *self._others]
                away = [member.id for member in membership.members if member.rank not in here]
                raise MemberLost("members %s did not come within %d s" % (", ".join(away), self._meet_within_s))
            if select.select([self._listener], [], [], _LOOK_S)[0]:
                connection, _ = self._listener.accept()
                self._greeted(membership, connection)
        for rank in sorted(self._others):
            self._send(self._others[rank], b"welcome")

    def _greeted(self, membership: Membership, connection: socket.socket) -> None:
        """Takes a connection in, if it is a member of this generation."""
        try:
            connection.settimeout(5.0)
            greeting = json.loads(_read(connection, _length(connection, _GREETING_BYTES)))
            member = membership.of(str(greeting["id"]))
            is_ours = greeting["generation"] == membership.generation and greeting["job"] == self._run.place.job
        except (OSError, ValueError, KeyError, TypeError, MemberLost):
            connection.close()
            return
        if member is None or member.rank == 0 or not is_ours:
            connection.close()
            return
        former = self._others.get(member.rank)
        if former is not None:
            former.close()
        self._others[member.rank] = _prepared(connection)

    def _connect(self, membership: Membership) -> None:
        coordinator, own = membership.coordinator, membership.members[self._run.rank]
        greeting = {"generation": membership.generation, "id": own.id, "job": self._run.place.job}
        give_up = time.monotonic() + self._meet_within_s
        while True:
            self._check_newer(membership)
            if time.monotonic() > give_up:
                told = (coordinator.address, self._meet_within_s)
                raise MemberLost("the coordinator at %s did not answer within %d s" % told)
            try:
                address = (coordinator.address, coordinator.port + self._offset)
                self._coordinator = _prepared(socket.create_connection(address, timeout=_LOOK_S))
                self._send(self._coordinator, json.dumps(greeting).encode())
                self._receive(self._coordinator, newer=membership)
                return
            except (OSError, MemberLost):
                # Not there yet, or still at another generation.
                time.sleep(_LOOK_S / 4)

    def _check_newer(self, membership: Membership) -> None:
        if self._run.elastic.look_now() > membership.generation:
            raise Superseded
        if self._run.requests.stop and not self._run.elastic.members.is_elastic:
            raise SystemExit("dormouse_trainer: stopped before all members were there")

    # ── frames ───────────────────────────────────────────────────────────────────────────────────

    def _send(self, connection: socket.socket, data: bytes) -> None:
        try:
            view = memoryview(_LENGTH.pack(len(data)) + data)
            while view:
                self._wait(connection, writing=True)
                view = view[connection.send(view) :]
        except OSError as error:
            raise MemberLost("a member has closed its connection (%s)" % error) from error

    def _receive(self, connection: socket.socket, newer: Optional[Membership] = None) -> bytes:
        try:
            wait = lambda: self._wait(connection, newer=newer)
            return _read(connection, _length(connection, wait=wait), wait=wait)
        except OSError as error:
            raise MemberLost("a member has closed its connection (%s)" % error) from error

    def _wait(self, connection: socket.socket, writing: bool = False, newer: Optional[Membership] = None) -> None:
        """Until the socket can go on. A host that has died says nothing: the file of members does."""
        while True:
            reads, writes = ([], [connection]) if writing else ([connection], [])
            if any(select.select(reads, writes, [], _LOOK_S)):
                return
            if newer is not None:
                self._check_newer(newer)
            latest = self._run.elastic.members.look()
            own = self._membership
            if latest is not None and own is not None and latest.generation > own.generation and latest.cause == LOST:
                raise MemberLost("generation %d goes on without a lost member" % latest.generation)


def _prepared(connection: socket.socket) -> socket.socket:
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _length(connection: socket.socket, limit: Optional[int] = None, wait=lambda: None) -> int:
    (length,) = _LENGTH.unpack(_read(connection, _LENGTH.size, wait))
    if limit is not None and length > limit:
        raise ValueError("a frame of %d bytes where %d are the most" % (length, limit))
    return length


def _read(connection: socket.socket, length: int, wait=lambda: None) -> bytes:
    data = bytearray()
    while len(data) < length:
        wait()
        part = connection.recv(min(length - len(data), 1 << 20))
        if not part:
            raise MemberLost("a member has closed its connection")
        data += part
    return bytes(data)
