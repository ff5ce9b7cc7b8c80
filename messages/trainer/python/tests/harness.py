"""What the tests share: a job's environment in a folder, programs as processes, seeds that are printed."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCE = HERE.parent / "src"
PROGRAMS = HERE / "programs"
# Long, for a machine that does much else; nothing waits so long that works.
LIMIT_S = 60.0


def seeded(name):
    """A generator whose seed is printed: DORMOUSE_TRAINER_SEED repeats a run."""
    seed = int(os.environ.get("DORMOUSE_TRAINER_SEED", random.SystemRandom().randrange(1 << 32)))
    print("%s: DORMOUSE_TRAINER_SEED=%d" % (name, seed))
    return random.Random(seed)


def environment(folder, resume_from=None, rank=0, world_size=1, **more):
    """What the agent would tell a container of a job."""
    folder = Path(folder)
    (folder / "container").mkdir(parents=True, exist_ok=True)
    (folder / "checkpoint").mkdir(exist_ok=True)
    env = {
        "DORMOUSE_JOB": "ads/test",
        "DORMOUSE_INCARNATION": "1",
        "DORMOUSE_RANK": str(rank),
        "DORMOUSE_WORLD_SIZE": str(world_size),
        "DORMOUSE_PROGRESS": str(folder / "container" / "progress"),
        "DORMOUSE_CHECKPOINT_DIR": str(folder / "checkpoint"),
        **{name: str(value) for name, value in more.items()},
    }
    if resume_from is not None:
        env["DORMOUSE_RESUME_FROM"] = str(resume_from)
    return env


def lines(folder):
    """The progress that was written; the last line may be half there."""
    path = Path(folder) / "container" / "progress"
    whole = path.read_text().split("\n")[:-1] if path.exists() else []
    return [json.loads(line) for line in whole]


def command(program, *arguments):
    return [sys.executable, str(PROGRAMS / program), *map(str, arguments)]


def start(argv, env, **more):
    """Starts a program of `programs/` in a session of its own."""
    outer = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH") if name in os.environ}
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    path = "%s:%s" % (Path(sys.executable).parent, outer.get("PATH", ""))
    env = {**outer, **one_thread, **env, "PYTHONPATH": str(SOURCE), "PATH": path}
    process = subprocess.Popen(
        argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True, **more
    )
    # Also while a test reads what it prints.
    process.watchdog = threading.Timer(LIMIT_S, end_group, [process])
    process.watchdog.daemon = True
    process.watchdog.start()
    return process


def end_group(process):
    """Kills what is left of a program and of all that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def finish(process, code=0):
    """What it printed; it must end with `code`."""
    output, _ = process.communicate()
    process.watchdog.cancel()
    assert process.returncode == code, "exit %s: %s" % (process.returncode, output[-3000:])
    return output


def run(argv, env, code=0):
    return finish(start(argv, env), code)


def await_line(process, word):
    """Reads what a program prints until a line begins with `word`; that line."""
    for line in process.stdout:
        if line.startswith(word):
            return line
    raise AssertionError("it ended before it said %r" % word)


def await_that(what, condition):
    """Waits until a condition holds; its value."""
    give_up = time.monotonic() + LIMIT_S
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < give_up, "%s did not happen" % what
        time.sleep(0.01)
