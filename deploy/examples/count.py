"""Counts steps, and misbehaves on demand: the job of the tests. No dependencies; every rank counts for itself."""

import os
import signal
import sys
import time

import common

FAULTS = {
    "hang": "never finishes the checkpoint",
    "fail": "writes part of it, no manifest, and exits 1 (after SIGUSR1: runs on)",
    "never": "exits 0 without writing anything (after SIGUSR1: runs on)",
    "die": "is killed by SIGKILL while it writes",
}


def main():
    parser = common.arguments(__doc__, steps=100)
    parser.add_argument("--on-checkpoint", choices=sorted(FAULTS), help="; ".join("%s: %s" % f for f in FAULTS.items()))
    parser.add_argument("--checkpoint-s", type=float, default=0.0, help="how long a checkpoint takes")
    parser.add_argument("--ignore-sigterm", action="store_true")
    parser.add_argument("--exit-code", type=int, default=0, help="the code to exit with")
    parser.add_argument("--exit-at", type=int, default=None, metavar="STEP", help="exit at this step, not at the last one")
    parser.add_argument("--exit-attempts", type=int, default=None, metavar="N", help="exit early only in incarnations up to N")
    parser.add_argument("--fault-rank", type=int, default=None, help="only this rank misbehaves")
    options = parser.parse_args()
    run, saved = common.begin("count", options, report_every_s=0.2), True
    faulty = options.fault_rank in (None, run.rank)
    if options.ignore_sigterm and faulty:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("count: from step %d, rank %d of %d" % (run.done, run.rank, run.world_size), flush=True)
    early = options.exit_attempts is None or run.place.incarnation <= options.exit_attempts

    for step in run.steps(options.steps):
        if step == options.exit_at and faulty and early:
            os._exit(options.exit_code)
        common.pause(options, run.world_size)
        if run.save_due:
            saved = save(run, step + 1, options.on_checkpoint if run.is_asked and faulty else None, options.checkpoint_s)
    # An early end asked for by --exit-at must not also happen at the end.
    code = options.exit_code if options.exit_at is None and faulty and not run.stopped else 0
    sys.exit(code if saved else 1)


def save(run, step, fault, takes_s):
    """Whether it was saved, or that is pretended."""
    if fault == "hang":
        while True:
            time.sleep(1)
    if not run.is_coordinator or fault == "never":
        return True
    time.sleep(takes_s)
    if fault in ("fail", "die"):
        (run.place.checkpoint / "half.tmp").write_bytes(b"half a check")
        if fault == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        return False
    run.save(lambda folder: (folder / "count").write_text(str(step)))
    return True


if __name__ == "__main__":
    main()
