"""Exact figures of base and head: of compiled kernels, and of the cases that both executed on the emulated device.

They are the same on every machine, so a difference is a change of the code. ``thresholds.toml`` next to this module
states which change is listed and which is red.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema

from harness.errors import UsageError
from harness.evidence import Case, Evidence, Verdict

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT = Path(__file__).with_name("thresholds.toml")
ANY = "any"
NOTE, RED, BETTER = "changed", "worse", "better"
"""What a change is: listed, red, or listed and for the better."""

OCCUPANCY, ELEMENTS = "occupancy", "waits per element"
_WAVES, _REGISTERS, _GRANULE = 8, 512, 8
"""Of a SIMD of gfx942 and gfx950: waves at most, vector registers of a lane, and the step in which they are given."""

_LIMIT: dict[str, Any] = {
    "oneOf": [
        {"type": "number", "exclusiveMinimum": 0},
        {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?%$"},
        {"const": ANY},
    ]
}
_TABLE: dict[str, Any] = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "additionalProperties": False,
        "required": ["note"],
        "properties": {"note": _LIMIT, "red": _LIMIT},
    },
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"compiled": _TABLE, "executed": _TABLE},
}

Figures = Mapping[str, Any]
"""Of one kernel, as ``conformance.isa.figures`` makes them."""

Thresholds = Mapping[str, Mapping[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class Row:
    """One figure that changed: of the kernel or group ``subject``, for a target. ``change`` is one of ``NOTE``, ``RED``
    and ``BETTER``."""

    subject: str
    target: str
    figure: str
    before: str
    after: str
    change: str

    @property
    def sentence(self) -> str:
        """The row as a sentence."""
        return f"{self.subject} ({self.target}): {self.figure} {self.before} -> {self.after}"


@dataclass(frozen=True)
class Compared:
    """Compiled kernels of base and head: ``rows`` of figures, sentences about contracts that only the head breaks
    (``broken``), ``notes``, and sentences about calls that could not be compared (``unclear``)."""

    rows: Sequence[Row] = ()
    broken: Sequence[str] = ()
    notes: Sequence[str] = ()
    unclear: Sequence[str] = ()


def thresholds_in(path: Path) -> Thresholds:
    """Return the thresholds in a TOML file. UsageError if it cannot be read, or has a mistake."""
    try:
        plain: Any = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--thresholds {path}: it cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"--thresholds {path}: it is not TOML: {error}") from None
    problem = jsonschema.exceptions.best_match(jsonschema.Draft202012Validator(SCHEMA).iter_errors(plain))
    if problem is not None:
        place = ".".join(map(str, problem.absolute_path)) or "the file"
        wanted = 'expected tables compiled and executed of figures such as spills = { note = "any", red = "5%" }'
        raise UsageError(f"--thresholds {path}: {place}: {problem.message:.120}; {wanted}")
    return {name: plain.get(name, {}) for name in ("compiled", "executed")}


def compiled_rows(
    before: Mapping[str, Sequence[Figures]],
    after: Mapping[str, Sequence[Figures]],
    target: str,
    limits: Mapping[str, Mapping[str, Any]],
) -> Iterator[Row]:
    """Yield what changed in the kernels of each call. ``before`` and ``after``: figures by call."""
    for call in after:
        old, new = _by_kernel(before.get(call, ())), _by_kernel(after[call])
        for kernel in dict.fromkeys([*old, *new]):
            subject = f"{call}: {kernel}"
            if kernel not in old or kernel not in new:
                word = ("-", "launched") if kernel not in old else ("launched", "-")
                yield Row(subject, target, "kernel", *word, NOTE)
                continue
            yield from _rows(subject, target, _flat(old[kernel]), _flat(new[kernel]), limits)
            if _flat(old[kernel]) == _flat(new[kernel]) and old[kernel].get("sha256") != new[kernel].get("sha256"):
                yield Row(subject, target, "code", str(old[kernel].get("sha256")), str(new[kernel].get("sha256")), NOTE)


def executed_rows(before: Evidence, after: Evidence, limits: Mapping[str, Mapping[str, Any]]) -> Iterator[Row]:
    """Yield what changed in the groups whose cases both runs passed, as far as kernels with other code ran.

    What a kernel executes in loops that wait for other ranks is left out, since it polls as often as they make it wait.
    A kernel whose code is the same is not compared.
    """
    old = _passed(before)
    counts: dict[str, tuple[Counter[str], Counter[str]]] = defaultdict(lambda: (Counter(), Counter()))
    for key, case in _passed(after).items():
        if key not in old or _codes(before, old[key]) == _codes(after, case):
            continue
        for side, one in zip(counts[case.group], (old[key], case), strict=True):
            side.update(_executed(one))
    arch = after.runs[0].arch if after.runs else ""
    for group, (left, right) in counts.items():
        yield from _rows(group, arch, _with_ratio(left), _with_ratio(right), limits)


def occupancy(figures: Figures) -> int | None:
    """Return how many waves of a kernel fit a SIMD of gfx942 or gfx950, as far as its vector registers limit it."""
    registers = figures.get("registers")
    if registers is None or figures.get("sgprs") is None:  # PTX has no such count
        return None
    steps = -(-max(int(registers), 1) // _GRANULE) * _GRANULE
    return min(_WAVES, _REGISTERS // steps) if steps <= _REGISTERS else 0


def _rows(
    subject: str,
    target: str,
    old: Mapping[str, float],
    new: Mapping[str, float],
    limits: Mapping[str, Mapping[str, Any]],
) -> Iterator[Row]:
    for figure in dict.fromkeys([*old, *new]):
        limit = limits.get(figure) or limits.get(figure.partition(":")[0])
        left, right = old.get(figure, 0), new.get(figure, 0)
        if limit is None or left == right:
            continue
        grown = left - right if figure == OCCUPANCY else right - left
        # A figure that shrinks is never red, but is listed by the same measure.
        if grown > 0 and "red" in limit and _beyond(grown, left, limit["red"]):
            change = RED
        elif _beyond(abs(grown), left, limit["note"]):
            change = NOTE if grown > 0 else BETTER
        else:
            continue
        yield Row(subject, target, figure, _text(left), _text(right), change)


def _beyond(grown: float, base: float, limit: Any) -> bool:
    if limit == ANY:
        return grown > 0
    if isinstance(limit, str):
        return grown > 0 and grown >= base * float(limit.removesuffix("%")) / 100
    return bool(grown >= limit)


def _flat(figures: Figures) -> dict[str, float]:
    """Return the numbers of a kernel by name, such as "fences: write-back sc0 sc1"."""
    flat: dict[str, float] = {}
    for name, value in figures.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}: {inner}": number for inner, number in value.items()}
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            flat[name] = value
    if (waves := occupancy(figures)) is not None:
        flat[OCCUPANCY] = waves
    return flat


def _by_kernel(kernels: Iterable[Figures]) -> dict[str, Figures]:
    named: dict[str, Figures] = {}
    for one in kernels:
        name, number = str(one.get("kernel")), 2
        while name in named:
            name, number = f"{one.get('kernel')} {number}", number + 1
        named[name] = one
    return named


def _passed(evidence: Evidence) -> dict[tuple[str, str], Case]:
    return {
        (case.group, case.id): case
        for case in evidence.cases
        if case.verdict is Verdict.PASS and case.telemetry.get("source") == "emulated"
    }


def _codes(evidence: Evidence, case: Case) -> list[str]:
    """Return the digests of the machine code that a case launched."""
    kernels = (evidence.kernels.get(hash_) for hash_ in case.kernels)
    return sorted(str(kernel.fingerprint.get("sha256")) for kernel in kernels if kernel is not None)


def _executed(case: Case) -> Counter[str]:
    counts: Counter[str] = Counter()
    polled = case.telemetry.get("polled", {})
    for kind, total in case.telemetry.get("instructions", {}).items():
        number = total - polled.get(kind, 0)
        counts["instructions"] += number
        if kind == "wait":
            counts["waits"] += number
    for launch in case.launches.values():
        for access in launch.get("accesses", ()):
            if access.get("peer") and not access.get("polled"):
                counts[f"remote bytes: {access['kind']} {access['width']}"] += access["bytes"]
                counts[f"remote accesses: {access['kind']} {access['width']}"] += access["executions"]
                counts["elements"] += access["lanes"]
    return counts


def _with_ratio(counts: Counter[str]) -> dict[str, float]:
    plain: dict[str, float] = {name: number for name, number in counts.items() if name != "elements"}
    if counts["elements"]:
        plain[ELEMENTS] = round(counts["waits"] / counts["elements"], 6)
    return plain


def _text(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,g}"
