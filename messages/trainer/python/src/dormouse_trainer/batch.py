"""The global batch of a run: fixed, or between the bounds of the document (`batch: {min: 64, max: 1024}`).

    batch = run.batch_of(120)             # 120 where the document has no bounds
    for step in run.steps(500):           # counted in steps of the smallest batch
        rows = batch.rows                 # numbers of this rank's samples
        ...
        learning_rate * batch.gain

How an elastic batch moves:

1. It begins at the smallest size that is a multiple of the number of ranks.
2. The coordinator learns the gradient noise ([`observe`]) and the time of a step. Once the noise is known it tries
   twice the share, then chooses the size with the best goodput ([`goodput`]), at most twice the largest share that it
   has measured.
3. The coordinator's size and gain travel with the ranks' agreement, and count from the next step on all ranks.
4. A step whose gain is r counts as r steps: what is not whole is carried over.

Every rank has the same size, gain and count in each step. All of it is saved with each checkpoint.
"""

from __future__ import annotations

import math
import time
from typing import Callable, Dict, List, Optional, Sequence

from .goodput import Times, best, goodput
from .noise import Noise, gain

#: The file within a checkpoint.
FILE = "batch.json"

# Times of a share before the next choice; later choices are rare, since each change disturbs the training.
_TRIED = 8
_RARELY_STEPS, _RARELY_S = 100, 30.0
# A single rank sees the noise in one step of so many: halves take longer than a whole.
_HALVES_EVERY = 4
# A change must bring this much.
_BETTER = 1.05


