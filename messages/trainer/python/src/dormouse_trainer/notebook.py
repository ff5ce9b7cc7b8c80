"""A function in a notebook's cell becomes a job.

    from dormouse_trainer.notebook import job

    @job(tenant="ads", cpu=2, memory="4Gi", containers=(1, 8))
    def digits(run, steps=500):
        from sklearn.linear_model import SGDClassifier      # what it uses, it imports
        …

    submitted = digits(steps=1000)      # returns at once
    submitted.wait(), submitted.logs()

The function's source travels in the job's document, so that the nodes need no copy of the notebook; they need a
`python3` with this library. Its arguments must be JSON. If its first parameter is called `run`, it is given one.
Talks to the cluster by the `dormouse` command, which must be on the PATH.
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import json
import subprocess
import textwrap
from typing import Callable, Optional, Sequence, Tuple, Union

# One document is at most a mebibyte; a command's argument under Linux at most 128 KiB.
_SOURCE_BYTES = 120 * 1024

_PROGRAM = """\
import dormouse_trainer

run = dormouse_trainer.Run(echo=True)

{source}

{call}
"""


class NotAJob(ValueError):
    """A function that cannot run away from its notebook."""


class CommandFailed(RuntimeError):
    """The `dormouse` command has said no; its own words."""


def job(
    function: Optional[Callable] = None,
    *,
    name: Optional[str] = None,
    tenant: Optional[str] = None,
    cpu: Union[int, float, str] = 1,
    memory: str = "1Gi",
    gpu: Union[int, float] = 0,
    containers: Tuple[int, int] = (1, 1),
    executor: str = "plain",
    weight: int = 1,
    grace_s: int = 60,
    retries: int = 2,
    command: Sequence[str] = ("dormouse",),
    **document,
):
    """Turns a function into one that submits itself as a job. `document`: further fields of the job's document, as
    they are. `command`: the command line of `dormouse`, such as `["dormouse", "--server", url]`."""
    if function is None:
        return functools.partial(
            job, name=name, tenant=tenant, cpu=cpu, memory=memory, gpu=gpu, containers=containers, executor=executor,
            weight=weight, grace_s=grace_s, retries=retries, command=command, **document,
        )  # fmt: skip
    source = _source(function)
    demand = {"cpu": cpu, "memory": memory, **({"gpu": gpu} if gpu else {})}

    @functools.wraps(function)
    def submit(*arguments, **named) -> "Submitted":
        program = ["python3", "-c", _program(function, source, arguments, named)]
        spec = {
            "name": name,
            "tenant": tenant,
            "kind": "training",
            "executor": executor,
            "command": {"start": program, "resume": program},
            "demand": demand,
            "weight": weight,
            "containers": {"min": containers[0], "max": containers[1]},
            "checkpoint": {"mode": "exit", "signal": "SIGTERM", "grace_s": grace_s},
            "retries": retries,
            **document,
        }
        spec = {field: value for field, value in spec.items() if value is not None}
        answer = _dormouse(command, ["submit", "-", "-o", "json"], json.dumps(spec), accepted=(0, 2))
        return Submitted(json.loads(answer)["job"], tuple(command))

    # The document of a call, without submitting it; the function itself.
    submit.local = function
    return submit


class Submitted:
    """A job that was submitted."""

    def __init__(self, job_id: str, command: Sequence[str] = ("dormouse",)):
        #: `tenant/name`
        self.id = job_id
        self._command = command

    def __repr__(self) -> str:
        return "Submitted(%r)" % self.id

    def show(self) -> dict:
        """What the cluster knows of it."""
        return json.loads(_dormouse(self._command, ["job", "show", self.id, "-o", "json"]))

    def logs(self) -> str:
        """What its containers printed."""
        return _dormouse(self._command, ["job", "logs", self.id])

    def wait(self) -> str:
        """Waits for its end: `completed`, `failed` or `cancelled`."""
        ends = {0: "completed", 3: "failed", 4: "cancelled"}
        process = subprocess.run([*self._command, "job", "wait", self.id], capture_output=True, text=True)
        if process.returncode not in ends:
            raise CommandFailed(process.stderr.strip())
        return ends[process.returncode]

    def cancel(self) -> None:
        """Ends it."""
        _dormouse(self._command, ["job", "cancel", self.id])


def _source(function: Callable) -> str:
    """The function's text without its decorators; it must stand alone."""
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except OSError as error:
        raise NotAJob("the source of %s is not to be had (%s)" % (function.__name__, error)) from error
    tree = ast.parse(text)
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise NotAJob("%s is no plain function" % function.__name__)
    foreign = sorted(_foreign(function.__code__) | set(function.__code__.co_freevars))
    if foreign:
        raise NotAJob(
            "%s uses %s from outside of itself: import or pass it inside" % (function.__name__, ", ".join(foreign))
        )
    return "\n".join(text.splitlines()[definition.lineno - 1 : definition.end_lineno])


def _foreign(code) -> set:
    """Global names that a function or one within it uses, builtins apart."""
    import dis

    used = {it.argval for it in dis.get_instructions(code) if it.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in code.co_consts:
        if inspect.iscode(constant):
            used |= _foreign(constant)
    return {name for name in used if not hasattr(builtins, name)} - {"dormouse_trainer"}


def _program(function: Callable, source: str, arguments: tuple, named: dict) -> str:
    parameters = list(inspect.signature(function).parameters)
    first = ["run"] if parameters[:1] == ["run"] else []
    try:
        data = json.dumps([arguments, named])
    except TypeError as error:
        raise NotAJob("the arguments of %s must be JSON: %s" % (function.__name__, error)) from error
    words = first + ["*arguments", "**named"]
    call = "import json\n\narguments, named = json.loads(%r)\n%s(%s)" % (data, function.__name__, ", ".join(words))
    inspect.signature(function).bind(*([None] * len(first)), *arguments, **named)
    program = _PROGRAM.format(source=source, call=call)
    if len(program.encode()) > _SOURCE_BYTES:
        raise NotAJob("%s is too long for a job's document: put it into a file on the nodes" % function.__name__)
    return program


def _dormouse(command: Sequence[str], words: Sequence[str], text: Optional[str] = None, accepted=(0,)) -> str:
    try:
        process = subprocess.run([*command, *words], input=text, capture_output=True, text=True)
    except FileNotFoundError:
        raise CommandFailed("%s is not on the PATH" % command[0]) from None
    if process.returncode not in accepted:
        raise CommandFailed(process.stderr.strip() or process.stdout.strip())
    return process.stdout
