"""GPU telemetry for the views: a row per GPU, and the marks shown next to verdicts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.evidence import Evidence
from reports.text import plural

Range = tuple[float, float]


@dataclass(frozen=True)
class GpuRow:
    """One GPU over the whole run.

    ``gauges`` maps a name to the smallest and largest value, ``sums`` a counter to its growth, and ``unavailable`` a
    field to the reason why it has no value. ``facts`` are the GPU's entries in the hardware record.
    """

    gpu: str
    name: str
    samples: int
    gauges: Mapping[str, Range]
    sums: Mapping[str, float]
    unavailable: Mapping[str, str]
    facts: Mapping[str, str]


@dataclass(frozen=True)
class Mark:
    """A mark next to the verdict of the cases of one bracket. One bracket of samples may span several cases; the mark
    belongs to all of them."""

    text: str
    cases: tuple[str, ...]
    groups: tuple[str, ...]


@dataclass(frozen=True)
class Measured:
    """Telemetry of a run.

    ``measured_cases`` of the ``cases`` have samples around them. ``reasons`` maps each reason why a case has none to
    the number of those cases.
    """

    source: str
    library: str
    driver: str
    period: float
    rows: tuple[GpuRow, ...]
    marks: tuple[Mark, ...]
    cases: int
    measured_cases: int
    reasons: Mapping[str, int]

    @property
    def headline(self) -> str:
        """One line: ``2 GPUs: 71–690 W, 31–55 °C, 12.3 kJ; 12 of 12 cases measured; no mark``."""
        parts = [
            span(ranges, unit)
            for unit, names in (("W", ("power",)), ("°C", _TEMPERATURES))
            if (ranges := [row.gauges[name] for row in self.rows for name in names if name in row.gauges])
        ]
        energies = [row.sums["energy"] for row in self.rows if "energy" in row.sums]
        parts += [quantity(sum(energies), "J")] if energies and len(energies) == len(self.rows) else []
        fields = sum(len(row.unavailable) for row in self.rows)
        about = ", ".join(parts) or "nothing measured"
        return "; ".join(
            [
                f"{plural(len(self.rows), 'GPU')}: {about}",
                f"{self.measured_cases:,} of {plural(self.cases, 'case')} measured",
                *([f"{plural(fields, 'field')} unavailable"] if fields else []),
                plural(len(self.marks), "mark") if self.marks else "no mark",
            ]
        )


_TEMPERATURES = ("temperature_core", "temperature_hotspot", "temperature_memory")


def measured_of(evidence: Evidence) -> Measured | None:
    """Return the telemetry of a run, or None if no GPU was watched."""
    if not evidence.hardware and not evidence.telemetry:
        return None
    hardware = evidence.hardware[0] if evidence.hardware else None
    measured_cases: set[str] = set()
    reasons: Counter[str] = Counter()
    for record in evidence.telemetry:
        if any("bracket" in gpu for gpu in record.gpus):
            measured_cases.update(record.cases)
        else:
            reasons[next((gpu["reason"] for gpu in record.gpus), "no GPU was watched")] += len(record.cases)
    measured_cases &= {case.id for case in evidence.cases}
    if rest := len(evidence.cases) - len(measured_cases) - sum(reasons.values()):
        reasons["no telemetry record"] = rest
    return Measured(
        source=hardware.source if hardware else evidence.telemetry[0].source,
        library=_text(hardware.library) if hardware else "",
        driver=_text(hardware.driver) if hardware else "",
        period=hardware.period if hardware else 0.0,
        rows=_rows(evidence),
        marks=_marks(evidence),
        cases=len(evidence.cases),
        measured_cases=len(measured_cases),
        reasons={reason: count for reason, count in reasons.items() if count},
    )


def marks_of(evidence: Evidence) -> dict[str, list[str]]:
    """Return a dictionary from the id of each case with marks to its marks."""
    marks: dict[str, list[str]] = {}
    for record in evidence.telemetry:
        for identity in record.cases if record.marks else ():
            marks.setdefault(identity, []).extend(record.marks)
    return marks


def quantity(value: float, unit: str) -> str:
    """Return a value with its unit, as ``12.3 kJ`` or ``4.0 GB``."""
    for prefix, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def span(ranges: Sequence[Range], unit: str) -> str:
    """Return the range that covers all of ``ranges``, as ``71–690 W``."""
    low, high = round(min(low for low, _ in ranges)), round(max(high for _, high in ranges))
    return f"{low:,} {unit}" if low == high else f"{low:,}\N{EN DASH}{high:,} {unit}"


def _rows(evidence: Evidence) -> tuple[GpuRow, ...]:
    facts = {gpu: entry for record in evidence.hardware for gpu, entry in record.gpus.items()}
    entries: dict[str, list[Mapping[str, Any]]] = {gpu: [] for gpu in facts}
    whole = [record for record in evidence.telemetry if not record.cases]
    # Brackets of cases overlap, so that energy and bytes are added up over whole watches only. A killed run has no
    # whole watch; its gauges come from the cases.
    for record in whole or evidence.telemetry:
        for gpu in record.gpus:
            entries.setdefault(gpu["gpu"], []).append(gpu)
    return tuple(_row(gpu, samples, facts.get(gpu, {}), summed=bool(whole)) for gpu, samples in entries.items())


def _row(gpu: str, entries: Iterable[Mapping[str, Any]], facts: Mapping[str, Any], *, summed: bool) -> GpuRow:
    gauges: dict[str, Range] = {}
    sums: Counter[str] = Counter()
    unavailable: dict[str, str] = {}
    samples = 0
    for entry in entries:
        if "reason" in entry:
            unavailable["all"] = entry["reason"]
            continue
        samples += entry["samples"]
        unavailable.update(entry["unavailable"])
        for name, (low, high) in entry["gauges"].items():
            lowest, highest = gauges.get(name, (low, high))
            gauges[name] = min(lowest, low), max(highest, high)
        sums.update(entry["deltas"] if summed else {})
    asic = facts.get("asic")
    name = facts.get("name") or (asic.get("market_name") if isinstance(asic, Mapping) else "") or "GPU"
    # A counter that was unavailable in one watch has no total.
    known = {field: total for field, total in sums.items() if field not in unavailable}
    shown = {key: _text(value) for key, value in facts.items() if key in _SHOWN and value not in ("", None)}
    return GpuRow(gpu, str(name), samples, gauges, known, unavailable, shown)


_SHOWN = ("vbios", "firmware", "partition", "memory_partition", "ecc", "power_limit_mw", "bus_id")


def _marks(evidence: Evidence) -> tuple[Mark, ...]:
    """Return the marks of cases. If there are none, return those of whole watches: events outside of any case."""
    groups = {case.id: case.group for case in evidence.cases}
    marks = [
        Mark(text, tuple(record.cases), tuple(sorted({groups[case] for case in record.cases if case in groups})))
        for record in evidence.telemetry
        if record.cases
        for text in record.marks
    ]
    return tuple(marks or (Mark(text, (), ()) for record in evidence.telemetry for text in record.marks))


def _text(value: Any) -> str:
    """Return facts in one line, as ``major 26, minor 0``. Reasons for missing values are only in the evidence."""
    if isinstance(value, Mapping):
        inner = ((key, _text(each)) for key, each in value.items() if key != "unavailable")
        return ", ".join(f"{key} {text}" for key, text in inner if text)
    if isinstance(value, (list, tuple)):
        return ", ".join(text for each in value if (text := _text(each)))
    return "" if value is None else str(value)
