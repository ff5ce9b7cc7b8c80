"""`python3 -m dormouse_trainer save`: a job's checkpoint command (`checkpoint: {mode: continue, command: […]}`).

Asks the training program of this container to save, and waits until a new checkpoint is complete. No signal is
needed: the program looks for the request after each step.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from .checkpoints import MANIFEST
from .place import Place


def main() -> int:
    parser = argparse.ArgumentParser(prog="python3 -m dormouse_trainer", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    save = commands.add_parser("save", help="ask the program to save, and wait until it has")
    save.add_argument("--timeout-s", type=float, default=600.0)
    options = parser.parse_args()
    place = Place.of()
    if place.save_request is None or place.checkpoint is None:
        print("dormouse_trainer: DORMOUSE_PROGRESS or DORMOUSE_CHECKPOINT_DIR is not set: this is no job", file=sys.stderr)
        return 2
    manifest = place.checkpoint / MANIFEST
    before = _identity(manifest)
    place.save_request.touch()
    give_up = time.monotonic() + options.timeout_s
    while _identity(manifest) == before:
        if time.monotonic() > give_up:
            print("dormouse_trainer: nothing was saved in %d s" % options.timeout_s, file=sys.stderr)
            return 1
        time.sleep(0.02)
    return 0


def _identity(path):
    try:
        status = os.stat(path)
        return status.st_ino, status.st_mtime_ns
    except OSError:
        return None


if __name__ == "__main__":
    sys.exit(main())
