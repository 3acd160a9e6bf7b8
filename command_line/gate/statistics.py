"""Comparison of times of base and head on a GPU: a rank test, and a floor for the effect.

Both must agree. The Mann-Whitney test states whether one side tends to be slower; the shift of Hodges and Lehmann, in
percent of the base's median, states by how much. A small p with a small shift is not a regression, and a large shift
with a large p is not known to be one: "undecided" is an answer of its own, with exit status 3.

Take the samples interleaved, base and head in turn on one warm machine (``interleaved``): what drifts with time, such
as clocks, then acts on both alike.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

from harness.errors import UsageError

SLOWER, FASTER, SAME, UNCLEAR = "slower", "faster", "same", "undecided"

LEAST_SAMPLES = 8
"""Of each side. With fewer, no p can be as small as ``ALPHA`` after the correction for ties and several tests."""

ALPHA, FLOOR = 0.01, 0.03
"""The largest p that counts, and the least shift, as a share of the base."""

_EXACT = 20
"""Up to this many samples of each side, without ties, p is exact."""

Sample = TypeVar("Sample")


@dataclass(frozen=True)
class Comparison:
    """``p``: two-sided; ``shift``: how much slower the head is, as a share of the base's median; ``low`` and ``high``
    bound the shift with the confidence 1 - alpha; ``answer``: one of the four words."""

    p: float
    shift: float
    low: float
    high: float
    answer: str

    @property
    def sentence(self) -> str:
        """The comparison for people, with both figures."""
        interval = f"between {self.low:+.1%} and {self.high:+.1%}"
        return f"{self.answer}: {self.shift:+.1%} ({interval}), Mann-Whitney p = {self.p:.2g}"


def compare(base: Sequence[float], head: Sequence[float], *, alpha: float = ALPHA, floor: float = FLOOR) -> Comparison:
    """Return how the times ``head`` compare with the times ``base``, in any unit.

    slower, faster: p is at most ``alpha`` and the shift at least ``floor``. same: the whole interval of the shift is
    within the floor. Else it is undecided. UsageError for times that are not positive, or for no times.
    """
    for side, times in (("base", base), ("head", head)):
        if not times or not all(math.isfinite(time) and time > 0 for time in times):
            raise UsageError(f"times of the {side}: expected positive numbers, got {list(times)[:3]!r:.80}")
    middle = statistics.median(base)
    differences = sorted(right - left for left, right in product(base, head))
    shift = statistics.median(differences) / middle
    low, high = (each / middle for each in _interval(differences, len(base), len(head), alpha))
    p = mann_whitney(base, head)
    enough = min(len(base), len(head)) >= LEAST_SAMPLES
    if enough and p <= alpha and abs(shift) >= floor:
        answer = SLOWER if shift > 0 else FASTER
    elif enough and max(abs(low), abs(high)) < floor:
        answer = SAME
    else:
        answer = UNCLEAR
    return Comparison(p, shift, low, high, answer)


def mann_whitney(left: Sequence[float], right: Sequence[float]) -> float:
    """Return the two-sided p of the Mann-Whitney U test: exact for few samples without ties, else by the normal
    approximation with corrections for ties and continuity (``scipy.stats.mannwhitneyu``)."""
    from scipy.stats import mannwhitneyu  # its import takes a second

    samples = [*left, *right]
    if len(set(samples)) == 1:  # the approximation divides by the spread of the ranks
        return 1.0
    exact = len(set(samples)) == len(samples) and max(len(left), len(right)) <= _EXACT
    return float(mannwhitneyu(left, right, method="exact" if exact else "asymptotic").pvalue)


def interleaved(base: Callable[[], Sample], head: Callable[[], Sample], rounds: int) -> Iterator[tuple[Sample, Sample]]:
    """Yield pairs of a base's and a head's sample, taken in turn; every second round begins with the head."""
    for number in range(rounds):
        if number % 2:
            second, first = head(), base()
            yield first, second
        else:
            yield base(), head()


def _interval(differences: Sequence[float], n: int, m: int, alpha: float) -> tuple[float, float]:
    """Return the bounds of the shift: order statistics of all differences (Moses)."""
    z = statistics.NormalDist().inv_cdf(1 - alpha / 2)
    skipped = math.floor(n * m / 2 - z * math.sqrt(n * m * (n + m + 1) / 12))
    place = min(max(skipped, 0), (len(differences) - 1) // 2)
    return differences[place], differences[-1 - place]
