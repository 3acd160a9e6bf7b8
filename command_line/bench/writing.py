"""Write ``bench.json`` and ``bench.csv``."""

from __future__ import annotations

import csv
import dataclasses
import json
import os
import time
from pathlib import Path
from typing import Any

from command_line.bench.ops import OURS
from command_line.bench.plan import size_text
from command_line.bench.results import EMULATED, SCHEMA, SEMANTICS, Cell, Results, Size

JSON, CSV, EARLIER = "bench.json", "bench.csv", "earlier"

COLUMNS = (
    "op", "device", "arch", "ranks", "dtype", "bytes", "backend", "cus", "config", "status", "calls", "captured",
    "rounds", "median_us", "p10_us", "p90_us", "algbw_gbs", "busbw_gbs", "ratio_to_nccl",
)  # fmt: skip


def to_json(results: Results) -> dict[str, Any]:
    """Return all results, raw times included, as plain data."""
    request = results.request
    return {
        "schema": SCHEMA,
        "request": dataclasses.asdict(request),
        "semantics": SEMANTICS,
        **({"warning": EMULATED} if request.emulated else {}),
        "backends": {backend: results.label(backend) for backend in request.backends},
        "units": {"times": "microseconds per call", "bandwidths": "1e9 bytes per second"},
        "started": results.started,
        "finished": results.finished,
        "stopped": results.stopped,
        "environment": dict(results.environment),
        "rig": dict(results.rig),
        "sizes": [_size(results, size) for size in results.sizes],
    }


def write(results: Results, folder: Path) -> None:
    """Write both files; each replaces its older version atomically."""
    text = json.dumps(to_json(results), indent=1)
    _replace(folder / JSON, text + "\n")
    rows = [_row(results, size, cell) for size in results.sizes for cell in size.cells]
    part = folder / f".{CSV}.part"
    with part.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        table.writerows(rows)
    os.replace(part, folder / CSV)


def set_aside(folder: Path) -> None:
    """Move an earlier benchmark's files to ``earlier/DATE``: results are never mixed and never deleted."""
    first = folder / JSON
    if not first.exists():
        return
    written = time.strftime("%Y%m%dT%H%M%S", time.gmtime(first.stat().st_mtime))
    target, number = folder / EARLIER / written, 1
    while target.exists():
        number += 1
        target = folder / EARLIER / f"{written}-{number}"
    target.mkdir(parents=True)
    for path in (first, folder / CSV, *sorted(folder.glob("*.png"))):
        if path.exists():
            path.rename(target / path.name)


def statistics(results: Results, size: Size, cell: Cell) -> dict[str, float | None]:
    """Return the median, spread, bandwidths and ratio of a cell; empty unless the cell is ok."""
    if not cell.times:
        return {}
    median = cell.time()
    return {
        "median_us": median * 1e6,
        "p10_us": cell.time(0.1) * 1e6,
        "p90_us": cell.time(0.9) * 1e6,
        "algbw_gbs": results.algorithm_bandwidth(size, median),
        "busbw_gbs": results.bus_bandwidth(size, median),
        "ratio_to_nccl": size.ratio(cell),
    }


def _size(results: Results, size: Size) -> dict[str, Any]:
    best = {backend: size.best(backend) for backend in results.request.forms}
    return {
        "asked_bytes": size.requested,
        "bytes": size.layout.size,
        "text": size_text(size.requested),
        "input": size.layout.input,
        "output": size.layout.output,
        "their_input": size.layout.their_input,
        "their_output": size.layout.their_output,
        "calls": size.calls,
        "captured": size.captured,
        "note": size.note,
        "best_cus": {name: cell.key.cus for name, cell in best.items() if cell is not None and name in OURS},
        "cells": [_cell(results, size, cell) for cell in size.cells],
    }


def _cell(results: Results, size: Size, cell: Cell) -> dict[str, Any]:
    return {
        "backend": cell.key.backend,
        "cus": cell.key.cus,
        "config": dict(cell.key.fields),
        "status": cell.status,
        "detail": cell.detail,
        **statistics(results, size, cell),
        # A wrong output has no time.
        "times_us": [[seconds * 1e6 for seconds in ranks] for ranks in cell.rounds] if cell.times else [],
    }


def _row(results: Results, size: Size, cell: Cell) -> dict[str, Any]:
    request = results.request
    return {
        "op": request.op,
        "device": request.device,
        "arch": request.arch,
        "ranks": request.ranks,
        "dtype": request.dtype,
        "bytes": size.layout.size,
        "backend": cell.key.backend,
        "cus": cell.key.cus,
        "config": " ".join(f"{name}={value}" for name, value in cell.key.fields),
        "status": cell.status,
        "calls": size.calls,
        "captured": size.captured,
        "rounds": len(cell.times),
        **{name: f"{value:.6g}" for name, value in statistics(results, size, cell).items() if value is not None},
    }


def _replace(path: Path, text: str) -> None:
    part = path.with_name(f".{path.name}.part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
