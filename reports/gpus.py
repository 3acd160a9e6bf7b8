"""What was measured of the GPUs, for the views: a row per GPU, and the marks beside verdicts."""

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
    """One GPU over the whole run. ``gauges`` maps a name to least and greatest, ``sums`` a counter to its growth;
    ``unavailable`` maps a field to the reason it has no value; ``facts`` are what the hardware record tells of it."""

    gpu: str
    name: str
    samples: int
    gauges: Mapping[str, Range]
    sums: Mapping[str, float]
    unavailable: Mapping[str, str]
    facts: Mapping[str, str]


@dataclass(frozen=True)
class Mark:
    """What stands beside the verdict of the cases that ran in one bracket: they cannot be told apart."""

    text: str
    cases: tuple[str, ...]
    groups: tuple[str, ...]


@dataclass(frozen=True)
class Measured:
    """``told`` of ``cases`` have samples around them; ``reasons`` counts why the others have none."""

    source: str
    library: str
    driver: str
    period: float
    rows: tuple[GpuRow, ...]
    marks: tuple[Mark, ...]
    cases: int
    told: int
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
                f"{self.told:,} of {plural(self.cases, 'case')} measured",
                *([f"{plural(fields, 'field')} unavailable"] if fields else []),
                plural(len(self.marks), "mark") if self.marks else "no mark",
            ]
        )


_TEMPERATURES = ("temperature_core", "temperature_hotspot", "temperature_memory")


def measured_of(evidence: Evidence) -> Measured | None:
    """None where no GPU was watched."""
    if not evidence.hardware and not evidence.telemetry:
        return None
    hardware = evidence.hardware[0] if evidence.hardware else None
    told: set[str] = set()
    reasons: Counter[str] = Counter()
    for record in evidence.telemetry:
        if any("bracket" in gpu for gpu in record.gpus):
            told.update(record.cases)
        else:
            reasons[next((gpu["reason"] for gpu in record.gpus), "no GPU was watched")] += len(record.cases)
    told &= {case.id for case in evidence.cases}
    if rest := len(evidence.cases) - len(told) - sum(reasons.values()):
        reasons["no telemetry record"] = rest
    return Measured(
        source=hardware.source if hardware else evidence.telemetry[0].source,
        library=_text(hardware.library) if hardware else "",
        driver=_text(hardware.driver) if hardware else "",
        period=hardware.period if hardware else 0.0,
        rows=_rows(evidence),
        marks=_marks(evidence),
        cases=len(evidence.cases),
        told=len(told),
        reasons={reason: count for reason, count in reasons.items() if count},
    )


def marks_of(evidence: Evidence) -> dict[str, list[str]]:
    """Case id -> its marks, of the cases that have some."""
    found: dict[str, list[str]] = {}
    for record in evidence.telemetry:
        for identity in record.cases if record.marks else ():
            found.setdefault(identity, []).extend(record.marks)
    return found


def quantity(value: float, unit: str) -> str:
    """``12.3 kJ``, ``4.0 GB``."""
    for prefix, factor in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= factor:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}"


def span(ranges: Sequence[Range], unit: str) -> str:
    """``71–690 W`` over all of ``ranges``."""
    least, most = round(min(low for low, _ in ranges)), round(max(high for _, high in ranges))
    return f"{least:,} {unit}" if least == most else f"{least:,}\N{EN DASH}{most:,} {unit}"


def _rows(evidence: Evidence) -> tuple[GpuRow, ...]:
    facts = {gpu: told for record in evidence.hardware for gpu, told in record.gpus.items()}
    entries: dict[str, list[Mapping[str, Any]]] = {gpu: [] for gpu in facts}
    whole = [record for record in evidence.telemetry if not record.cases]
    # Brackets of cases overlap, so energy and bytes are added up over whole watches only; a run that was killed has
    # none, and its gauges are those of the cases.
    for record in whole or evidence.telemetry:
        for gpu in record.gpus:
            entries.setdefault(gpu["gpu"], []).append(gpu)
    return tuple(_row(gpu, found, facts.get(gpu, {}), summed=bool(whole)) for gpu, found in entries.items())


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
            least, most = gauges.get(name, (low, high))
            gauges[name] = min(least, low), max(most, high)
        sums.update(entry["deltas"] if summed else {})
    asic = facts.get("asic")
    name = facts.get("name") or (asic.get("market_name") if isinstance(asic, Mapping) else "") or "GPU"
    # A counter that one watch could not tell has no total.
    known = {field: total for field, total in sums.items() if field not in unavailable}
    shown = {key: _text(value) for key, value in facts.items() if key in _SHOWN and value not in ("", None)}
    return GpuRow(gpu, str(name), samples, gauges, known, unavailable, shown)


_SHOWN = ("vbios", "firmware", "partition", "memory_partition", "ecc", "power_limit_mw", "bus_id")


def _marks(evidence: Evidence) -> tuple[Mark, ...]:
    """Those of the cases; else what happened outside of any, which only whole watches know."""
    groups = {case.id: case.group for case in evidence.cases}
    found = [
        Mark(text, tuple(record.cases), tuple(sorted({groups[case] for case in record.cases if case in groups})))
        for record in evidence.telemetry
        if record.cases
        for text in record.marks
    ]
    return tuple(found or (Mark(text, (), ()) for record in evidence.telemetry for text in record.marks))


def _text(value: Any) -> str:
    """Facts in one line: ``major 26, minor 0``; reasons for what is missing are left to the evidence."""
    if isinstance(value, Mapping):
        inner = ((key, _text(each)) for key, each in value.items() if key != "unavailable")
        return ", ".join(f"{key} {text}" for key, text in inner if text)
    if isinstance(value, (list, tuple)):
        return ", ".join(text for each in value if (text := _text(each)))
    return "" if value is None else str(value)
