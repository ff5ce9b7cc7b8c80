"""What a training program needs to be saved, stopped, resumed and resized by Dormouse.

    import dormouse_trainer as dormouse
    run = dormouse.Run()
    run.keep(model=model)
    for step in run.steps(500):
        loss = train(model, step)
        run.report(loss=loss)

The core needs the standard library only. Adapters of frameworks are modules of their own, imported when used:
`dormouse_trainer.sklearn`, `.xgboost`, `.mxnet`, `.mpi`, `.torch`. [`World`] is a gang over sockets.
Outside a job (no DORMOUSE_… in the environment) a run does nothing but count steps.
"""

from .checkpoints import BadCheckpoint, Checkpoint
from .elastic import MemberLost
from .membership import Member, Membership
from .place import Place
from .requests import ignore_signals
from .run import Run, Verdict


def __getattr__(name: str):
    """Sockets are loaded when they are used: what a program imports before it takes the signals is to be little."""
    if name == "World":
        from .world import World

        return World
    raise AttributeError("module %r has no attribute %r" % (__name__, name))


__version__ = "0.1.0"
__all__ = [
    "BadCheckpoint",
    "Checkpoint",
    "Member",
    "MemberLost",
    "Membership",
    "Place",
    "Run",
    "Verdict",
    "World",
    "ignore_signals",
]
