"""Results: one per configuration, and how they are written."""

from __future__ import annotations

import csv
import io
import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

__all__ = ["FAILED", "FORMATS", "NOT_RUN", "OK", "SKIPPED", "Result", "render"]

OK, SKIPPED, FAILED, NOT_RUN = "ok", "skipped", "failed", "not run"
FORMATS = ("console", "json", "csv")


@dataclass
class Result:
    """The result of one configuration. ``axes`` are texts and numbers; ``times_ms`` are rank 0's, by call;
    ``detail`` is the reason if there are none."""

    name: str
    benchmark: str
    axes: dict[str, Any]
    status: str
    detail: str = ""
    device: str = ""
    times_ms: list[float] = field(default_factory=list)
    n_warmup: int = 0
    bytes: int | None = None
    flops: float | None = None
    counters: dict[str, float] = field(default_factory=dict)

    @property
    def mean_ms(self) -> float | None:
        """The mean of all timed calls."""
        return statistics.fmean(self.times_ms) if self.times_ms else None

    @property
    def bandwidth_gb_s(self) -> float | None:
        """``bytes`` / 1e9 / mean seconds."""
        return self._rate(self.bytes, 1e9)

    @property
    def tflops(self) -> float | None:
        """``flops`` / 1e12 / mean seconds."""
        return self._rate(self.flops, 1e12)

    def summary(self) -> dict[str, float | None]:
        """The figures, in milliseconds, GB/s (1e9 bytes) and TFLOPS; None where there is none."""
        times = self.times_ms
        return {
            "mean_ms": self.mean_ms,
            "median_ms": statistics.median(times) if times else None,
            "min_ms": min(times, default=None),
            "max_ms": max(times, default=None),
            "bandwidth_gb_s": self.bandwidth_gb_s,
            "tflops": self.tflops,
        }

    def _rate(self, amount: float | None, unit: float) -> float | None:
        mean = self.mean_ms
        return amount / unit / (mean / 1e3) if amount is not None and mean else None


def render(results: Sequence[Result], form: str, context: Mapping[str, Any]) -> str:
    """The results as text in one of ``FORMATS``, ending in a line break; ``context`` goes into the JSON."""
    if form == "json":
        benchmarks = [{**asdict(result), **result.summary()} for result in results]
        return json.dumps({"context": dict(context), "benchmarks": benchmarks}, indent=1) + "\n"
    header, rows = _table(results)
    if form == "csv":
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(["" if cell is None else cell for cell in row] for row in rows)
        return text.getvalue()
    return _aligned([header, *([_rounded(cell) for cell in row] for row in rows)])


def _table(results: Sequence[Result]) -> tuple[list[str], list[list[Any]]]:
    """Columns: benchmark, the axes and counters of all of them, the figures, the detail."""
    axes = list(dict.fromkeys(name for result in results for name in result.axes))
    counters = list(dict.fromkeys(name for result in results for name in result.counters))
    figures = list(Result("", "", {}, OK).summary())
    rows = [
        [
            result.benchmark,
            *(result.axes.get(name) for name in axes),
            *result.summary().values(),
            *(result.counters.get(name) for name in counters),
            result.status,
            result.detail.splitlines()[-1] if result.detail else "",
        ]
        for result in results
    ]
    return ["benchmark", *axes, *figures, *counters, "status", "detail"], rows


def _rounded(cell: Any) -> str:
    if cell is None:
        return "-"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows)
    return "\n".join(lines) + "\n"
