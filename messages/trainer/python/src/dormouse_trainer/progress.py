"""Progress: lines of JSON, appended to the file that the agent reads."""

from __future__ import annotations

import json
import math
import threading
import time
from pathlib import Path
from typing import Callable, Dict, Optional, Union

Number = Union[int, float]
Metric = Union[Number, Callable[[], Number]]


class Progress:
    """Appends a line at most once in `every_s`, and the last one always. Any thread may report."""

    def __init__(self, path: Optional[Path], every_s: float = 1.0, echo: bool = False, clock=time.monotonic):
        self._path = path
        self._every_s = every_s
        self._echo = echo
        self._clock = clock
        self._next_s = -math.inf
        self._lock = threading.Lock()
        self._written = -1
        self._pending: Optional[tuple] = None

    @property
    def is_due(self) -> bool:
        """Whether a report would be written now."""
        return self._clock() >= self._next_s

    def report(self, step: int, steps_total: int, metrics: Dict[str, Metric], now: bool = False) -> bool:
        """Writes a line if one is due or `now`; what is not written is kept for [`flush`]."""
        with self._lock:
            if not now and not self.is_due:
                self._pending = (step, steps_total, metrics)
                return False
            self._write(step, steps_total, metrics)
            return True

    def flush(self) -> None:
        """Writes the last report, if it was not due when it came."""
        with self._lock:
            if self._pending is not None and self._pending[0] > self._written:
                self._write(*self._pending)

    def _write(self, step: int, steps_total: int, metrics: Dict[str, Metric]) -> None:
        self._next_s = self._clock() + self._every_s
        self._written, self._pending = step, None
        if self._path is None and not self._echo:
            return
        line = {"step": step, "steps_total": steps_total}
        for name, metric in metrics.items():
            number = metric() if callable(metric) else metric
            # Numbers of numpy and of frameworks are not JSON's.
            number = number if isinstance(number, int) else float(number)
            # JSON has no NaN: a line with one would be no line.
            if math.isfinite(number):
                line[name] = number
        text = json.dumps(line)
        if self._echo:
            print(text, flush=True)
        if self._path is not None:
            with open(self._path, "a", encoding="utf-8") as file:
                file.write(text + "\n")
