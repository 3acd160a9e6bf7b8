"""Windows of telemetry around a case, made from samples: brackets, least and greatest values, deltas, marks.

A case that takes 3 ms lies between two samples. So a window states its *bracket*: from the last sample measured before
the case to the first one measured after it, with their real times. All its values are about the bracket.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.telemetry.fields import FIELDS
from harness.telemetry.source import Value

KEPT = 1800
"""Samples kept per GPU: three minutes at 10 Hz. A longer case has no window, and the reason is recorded."""


@dataclass(frozen=True, eq=False)
class Reading:
    """A sample measured at some time between ``earliest`` and ``latest``, in seconds of ``time.time()`` on this
    host."""

    earliest: float
    latest: float
    values: Mapping[str, Value]
    unavailable: Mapping[str, str]


class Track:
    """The readings of one GPU, oldest first, and their sum since the start; ``looking``: seconds that ``looks`` took.

    A sample with the same time stamp as the one before repeats it: it is counted in ``repeated`` and dropped. A sample
    with a stamp may have been measured at any time since the last look that returned another stamp.
    """

    def __init__(self, fields: Sequence[str]) -> None:
        self.fields = tuple(fields)
        self.readings: deque[Reading] = deque(maxlen=KEPT)
        self.whole = Span(self.fields)
        self.repeated = 0
        self.looks = 0
        self.looking = 0.0
        self._looked: float | None = None
        self._stamp: float | None = None
        self._newest: tuple[Reading, Reading, Mapping[str, Any]] | None = None

    def add(
        self,
        began: float,
        ended: float,
        stamp: float | None,
        values: Mapping[str, Value],
        unavailable: Mapping[str, str],
    ) -> None:
        """Add the result of a look at the GPU that lasted from ``began`` to ``ended``."""
        self.looks += 1
        self.looking += ended - began
        earliest, self._looked = began if stamp is None else self._looked, began
        if stamp is not None and stamp == self._stamp:
            self.repeated += 1
            return
        self._stamp = stamp
        if earliest is None:
            return  # the first sample with a stamp: its age is unknown
        reading = Reading(earliest, ended, values, unavailable)
        self.readings.append(reading)
        self.whole.add(reading)

    def window(self, started: float, ended: float) -> Mapping[str, Any] | str | None:
        """Return ``Span.to_json`` of the samples around a case; None while the sample after it is missing; a text, the
        reason, if there can be none."""
        after = len(self.readings)
        while after and self.readings[after - 1].earliest >= ended:
            after -= 1
        if after == len(self.readings):
            return None
        before = after
        while before and self.readings[before - 1].latest > started:
            before -= 1
        if not before:
            return "no sample was taken before it"
        first, last = self.readings[before - 1], self.readings[after]
        if self._newest is None or self._newest[:2] != (first, last):  # many short cases lie between two samples
            span = Span(self.fields)
            for index in range(before - 1, after + 1):
                span.add(self.readings[index])
            self._newest = first, last, span.to_json()
        return self._newest[2]


@dataclass
class Span:
    """The sum of consecutive readings of one GPU, and the reason for each field without a value."""

    fields: Sequence[str]
    readings: int = 0
    first: Reading | None = None
    last: Reading | None = None
    gauges: dict[str, tuple[float, float]] = field(default_factory=dict)
    active: Counter[str] = field(default_factory=Counter)
    missing: dict[str, tuple[int, str]] = field(default_factory=dict)
    backwards: dict[str, str] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)

    def add(self, reading: Reading) -> None:
        """Add the next reading, which must not be older than those before."""
        self.last = reading
        self.first = self.first or reading
        self.readings += 1
        for name in self.fields:
            value = reading.values.get(name)
            if value is None:
                count, reason = self.missing.get(name, (0, reading.unavailable.get(name, "the source gave no value")))
                self.missing[name] = count + 1, reason
                continue
            kind = FIELDS[name].kind
            if kind == "gauge":
                least, greatest = self.gauges.get(name, (value, value))
                self.gauges[name] = min(least, value), max(greatest, value)
            elif kind == "state":
                self.active[name] += bool(value)
            else:
                # The last one that was known, however many samples ago.
                if value < (previous := self.counters.get(name, value)):
                    self.backwards[name] = (
                        f"it went backwards, from {previous:g} to {value:g}: reset, wrapped or misread"
                    )
                self.counters[name] = value

    @property
    def bracket(self) -> tuple[float, float]:
        """The earliest and latest time at which the readings can have been measured."""
        if self.first is None or self.last is None:
            return 0.0, 0.0
        return self.first.earliest, self.last.latest

    def deltas(self) -> tuple[dict[str, float], dict[str, str]]:
        """Return the growth of each counter, and the reason for each counter without one. Never negative or guessed."""
        grew: dict[str, float] = {}
        reasons: dict[str, str] = {}
        for name in self.fields:
            if FIELDS[name].kind != "counter":
                continue
            if self.first is None or self.last is None or self.readings < 2 or self.bracket[0] >= self.bracket[1]:
                reasons[name] = "no time passed between its samples"
            elif name in self.backwards:
                reasons[name] = self.backwards[name]
            elif (start := self.first.values.get(name)) is None or (end := self.last.values.get(name)) is None:
                reasons[name] = self.missing[name][1]
            elif name == "energy" and end == start and self.gauges.get("power", (0, 0))[0] > 0:
                reasons[name] = f"the counter stood still at {self.gauges['power'][0]:g} W or more"
            else:
                grew[name] = round(end - start, 6)
        return grew, reasons

    def to_json(self) -> dict[str, Any]:
        """Return plain data: bracket, samples, gauges as [least, greatest], deltas, active states, reasons, marks."""
        deltas, reasons = self.deltas()
        for name, (count, reason) in self.missing.items():
            if name not in reasons and name not in deltas:
                reasons[name] = reason if count == self.readings else f"in {count} of {self.readings} samples: {reason}"
        return {
            "bracket": [round(time, 6) for time in self.bracket],
            "samples": self.readings,
            "gauges": {name: list(pair) for name, pair in self.gauges.items()},
            "deltas": deltas,
            "active": {name: count for name, count in self.active.items() if count},
            "unavailable": reasons,
            "marks": list(marks(deltas, self.active)),
        }


def marks(deltas: Mapping[str, float], active: Mapping[str, int]) -> Iterable[str]:
    """Yield the marks that are reported with a case's verdict: ``memory error (RAS/ECC): ecc_corrected +2``."""
    for name, delta in deltas.items():
        if FIELDS[name].mark and delta > 0:
            yield f"{FIELDS[name].mark}: {name} +{delta:g}{FIELDS[name].unit and ' ' + FIELDS[name].unit}"
    for name, count in active.items():
        if FIELDS[name].mark and count:
            yield f"{FIELDS[name].mark}: {name} in {count} samples"
