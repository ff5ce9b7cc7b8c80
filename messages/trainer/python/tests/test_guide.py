"""The programs that docs/training.md shows: they run, are stopped, go on; the page shows them as they are."""

import os
import subprocess
import sys
import textwrap

import harness
import pytest
from dormouse_trainer.checkpoints import read

GUIDE = harness.HERE / "guide"
PAGE = harness.HERE.parents[3] / "docs" / "training.md"
ALONE = ["first.py", "by_hand.py", "sklearn_partial.py", "xgboost_rounds.py", "mpi_ranks.py"]
ALONE += ["in_place.py", "elastic_batch.py"]


@pytest.mark.parametrize("name", ALONE)
def test_a_program_of_the_guide_is_stopped_and_goes_on(tmp_path, name):
    """The stop is asked for when its step comes to `at`: by the progress that the program writes."""
    pytest.importorskip("numpy")
    env = harness.environment(tmp_path / "1")
    stopping = (
        "import os, runpy, signal, dormouse_trainer as d\n"
        "decide = d.Run._decide\n"
        "def once(run, anew=False):\n"
        "    if run.done == 30: os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return decide(run, anew)\n"
        "d.Run._decide = once\n"
        "runpy.run_path(%r, run_name='__main__')\n" % str(GUIDE / name)
    )
    harness.run([sys.executable, "-c", stopping], env)
    saved = read(tmp_path / "1" / "checkpoint")
    assert saved.step in (31, 32)
    resumed = harness.environment(tmp_path / "2", resume_from=tmp_path / "1" / "checkpoint")
    harness.run([sys.executable, str(GUIDE / name)], resumed)
    assert read(tmp_path / "2" / "checkpoint").step == 200
    assert harness.lines(tmp_path / "2")[0]["step"] == saved.step + 1


def code(name):
    return [line for line in (GUIDE / name).read_text().splitlines() if line.strip()]


def test_a_program_needs_at_most_five_lines_more():
    assert len(code("first.py")) - len(code("plain.py")) <= 5


def blocks():
    """The Python of the page."""
    parts = PAGE.read_text().split("```")
    return [part[len("python\n") :] for part in parts[1::2] if part.startswith("python\n")]


def test_the_page_shows_what_is_tested():
    folders = [GUIDE, harness.HERE, harness.PROGRAMS, harness.HERE / "large"]
    tested = [path.read_text() for folder in folders for path in sorted(folder.glob("*.py"))]
    assert len(blocks()) >= 6
    for block in blocks():
        forms = [textwrap.indent(block, " " * depth) for depth in (0, 4, 8)]
        assert any(form in text for form in forms for text in tested), "not in a tested file:\n" + block


def test_the_script_has_installed_the_library(tmp_path):
    """`scripts/install.sh trainers`: a job's python3 has it without a word of its own."""
    found = subprocess.run(
        [sys.executable, "-c", "import dormouse_trainer as d; print(d.__file__)"],
        cwd=tmp_path, env={}, capture_output=True, text=True,
    )  # fmt: skip
    if found.returncode != 0 and not os.environ.get("DORMOUSE_NO_SKIP"):
        pytest.skip("not installed: scripts/install.sh trainers")
    assert "site-packages" in found.stdout, found.stderr
