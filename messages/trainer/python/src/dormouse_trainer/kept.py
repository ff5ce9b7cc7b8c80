"""Objects that are saved and restored by themselves, in place.

| object | saved | restored |
|---|---|---|
| with `state_dict` and `load_state_dict` | its state | loaded |
| numpy array | its values | written into it |
| dict, list, set, bytearray | itself | its contents replaced |
| any other with a `__dict__` | itself, by pickle | its attributes replaced |

What cannot be changed in place (a number, a string, a tuple) is refused: put it into a dict.
A checkpoint is code as far as pickle is concerned: it is read only from the job's own folder.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any, Dict

FILE = "state.pickle"


class Kept:
    """The objects of one run by name."""

    def __init__(self):
        self._objects: Dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def add(self, **objects: Any) -> None:
        """Keeps objects from now on."""
        for name, value in objects.items():
            if _kind(value) is None:
                raise TypeError(
                    "%s is %s, which cannot be restored in place; keep a dict, an array or an object that holds it"
                    % (name, type(value).__name__)
                )
            self._objects[name] = value

    def dumps(self) -> bytes:
        """All of them, as they are now."""
        return pickle.dumps({name: _state(value) for name, value in self._objects.items()}, protocol=4)

    def loads(self, data: bytes, names=None) -> None:
        """Restores them (or those of `names`), each in place."""
        states = pickle.loads(data)
        wanted = self._objects if names is None else names
        missing = [name for name in wanted if name not in states]
        if missing:
            raise KeyError("the checkpoint has no %s; it has %s" % (", ".join(missing), ", ".join(sorted(states))))
        for name in wanted:
            _restore(self._objects[name], states[name])

    def write(self, folder: Path) -> None:
        """Into a checkpoint."""
        (folder / FILE).write_bytes(self.dumps())


def _kind(value: Any):
    if hasattr(value, "state_dict") and hasattr(value, "load_state_dict"):
        return "states"
    if hasattr(value, "__array_interface__") and hasattr(value, "flags"):
        return "array" if value.shape and value.flags.writeable else None
    if isinstance(value, (dict, set)):
        return "update"
    if isinstance(value, (list, bytearray)):
        return "slice"
    return "attributes" if hasattr(value, "__dict__") and not isinstance(value, type) else None


def _state(value: Any) -> Any:
    return value.state_dict() if _kind(value) == "states" else value


def _restore(value: Any, state: Any) -> None:
    kind = _kind(value)
    if kind == "states":
        value.load_state_dict(state)
    elif kind == "array":
        if value.shape != state.shape or value.dtype != state.dtype:
            raise ValueError(
                "the checkpoint holds %s of %s, the program has %s of %s"
                % (state.dtype, state.shape, value.dtype, value.shape)
            )
        value[...] = state
    elif kind == "update":
        value.clear()
        value.update(state)
    elif kind == "slice":
        value[:] = state
    else:
        value.__dict__.clear()
        value.__dict__.update(state.__dict__)
