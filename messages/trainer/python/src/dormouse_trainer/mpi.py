"""mpi4py: the ranks of a communicator agree.

    run = dormouse.Run()                     # before `from mpi4py import MPI`
    from mpi4py import MPI
    from dormouse_trainer import mpi
    world = mpi.World(run, MPI.COMM_WORLD)
"""

from __future__ import annotations

import array
import time
from typing import List, Sequence

from .run import Run

# A blocking allreduce spins on a core; this one waits asleep, for the cores are shared.
_PAUSE_S = 0.0005


class World:
    """A communicator whose ranks agree after each step, and sum arrays."""

    def __init__(self, run: Run, communicator):
        self._communicator = communicator
        run.rank, run.world_size = communicator.Get_rank(), communicator.Get_size()
        run.agree_with(self.agree)

    def agree(self, values: Sequence[float]) -> List[float]:
        """The maximum over the ranks, entry by entry."""
        from mpi4py import MPI

        mine, most = array.array("d", values), array.array("d", values)
        self._wait(self._communicator.Iallreduce([mine, MPI.DOUBLE], [most, MPI.DOUBLE], op=MPI.MAX))
        return list(most)

    def sum(self, values):
        """The sum over the ranks of a numpy array."""
        import numpy as np
        from mpi4py import MPI

        total = np.empty_like(values)
        self._wait(self._communicator.Iallreduce(values, total, op=MPI.SUM))
        return total

    @staticmethod
    def _wait(request) -> None:
        while not request.Test():
            time.sleep(_PAUSE_S)
