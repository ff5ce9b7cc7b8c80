"""Counts steps, and misbehaves on demand: the job of the tests. No dependencies; every rank counts for itself."""

import os
import signal
import sys
import time

import common

SIGNALS = common.Signals()
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
    faulty = options.fault_rank in (None, common.RANK)
    if options.ignore_sigterm and faulty:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    checkpoints, progress = common.Checkpoints(), common.Progress(options.steps, every_s=0.2)
    resumed = checkpoints.load()
    if options.resume and not resumed:
        sys.exit("count: --resume, but DORMOUSE_RESUME_FROM is not set")
    step = resumed[0] if resumed else 0
    print("count: from step %d, rank %d of %d" % (step, common.RANK, common.WORLD_SIZE), flush=True)

    def save(fault):
        if fault == "hang":
            while True:
                time.sleep(1)
        if common.RANK != 0 or fault == "never":
            return True
        time.sleep(options.checkpoint_s)
        if fault in ("fail", "die"):
            with open(os.path.join(checkpoints.directory, "step-%08d.npz.tmp" % step), "wb") as file:
                file.write(b"half a check")
            if fault == "die":
                os.kill(os.getpid(), signal.SIGKILL)
            return False
        checkpoints.save(step, lambda file: file.write(b"%d" % step))
        return True

    while step < options.steps and not SIGNALS.stop:
        early = options.exit_attempts is None or int(os.environ.get("DORMOUSE_INCARNATION", "1")) <= options.exit_attempts
        if step == options.exit_at and faulty and early:
            os._exit(options.exit_code)
        common.pause(options.step_ms)
        step += 1
        if progress.due(step):
            progress.report(step)
        if SIGNALS.save or (options.checkpoint_every and step % options.checkpoint_every == 0):
            fault = options.on_checkpoint if SIGNALS.save and faulty else None
            SIGNALS.save = False
            save(fault)
    # An early end asked for by --exit-at must not also happen at the end.
    code = options.exit_code if options.exit_at is None and faulty and not SIGNALS.stop else 0
    if not save(options.on_checkpoint if SIGNALS.stop and faulty else None):
        code = 1
    SIGNALS.ignore()
    sys.exit(code)


if __name__ == "__main__":
    main()
