"""Results of ``iris-harness bench`` for a report: read from bench.json, and compared with the run of the report.

The file may come from anywhere. What is not a result of the installed form, or of another library, device, compiler or
GPU than the evidence names, raises UsageError in one line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.evidence import Evidence, parse
from harness.evidence.lines import open_regular

FILE, SCHEMA, OK, NOT_RUN = "bench.json", 1, "ok", "not run"
MAX_BYTES = 64 << 20
MAX_FILES, MAX_SIZES, MAX_SERIES = 32, 64, 6
"""Limits of a page: results, sizes of one, and lines in one plot, each of which has its own mark."""
_PACKAGES = ("torch", "triton")


@dataclass(frozen=True)
class Point:
    """The best cell of a backend at a size of ``size`` bytes: the larger of a rank's input and output.

    ``median``, ``low`` and ``high`` are seconds per call: the median, the 10th and the 90th percentile over the rounds.
    ``factor`` is the bus bandwidth in bytes per second times these seconds. ``cus`` is the number of compute units;
    None is the library's choice.
    """

    size: int
    text: str
    median: float
    low: float
    high: float
    factor: float
    cus: int | None

    @property
    def bandwidth(self) -> tuple[float, float, float]:
        """Bus bandwidth in bytes per second: of the median, and the least and greatest of the spread."""
        return self.factor / self.median, self.factor / self.high, self.factor / self.low

    @property
    def time(self) -> tuple[float, float, float]:
        """Seconds per call: the median, and the least and greatest of the spread."""
        return self.median, self.low, self.high


@dataclass(frozen=True)
class Series:
    """A backend and its points by size."""

    label: str
    points: tuple[Point, ...]


@dataclass(frozen=True)
class Benchmark:
    """Results of one op, element type and world size. ``wrong`` has a sentence for each cell that did not end well."""

    op: str
    dtype: str
    ranks: int
    started: str
    warning: str
    series: tuple[Series, ...]
    wrong: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.op}, {self.dtype}, {self.ranks} ranks"


def read_benchmarks(paths: Sequence[Path], evidence: Evidence) -> tuple[Benchmark, ...]:
    """Return the results at ``paths``, each a bench.json, or a folder that ``bench`` has written.

    Raises UsageError for a path without results, a file that is not one, results of another library or machine than
    ``evidence`` names, and two results of one op, element type and world size.
    """
    files = [file for path in paths for file in _files(path)]
    if len(files) > MAX_FILES:
        raise UsageError(f"--bench: {len(files)} results, {MAX_FILES} are allowed: name some of their folders")
    by_name: dict[str, tuple[Path, Benchmark]] = {}
    for file in files:
        plain = _read(file)
        try:
            benchmark = _benchmark(plain)
            difference = next(_differences(plain, evidence), None)
        except _WrongForm as error:
            raise UsageError(f"{file} is not a result of iris-harness bench: {error}") from None
        if difference:
            raise UsageError(f"{file} belongs to another run than the evidence: {difference}")
        if benchmark.name in by_name:
            raise UsageError(f"{by_name[benchmark.name][0]} and {file} both have results of {benchmark.name}")
        by_name[benchmark.name] = file, benchmark
    return tuple(benchmark for _, benchmark in by_name.values())


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    listed = [path / FILE] if (path / FILE).exists() else sorted(path.glob(f"*/{FILE}"))
    if not listed:
        raise UsageError(f"{path} has no {FILE}, which iris-harness bench writes")
    return listed


def _read(file: Path) -> dict[str, Any]:
    try:
        with open_regular(file, follow=True) as opened:
            content = opened.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror or error}") from error
    if len(content) > MAX_BYTES:
        raise UsageError(f"{file} has more than {MAX_BYTES:,} bytes, which is too long for a result")
    try:
        return parse(content)
    except ValueError as error:
        raise UsageError(f"{file} {error}") from None


# -- The same library and machine --------------------------------------------------------------------------------------


def _differences(plain: Mapping[str, Any], evidence: Evidence) -> Iterator[str]:
    """Yield what the results name differently than the run. A value that one of them does not know is not compared."""
    if not evidence.runs:
        yield "the evidence has no run record"
        return
    run = evidence.runs[0]
    request, environment = _mapping(plain, "request"), _mapping(plain, "environment")
    measured, packages = _mapping(environment, "implementation"), _mapping(environment, "packages")
    tested, installed = run.implementation, run.environment.get("packages", {})
    pairs: dict[str, tuple[Any, Any]] = {
        "library": (request.get("implementation"), tested.get("name")),
        "device": (request.get("device"), run.device),
        "architecture": (request.get("arch"), run.arch),
        "operating system": (environment.get("os"), run.environment.get("os")),
        "number of processors": (environment.get("cpus"), run.environment.get("cpus")),
        **{name: (packages.get(name), installed.get(name)) for name in _PACKAGES},
    }
    sources = measured.get("sha256"), tested.get("sha256")
    pairs["sources of the library"] = sources if all(sources) else (measured.get("commit"), tested.get("commit"))
    for subject, (there, here) in pairs.items():
        if there is not None and here is not None and there != here:
            yield f"{subject} of the results: {there!s:.80}, of the evidence: {here!s:.80}"
    known = {gpu for record in evidence.hardware for gpu in record.gpus}
    rig = _mapping(plain, "rig")  # empty if the ranks did not start
    used = [str(gpu.get("uuid")) for gpu in (_list(rig, "gpus") if rig else ()) if isinstance(gpu, Mapping)]
    if known and (other := [gpu for gpu in used if gpu not in known]):
        yield f"it used the GPU {other[0]:.80}, of which the evidence has no record"


# -- Reading -----------------------------------------------------------------------------------------------------------


class _WrongForm(Exception):  # noqa: N818 - it becomes a UsageError
    """A value of another type or range than bench writes."""


def _benchmark(plain: Mapping[str, Any]) -> Benchmark:
    if plain.get("schema") != SCHEMA:
        raise _WrongForm(f"schema is {plain.get('schema')!r:.40}, and this version reads {SCHEMA}")
    request = _mapping(plain, "request")
    labels = _mapping(plain, "backends")
    sizes = _list(plain, "sizes")
    if len(sizes) > MAX_SIZES:
        raise _WrongForm(f"it has {len(sizes)} sizes, {MAX_SIZES} are allowed")
    best: dict[str, list[Point]] = {}
    wrong: list[str] = []
    for number, size in enumerate(sizes):
        points: dict[str, list[Point]] = {}
        for place, cell in enumerate(_list(size, "cells")):
            where = f"sizes.{number}.cells.{place}"
            backend, status = _text(cell, "backend", where), _text(cell, "status", where)
            if status == OK:
                points.setdefault(backend, []).append(_point(size, cell, f"sizes.{number}", where))
            elif status != NOT_RUN:
                detail = f": {cell['detail']!s:.200}" if cell.get("detail") else ""
                wrong.append(f"{_text(size, 'text', where)}, {backend}: {status}{detail}")
        for backend, listed in points.items():
            best.setdefault(backend, []).append(min(listed, key=lambda point: point.median))
    series = [
        Series(str(labels.get(backend, backend)), tuple(sorted(points, key=lambda point: point.size)))
        for backend, points in best.items()
    ]
    if len(series) > MAX_SERIES:
        raise _WrongForm(f"it has {len(series)} backends, {MAX_SERIES} are allowed")
    return Benchmark(
        op=_text(request, "op", "request"),
        dtype=_text(request, "dtype", "request"),
        ranks=_count(request, "ranks", "request"),
        started=_text(plain, "started", "the file"),
        warning=str(plain.get("warning", "")),
        series=tuple(series),
        wrong=tuple(wrong),
    )


def _point(size: Mapping[str, Any], cell: Mapping[str, Any], place: str, where: str) -> Point:
    median, low, high = (_positive(cell, name, where) / 1e6 for name in ("median_us", "p10_us", "p90_us"))
    if not low <= median <= high:
        raise _WrongForm(f"{where}: the median is not between p10_us and p90_us")
    return Point(
        size=_count(size, "bytes", place),
        text=_text(size, "text", place),
        median=median,
        low=low,
        high=high,
        factor=_factor(cell, where) * median,
        cus=None if cell.get("cus") is None else _count(cell, "cus", where),
    )


def _factor(cell: Mapping[str, Any], where: str) -> float:
    """Return the bus bandwidth of the median in bytes per second; it is 0 for one rank, which has no bus."""
    value = cell.get("busbw_gbs")
    return 0.0 if value == 0 else _positive(cell, "busbw_gbs", where) * 1e9


def _mapping(plain: Any, name: str) -> Mapping[str, Any]:
    value = plain.get(name) if isinstance(plain, Mapping) else None
    if not isinstance(value, Mapping):
        raise _WrongForm(f"{name} is missing, or is not an object")
    return value


def _list(plain: Any, name: str) -> list[Any]:
    value = plain.get(name) if isinstance(plain, Mapping) else None
    if not isinstance(value, list):
        raise _WrongForm(f"{name} is missing, or is not a list")
    return value


def _text(plain: Any, name: str, where: str) -> str:
    value = plain.get(name) if isinstance(plain, Mapping) else None
    if not isinstance(value, str) or not value:
        raise _WrongForm(f"{where}.{name} is {value!r:.40}, expected text")
    return value


def _count(plain: Mapping[str, Any], name: str, where: str) -> int:
    value = plain.get(name)
    if type(value) is not int or value < 1 or value > 1 << 62:
        raise _WrongForm(f"{where}.{name} is {value!r:.40}, expected a positive whole number")
    return value


def _positive(plain: Mapping[str, Any], name: str, where: str) -> float:
    value = plain.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e15:
        raise _WrongForm(f"{where}.{name} is {value!r:.40}, expected a positive number")
    return float(value)
