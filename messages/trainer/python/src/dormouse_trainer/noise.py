"""The gradient noise scale, and what a larger batch gains by it.

The noise scale φ is tr Σ ÷ |G|², in samples: Σ is the covariance of one sample's gradient, G the true gradient. The
mean gradient of b samples has the expected square |G|² + tr Σ ÷ b. The mean gradients of a small and of a large batch
in the same step are two such squares, and give unbiased estimates of both terms (McCandlish et al., "An Empirical
Model of Large-Batch Training", 2018, appendix A.1). Both estimates are noisy: each is averaged before the division.

A step at batch B brings as much as r(B) steps at the smallest batch b (AdaScale SGD, 2020; Pollux, OSDI'21, section 3):

    r(B) = (φ ÷ b + 1) ÷ (φ ÷ B + 1)        efficiency = r(B) · b ÷ B
"""

from __future__ import annotations

import math
from typing import Optional

# An observation at gain 1 keeps this part of the averages: some 100 steps count. A step that counts as r steps lets
# go of as much as r steps would.
_KEPT = 0.99
#: Fewer observations say little.
ENOUGH = 10


def gain(noise: Optional[float], smallest: int, size: int) -> float:
    """How many steps at the smallest batch a step at this size is worth; 1 while the noise is unknown."""
    if noise is None or size <= smallest:
        return 1.0
    if math.isinf(noise):
        return size / smallest
    return (noise / smallest + 1.0) / (noise / size + 1.0)


class Noise:
    """Averages of the two estimates."""

    def __init__(self):
        self.observations = 0
        self._true_square = 0.0
        self._variance = 0.0

    def observe(self, small: float, small_square: float, large: float, large_square: float, gain: float = 1.0) -> None:
        """The squared norms of mean gradients over `small` and `large` samples of one step. The small one may be a
        mean of squares over several small batches. Anything that is not finite is passed over."""
        if small >= large or not (math.isfinite(small_square) and math.isfinite(large_square)):
            return
        true_square = (large * large_square - small * small_square) / (large - small)
        variance = (small_square - large_square) / (1.0 / small - 1.0 / large)
        # The averages begin at zero; both lack the same factor, which the ratio does not have.
        kept = _KEPT**gain
        self._true_square = kept * self._true_square + (1.0 - kept) * true_square
        self._variance = kept * self._variance + (1.0 - kept) * variance
        self.observations += 1

    @property
    def scale(self) -> Optional[float]:
        """φ; None while unknown. Infinite where no gradient is left above the noise."""
        if self.observations < ENOUGH:
            return None
        if self._variance <= 0.0:
            return 0.0
        return self._variance / self._true_square if self._true_square > 0.0 else math.inf

    def state_dict(self) -> list:
        return [self.observations, self._true_square, self._variance]

    def load_state_dict(self, state: list) -> None:
        self.observations, self._true_square, self._variance = int(state[0]), float(state[1]), float(state[2])
