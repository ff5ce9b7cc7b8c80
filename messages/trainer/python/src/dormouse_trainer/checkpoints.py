"""Checkpoints that are whole or not there.

1. Files are written into a new folder under a temporary name, and made durable.
2. The folder gets its name.
3. Last, `checkpoint.json` is replaced by a rename: it names the step, the folder and its files.
4. Only then the checkpoint before it is removed.

Killed at any point, the manifest still names a whole checkpoint. Only what it names is loaded.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Dict, NamedTuple, Optional

MANIFEST = "checkpoint.json"

# The agent reads a manifest of 64 KiB; a sharded checkpoint of more files is named by their number.
_FILES_NAMED = 500
_MANIFEST_BYTES = 64 * 1024


class BadCheckpoint(Exception):
    """A checkpoint that cannot be resumed from."""


class Checkpoint(NamedTuple):
    """A complete checkpoint."""

    #: Steps done when it was written.
    step: int
    #: The folder of its files.
    folder: Path
    #: Their sizes together.
    bytes: int = 0
    #: What else the manifest says.
    manifest: Optional[dict] = None

    def __truediv__(self, name: str) -> Path:
        return self.folder / name


def read(directory: Path) -> Checkpoint:
    """The complete checkpoint in a folder, with its files compared to what the manifest says of them."""
    path = directory / MANIFEST
    try:
        manifest = json.loads(path.read_bytes()[: _MANIFEST_BYTES + 1])
        step = int(manifest["step"])
        folder = directory / str(manifest.get("folder", "."))
        files: Dict[str, int] = manifest.get("files") or {}
        for name, size in files.items():
            found = (folder / name).stat().st_size
            if found != size:
                raise BadCheckpoint("%s has %d bytes, %s says %d" % (folder / name, found, path, size))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadCheckpoint(
            "%s does not describe a whole checkpoint (%s); resume from the one before" % (path, error)
        ) from error
    return Checkpoint(step, folder, int(manifest.get("bytes", 0)), manifest)


class Saving:
    """One save: a folder to write into, which counts once it is committed."""

    def __init__(self, directory: Path, step: int):
        self.step = step
        self._directory = directory
        self.folder = directory / (".saving-%08d" % step)

    def begin(self) -> Path:
        """An empty folder."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        return self.folder

    def commit(self) -> Checkpoint:
        """Makes it the checkpoint."""
        before = _named(self._directory)
        files = _make_durable(self.folder)
        name, number = "step-%08d" % self.step, 0
        while (self._directory / name).exists():
            number += 1
            name = "step-%08d.%d" % (self.step, number)
        folder = self._directory / name
        os.rename(self.folder, folder)
        _sync(self._directory)
        total = sum(files.values())
        manifest = {"step": self.step, "bytes": total, "folder": name, "files_total": len(files)}
        if len(files) <= _FILES_NAMED:
            manifest["files"] = files
        if len(json.dumps(manifest)) > _MANIFEST_BYTES:
            del manifest["files"]
        _replace(self._directory / MANIFEST, json.dumps(manifest).encode())
        for old in self._directory.glob("step-*"):
            if old.name == before and old.name != name:
                shutil.rmtree(old, ignore_errors=True)
        return Checkpoint(self.step, folder, total, manifest)

    def give_up(self) -> None:
        """Leaves the checkpoint before it as it is."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _named(directory: Path) -> Optional[str]:
    try:
        return json.loads((directory / MANIFEST).read_bytes()).get("folder")
    except (OSError, ValueError, AttributeError):
        return None


def _make_durable(folder: Path) -> Dict[str, int]:
    """Flushes every file and folder to the disk; the files' sizes by their path within the folder."""
    sizes = {}
    for path, _folders, names in os.walk(folder):
        for name in sorted(names):
            file = Path(path, name)
            sizes[file.relative_to(folder).as_posix()] = file.stat().st_size
            _sync(file)
        _sync(Path(path))
    return sizes


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _replace(path: Path, data: bytes) -> None:
    """Replaces a file by a rename: a reader sees the old or the new one."""
    temporary = path.with_name(".%s.new" % path.name)
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, path)
    _sync(path.parent)
