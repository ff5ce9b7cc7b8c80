"""Documents to bytes, status messages to events, and what comes of a submission.

The same document has the same bytes in every language's client (keys sorted, nothing added), so
that a submission that is sent again is known by its hash.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, Mapping

import msgpack

Encoding = Literal["json", "msgpack"]
CONTENT_TYPES: dict[str, str] = {"json": "application/json", "msgpack": "application/msgpack"}
ENDS = ("job.completed", "job.failed", "job.cancelled")


def encode(document: Mapping[str, Any], encoding: Encoding) -> bytes:
    """The canonical bytes of a document."""
    if encoding == "msgpack":
        return msgpack.packb(_sorted(document), use_bin_type=True)
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _sorted(value[key]) for key in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [_sorted(item) for item in value]
    return value


@dataclass(frozen=True)
class Event:
    """Something that happened to a job. Unknown types and fields may come: pass over them."""

    type: str
    """Such as `job.completed`."""
    version: int
    id: str
    """The same event has the same id."""
    subject: str
    """What it is about: `tenant/name`, as a rule."""
    time: datetime
    sequence: int
    """Its place on the cluster's log; 0 where it is not known."""
    data: dict[str, Any]
    traceparent: str | None = None

    @property
    def is_end(self) -> bool:
        """Whether the job is over with it."""
        return self.type in ENDS


@dataclass(frozen=True)
class Submission:
    """A job that the cluster has, or (`stored`) that the broker has for it."""

    job: str
    ingress_sequence: int
    state: str
    """`stored`, `admitted`, `started`, `completed`, `failed` or `cancelled`."""
    existing: bool = False
    """Whether the same document was submitted under this name before."""
    reason: str = ""
    sha256: str = ""


def event(payload: bytes, headers: Mapping[str, str] | None) -> Event:
    """Reads a status message."""
    read = msgpack.unpackb(payload, raw=False, strict_map_key=False)
    name, _, version = read["type"].removeprefix("dormouse.").rpartition(".v")
    return Event(
        type=name,
        version=int(version),
        id=read["id"],
        subject=read.get("subject", ""),
        time=datetime.fromisoformat(read["time"].replace("Z", "+00:00")),
        sequence=int((headers or {}).get("Nats-Sequence", 0)),
        data=read.get("data") or {},
        traceparent=read.get("traceparent"),
    )
