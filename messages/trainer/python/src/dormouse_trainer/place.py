"""This process's place in its job: what the executor has put into the environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Mapping, NamedTuple, Optional, Tuple

# The variables of rank and world, in the order in which they are believed: Dormouse's own, then
# those of launchers under which the same program also runs.
_RANKS = (
    ("DORMOUSE_RANK", "DORMOUSE_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("RANK", "WORLD_SIZE"),
)


class Place(NamedTuple):
    """What one process is told. Absent variables are None; the default is a world of one."""

    job: Optional[str] = None
    incarnation: int = 1
    rank: int = 0
    world_size: int = 1
    #: `address:port` of every rank.
    peers: Tuple[str, ...] = ()
    #: The file that progress is appended to.
    progress: Optional[Path] = None
    #: The folder that this incarnation saves into.
    checkpoint: Optional[Path] = None
    #: The checkpoint to resume from.
    resume_from: Optional[Path] = None
    #: Resized in place: the file of members, of acknowledgements, the own id, the first generation.
    members: Optional[Path] = None
    ack: Optional[Path] = None
    member: Optional[str] = None
    generation: Optional[int] = None
    #: The bounds of the global batch, where the document has them.
    batch_min: Optional[int] = None
    batch_max: Optional[int] = None

    @classmethod
    def of(cls, environ: Optional[Mapping[str, str]] = None) -> "Place":
        """Reads the environment."""
        env = os.environ if environ is None else environ
        rank, world_size = 0, 1
        for rank_name, size_name in _RANKS:
            if env.get(rank_name) and env.get(size_name):
                rank, world_size = _number(env, rank_name), _number(env, size_name)
                break
        batch_min, batch_max = (_number(env, "DORMOUSE_BATCH_%s" % name, None) for name in ("MIN", "MAX"))
        if (batch_min, batch_max) != (None, None) and not 1 <= (batch_min or 0) <= (batch_max or 0):
            raise ValueError(
                "DORMOUSE_BATCH_MIN is %r and DORMOUSE_BATCH_MAX is %r in the environment: "
                "give both, with 1 ≤ min ≤ max"
                % (env.get("DORMOUSE_BATCH_MIN"), env.get("DORMOUSE_BATCH_MAX"))
            )
        return cls(
            job=env.get("DORMOUSE_JOB") or None,
            incarnation=_number(env, "DORMOUSE_INCARNATION", 1),
            rank=rank,
            world_size=world_size,
            peers=tuple(peer for peer in env.get("DORMOUSE_PEERS", "").split(",") if peer),
            progress=_path(env, "DORMOUSE_PROGRESS"),
            checkpoint=_path(env, "DORMOUSE_CHECKPOINT_DIR"),
            resume_from=_path(env, "DORMOUSE_RESUME_FROM"),
            members=_path(env, "DORMOUSE_MEMBERS"),
            ack=_path(env, "DORMOUSE_ACK"),
            member=env.get("DORMOUSE_MEMBER") or None,
            generation=_number(env, "DORMOUSE_GENERATION", None),
            batch_min=batch_min,
            batch_max=batch_max,
        )

    @property
    def save_request(self) -> Optional[Path]:
        """The file whose appearance asks for a save: beside the progress, in the container's folder."""
        return self.progress.parent / "save-request" if self.progress else None


def _path(env: Mapping[str, str], name: str) -> Optional[Path]:
    return Path(env[name]) if env.get(name) else None


def _number(env: Mapping[str, str], name: str, default: Optional[int] = 0) -> Optional[int]:
    text = env.get(name)
    if not text:
        return default
    try:
        return int(text)
    except ValueError:
        raise ValueError("%s is %r in the environment, which is no whole number" % (name, text)) from None
