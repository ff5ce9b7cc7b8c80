"""What the program is asked for: to stop, to save, to look at its members.

A signal only counts up; the training loop looks when a step is done. A handler can run only on the main
thread, and late while C code runs: nothing is decided in it. Former handlers are called too, and come back
at the end. A forked child has the former ones, so that a pool can end its workers.
"""

from __future__ import annotations

import os
import signal
import threading
from typing import Dict, FrozenSet, Optional

#: Signals by what they ask for.
STOP = signal.SIGTERM
SAVE = signal.SIGUSR1
MEMBERS = signal.SIGHUP


class Requests:
    """The requests of one process."""

    def __init__(self, save_file=None, stop=STOP, save=SAVE, members: Optional[int] = None):
        self.stop = False
        self._signalled = 0
        self._asked = 0
        self._answered = 0
        self._look = False
        self._lock = threading.Lock()
        self._save_file = save_file
        self._former: Dict[int, object] = {}
        wanted = [(stop, self._on_stop), (save, self._on_save), (members, self._on_members)]
        self.handlers = {int(number): handler for number, handler in wanted if number is not None}
        # The process whose signals it handles; those of a forked child it does not.
        self._pid: Optional[int] = None
        self._ignores = False

    @property
    def installed(self) -> bool:
        """Whether it handles this process's signals."""
        return self._pid == os.getpid()

    def install(self) -> bool:
        """Takes the signals; False outside the main thread, where Python allows none."""
        global _taken
        if threading.current_thread() is not threading.main_thread():
            return False
        if self.installed:
            return True
        # Before the first is taken: another thread may fork at any time.
        self._pid, self._ignores = os.getpid(), False
        _taken = _taken.union(self.handlers)
        for number, handler in self.handlers.items():
            # Kept before it is replaced: a signal may come in between.
            self._former[number] = signal.getsignal(number)
            signal.signal(number, handler)
        return True

    def _on_stop(self, number, frame):
        self.stop = True
        self._chain(number, frame)

    def _on_save(self, number, frame):
        self._signalled += 1
        self._chain(number, frame)

    def _on_members(self, number, frame):
        self._look = True
        self._chain(number, frame)

    def _chain(self, number, frame):
        former = _beneath(self._former.get(number), number)
        if callable(former):
            former(number, frame)
        elif former == signal.SIG_DFL and not self.installed and not self._ignores:
            # This run is over: a handler that the program set over it calls it.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def ask_stop(self) -> None:
        """Asks for a save and the end, from any thread."""
        self.stop = True

    def ask_save(self) -> None:
        """Asks for a save, from any thread."""
        with self._lock:
            self._asked += 1

    def save_wanted(self) -> bool:
        """Whether a save was asked for since the last call. What comes later counts for the next one."""
        self._look_for_file()
        seen = self._signalled + self._asked
        wanted, self._answered = seen > self._answered, seen
        return wanted

    def _look_for_file(self) -> None:
        if self._save_file is not None:
            try:
                os.unlink(self._save_file)
            except OSError:
                return
            self.ask_save()

    def look_wanted(self) -> bool:
        """Whether a signal said that the members have changed."""
        wanted, self._look = self._look, False
        return wanted

    def ignore(self) -> None:
        """At the end of a job's process. Another member may be signalled later than the agreement was reached,
        and Python resets its handlers as it ends: a late SIGTERM would kill this process while the others wait
        for its good-bye."""
        if self._release():
            self._ignores = True
            for number in self.handlers:
                present = _owner(signal.getsignal(number))
                # A later run has it.
                if present is None or not present.installed:
                    signal.signal(number, signal.SIG_IGN)

    def restore(self) -> None:
        """Gives the signals back to whom they belonged."""
        if self._release():
            _give_back(self.handlers)

    def _release(self) -> bool:
        """Counts as installed no more; whether its signals can be set now."""
        if not self.installed or threading.current_thread() is not threading.main_thread():
            return False
        self._pid = None
        return True

    def under(self, number):
        """What a signal has once it is over; None if that was installed by C code, and cannot be named."""
        return signal.SIG_IGN if self._ignores else self._former.get(number)


#: All signals that were ever taken.
_taken: FrozenSet[int] = frozenset()


def _owner(handler) -> Optional[Requests]:
    owner = getattr(handler, "__self__", None)
    return owner if isinstance(owner, Requests) else None


def _beneath(handler, number):
    """The first handler, from this one on, that is of no run that is over."""
    passed = set()
    while True:
        owner = _owner(handler)
        if owner is None or owner.installed or owner in passed:
            return handler
        passed.add(owner)
        handler = owner.under(number)


def _give_back(numbers) -> None:
    """Gives signals to the handlers under those of requests that are over. A handler that was set since, by the
    program or by a later run, stays: a run that has lost a signal has nothing to give back."""
    for number in numbers:
        present = signal.getsignal(number)
        handler = _beneath(present, number)
        if handler is not None and handler is not present:
            signal.signal(number, handler)


# While a process forks, signals wait: one sent to the child before it has the former handlers would be lost.
_fork = threading.local()


def _before_fork() -> None:
    _fork.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _taken)


def _in_parent() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _fork.mask)


def _in_child() -> None:
    try:
        _give_back(_taken)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, _fork.mask)


os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)


def ignore_signals(*_ignored) -> None:
    """For the workers that load data (`worker_init_fn=`, `initializer=`): a signal that is sent to the whole
    process group must end the training after a save, not the workers under it."""
    for number in (STOP, SAVE, MEMBERS):
        signal.signal(number, signal.SIG_IGN)