class Batch:
    """A batch of one size."""

    is_elastic = False
    #: The factor for the learning rate: how many steps at the smallest batch this step is worth.
    gain = 1.0
    #: Progress of a sample, relative to one at the smallest batch.
    efficiency = 1.0

    def __init__(self, run, size: int):
        if size < 1:
            raise ValueError("a batch of %d samples: give at least 1" % size)
        self._run, self._size = run, size

    @property
    def size(self) -> int:
        """Samples of this step, over all ranks."""
        return self._size

    @property
    def share(self) -> int:
        """Samples of this rank."""
        return len(self.rows)

    @property
    def seen(self) -> int:
        """Samples of all steps before this one: a step's data derive from this number, not from the step's."""
        return self._run.done * self._size

    @property
    def taken(self) -> int:
        """Steps taken, each of its own size; `run.done` counts in steps of the smallest batch."""
        return self._run.done

    @property
    def rows(self) -> range:
        """Numbers of this rank's samples, counted over the whole training."""
        size, seen, run = self.size, self.seen, self._run
        return range(seen + size * run.rank // run.world_size, seen + size * (run.rank + 1) // run.world_size)

    @property
    def parts(self) -> List[range]:
        """The rank's samples by the gradients that are to be computed: one part. A single rank of an elastic batch
        has two halves now and then, to see the noise between them."""
        return [self.rows]

    def observe(self, part_square, mean_square, parts: Optional[int] = None) -> None:
        """Learns the gradient noise from squared norms: that of the mean gradient of a part of the step's samples
        (better: its mean over the parts), and that of the mean gradient of all. `parts`: how many parts there are,
        if not one a rank. Only the coordinator's observations count."""

    def average(self, gradients, total: Callable):
        """The mean gradient over all samples of the step, from those over this rank's [`parts`] (numpy arrays).
        `total` sums an array over the ranks, such as `World.sum`. The noise is observed with the same sum."""
        import numpy as np

        run = self._run
        gradients = [gradients] if hasattr(gradients, "shape") else list(gradients)
        sizes = [len(part) for part in self.parts]
        check_parts(sizes, gradients)
        mean = sum(gradient * (size / max(1, self.share)) for gradient, size in zip(gradients, sizes))
        if len(sizes) > 1:
            squares = [(gradient * gradient).sum() for gradient in gradients]
            self.observe(sum(squares) / len(squares), (mean * mean).sum(), parts=len(squares))
        if run.world_size == 1:
            return mean
        entries = (mean * (self.share / self.size)).ravel()
        if self.is_elastic:
            entries = np.append(entries, (mean * mean).sum() / run.world_size)
        summed = total(entries.astype(mean.dtype))
        if self.is_elastic:
            summed, square = summed[:-1], summed[-1]
            self.observe(square, summed @ summed)
        return summed.reshape(mean.shape)

    # What the run asks; an elastic batch answers.

    def steps(self, left: int) -> int:
        """How many steps the present one counts as."""
        return 1

    def count(self, steps: int, is_timed: bool) -> None:
        """The present step is done."""

    def wishes(self) -> List[float]:
        """What travels with the agreement."""
        return []

    def agreed(self, values: Sequence[float]) -> None:
        """What all ranks got."""

    def metrics(self) -> Dict[str, float]:
        """What each line of progress says."""
        return {}

    def state_dict(self) -> Optional[dict]:
        """What a checkpoint keeps; within a step as it is after it."""
        return None

    def load_state_dict(self, state: dict) -> None:
        """What a checkpoint, or the coordinator, has."""

    def meet(self) -> None:
        """The members have changed: what was agreed before is void."""


class ElasticBatch(Batch):
    """A batch between two bounds. `linear`: each step is worth size ÷ min, as under linear scaling; nothing is
    measured of the noise. `share_max`: no rank takes more samples than this, unless `min` wants it."""

    is_elastic = True

    def __init__(self, run, least: int, most: int, linear: bool = False, share_max: int = 0, clock=time.monotonic):
        super().__init__(run, least)
        self._least, self._most, self._share_max = least, most, share_max
        self._is_linear, self._clock = linear, clock
        self.noise, self.times = Noise(), Times()
        self._gain, self._carry, self._seen, self._taken = 1.0, 0.0, run.done * least, run.done
        self._world = 0
        # From the next step on: size and gain; and the size that the coordinator wants.
        self._next: Optional[tuple] = None
        self._wanted = 0
        self._restart()

    def _restart(self) -> None:
        """The next step begins at a size or in a world of its own: its time does not count."""
        self._began_s: Optional[float] = None
        self._tried = 0
        self._considered_s = -math.inf
        self._is_settled = False

    # ── what the program reads ───────────────────────────────────────────────────────────────────

    @property
    def size(self) -> int:
        self._settle()
        return self._size

    @property
    def gain(self) -> float:
        self._settle()
        return self._gain

    @property
    def seen(self) -> int:
        return self._seen

    @property
    def taken(self) -> int:
        return self._taken

    @property
    def efficiency(self) -> float:
        return self.gain * self._least / self.size

    @property
    def noise_scale(self) -> Optional[float]:
        """φ in samples; None while unknown."""
        return math.inf if self._is_linear else self.noise.scale

    @property
    def parts(self) -> List[range]:
        rows, half = self.rows, self.share // 2
        if self._run.world_size > 1 or self._is_linear or half == 0 or self._taken % _HALVES_EVERY:
            return [rows]
        return [rows[:half], rows[half:]]

    def observe(self, part_square, mean_square, parts: Optional[int] = None) -> None:
        size, parts = self.size, self._run.world_size if parts is None else parts
        self.noise.observe(size / parts, float(part_square), size, float(mean_square), self._gain)

    # ── the size ─────────────────────────────────────────────────────────────────────────────────

    def _settle(self) -> None:
        """Takes up the present number of ranks: all ranks come to the same size from the same state."""
        world = self._run.world_size
        if world == self._world:
            return
        if world > self._most:
            raise ValueError(
                "%d ranks share a batch of at most %d samples (batch.max): each needs one; raise batch.max, or lower "
                "containers.max" % (world, self._most)
            )
        former, self._world, self._next = self._world, world, None
        self._restart()
        if world * self._lowest > self._most:
            # No multiple lies between the bounds: shares that differ by one.
            self._size = self._least
        elif not former or self.noise_scale is None:
            self._size = world * self._lowest
        else:
            self._size = world * self._share_of(former)
        self._wanted = self._size
        self._gain = gain(self.noise_scale, self._least, self._size)

    @property
    def _lowest(self) -> int:
        """The smallest share."""
        return -(-self._least // self._world)

    @property
    def _highest(self) -> int:
        """The largest share."""
        highest = self._most // self._world
        return max(self._lowest, min(highest, self._share_max) if self._share_max else highest)

    def _share_of(self, former: int) -> int:
        """For a world that comes after one of `former` ranks: the best share by the times of the nearest world."""
        known = self.times.nearest(self._world)
        if known is None:
            return min(max(self._size // former, self._lowest), self._highest)
        return self._best(known)

    def _best(self, known: int) -> int:
        """The best share, by the times of a world of `known` ranks: a line is not believed far from its points."""
        reach = max(self._lowest, 2 * max(self.times.shares(known)))
        return best(self.times.line(known), self._gain_at, self._world, self._lowest, min(reach, self._highest))

    def _gain_at(self, size: int) -> float:
        return gain(self.noise_scale, self._least, size)

    def _consider(self) -> None:
        """The coordinator's choice, after a step."""
        if self.noise_scale is None or self._tried < _TRIED or self._size % self._world or self._wanted != self._size:
            return
        now = self._clock()
        if self._is_settled and self._tried % _RARELY_STEPS and now < self._considered_s + _RARELY_S:
            return
        self._considered_s = now
        share = self._size // self._world
        line = self.times.line(self._world)
        if line is None:
            twice = min(2 * share, self._highest)
            other = twice if twice > share else max(share // 2, self._lowest)
        else:
            other = self._best(self._world)
            present = goodput(line, self._gain_at, self._world, share)
            if goodput(line, self._gain_at, self._world, other) < _BETTER * present:
                other = share
        self._is_settled = other == share
        self._wanted = other * self._world

    # ── what the run asks ────────────────────────────────────────────────────────────────────────

    def steps(self, left: int) -> int:
        return max(1, min(left, int(self._carry + self.gain)))

    def count(self, steps: int, is_timed: bool) -> None:
        self._settle()
        now, began = self._clock(), self._began_s
        self._began_s = now
        if is_timed and began is not None and self._size % self._world == 0:
            self.times.add(self._world, self._size // self._world, now - began)
            self._tried += 1
        self._carry, self._seen = self._carry + self._gain - steps, self._seen + self._size
        self._taken += 1
        if self._next is not None:
            size, self._gain = self._next
            if size != self._size:
                self._size = size
                self._restart()
            self._next = None
        if self._run.is_coordinator:
            self._consider()

    def wishes(self) -> List[float]:
        if not self._run.is_coordinator:
            return [0.0, 0.0]
        self._settle()
        return [float(self._wanted), self._gain_at(self._wanted)]

    def agreed(self, values: Sequence[float]) -> None:
        self._settle()
        # Nothing was heard of the coordinator.
        if len(values) >= 2 and values[0] > 0:
            self._next = (round(values[0]), max(1.0, float(values[1])))

    def metrics(self) -> Dict[str, float]:
        return {"batch": self.size, "efficiency": round(self.efficiency, 4)}

    def state_dict(self) -> dict:
        self._settle()
        state = {"world": self._world, "size": self._size, "gain": self._gain}
        state.update(carry=self._carry, seen=self._seen, taken=self._taken)
        run = self._run
        if run.is_in_step:
            size, following = self._next or (self._size, self._gain)
            carry = self._carry + self._gain - self.steps(run.total - run.done)
            state.update(size=size, gain=following)
            state.update(carry=carry, seen=self._seen + self._size, taken=self._taken + 1)
        return {**state, "noise": self.noise.state_dict(), "times": self.times.state_dict()}

    def load_state_dict(self, state: dict) -> None:
        self.noise.load_state_dict(state["noise"])
        self.times.load_state_dict(state["times"])
        self._carry, self._seen, self._taken = float(state["carry"]), int(state["seen"]), int(state["taken"])
        self._world, self._size, self._gain = int(state["world"]), int(state["size"]), float(state["gain"])
        self._wanted, self._next = self._size, None
        if not self._least <= self._size <= self._most or self._size // self._world > self._highest:
            # The bounds have changed.
            self._world, self._size = 0, self._least
        self._restart()

    def meet(self) -> None:
        self._settle()
        self._next = None
        self._wanted = self._size
        self._began_s = None


def check_parts(parts: Sequence, given: Sequence) -> None:
    """Each part has a gradient."""
    if len(parts) != len(given):
        raise ValueError(
            "the batch has %d parts on this rank, and %d were given: compute one for each of batch.parts"
            % (len(parts), len(given))
        )
