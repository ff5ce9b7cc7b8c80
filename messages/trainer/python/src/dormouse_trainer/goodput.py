"""The choice of a global batch: the size with the most progress a second.

A step of `share` samples a rank takes α + β · share seconds: α for what the ranks do together, β for a sample. Both
are fitted to measured steps of this number of ranks. Goodput, the progress a second, is the gain of the size divided
by that time.

Only additions, multiplications and divisions decide: all ranks come to the same size from the same state.
"""

from __future__ import annotations

from typing import Callable, Dict, List, NamedTuple, Optional

# Times that are remembered: the latest of each share, the latest shares of a world, the latest worlds.
_TIMES, _SHARES, _WORLDS = 15, 6, 4
# Of sizes that come close to the best one the smallest is taken: smaller batches generalise better, and noise in the
# times must not decide.
_CLOSE = 0.98
_STEP = 1.25


class Line(NamedTuple):
    """Seconds of a step by the samples of a rank."""

    fixed_s: float
    sample_s: float

    def at(self, share: int) -> float:
        return self.fixed_s + self.sample_s * share


class Times:
    """Seconds of steps by world and share."""

    def __init__(self):
        self._worlds: Dict[int, Dict[int, List[float]]] = {}

    def add(self, world: int, share: int, seconds: float) -> None:
        shares = self._worlds.pop(world, {})
        times = shares.pop(share, [])
        # The latest is the last one.
        shares[share] = (times + [seconds])[-_TIMES:]
        self._worlds[world] = _latest(shares, _SHARES)
        self._worlds = _latest(self._worlds, _WORLDS)

    def shares(self, world: int) -> Dict[int, float]:
        """The median of each share that was measured in this world."""
        return {share: sorted(times)[len(times) // 2] for share, times in self._worlds.get(world, {}).items()}

    def nearest(self, world: int) -> Optional[int]:
        """The world nearest in size of which there is a line."""
        fitted = [other for other in self._worlds if len(self._worlds[other]) > 1]
        return min(fitted, key=lambda other: (abs(other - world), other), default=None)

    def line(self, world: int) -> Optional[Line]:
        """Fitted with relative errors; None before two shares were measured."""
        medians = self.shares(world)
        if len(medians) < 2:
            return None
        weights = {share: 1.0 / (seconds * seconds) for share, seconds in medians.items()}
        total = sum(weights.values())
        share_mean = sum(weights[share] * share for share in medians) / total
        mean_s = sum(weights[share] * seconds for share, seconds in medians.items()) / total
        spread = sum(weights[share] * (share - share_mean) * (share - share_mean) for share in medians)
        along = sum(weights[share] * (share - share_mean) * (medians[share] - mean_s) for share in medians)
        # A sample takes time, and what comes before it no less than none: noise can say otherwise.
        slope = min(max(0.0, along / spread), mean_s / share_mean)
        return Line(mean_s - slope * share_mean, slope)

    def state_dict(self) -> list:
        return [[world, [[share, times] for share, times in shares.items()]] for world, shares in self._worlds.items()]

    def load_state_dict(self, state: list) -> None:
        self._worlds = {int(world): {int(share): list(times) for share, times in shares} for world, shares in state}


def best(line: Line, gain: Callable[[int], float], world: int, least: int, most: int) -> int:
    """The share between `least` and `most` with the best goodput; of those that come close to it, the smallest."""
    shares, share = [], least
    while share < most:
        shares.append(share)
        share = max(share + 1, int(share * _STEP))
    shares.append(most)
    found = {share: goodput(line, gain, world, share) for share in shares}
    return min(share for share in shares if found[share] >= _CLOSE * max(found.values()))


def goodput(line: Line, gain: Callable[[int], float], world: int, share: int) -> float:
    """Steps of the smallest batch a second."""
    return gain(share * world) / max(line.at(share), 1e-9)


def _latest(entries: dict, count: int) -> dict:
    return dict(list(entries.items())[-count:])
