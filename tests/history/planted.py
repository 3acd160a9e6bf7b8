"""Histories with planted changes: a new failure, a mended one, a flaky group, a drift, a step, a bad node."""

from __future__ import annotations

import random
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from history import History
from history.adding import insert

FIRST = date(2026, 9, 1)
COMMITS = [f"{number:02x}" * 20 for number in range(0x10, 0x70)]
STEADY, BROKEN, MENDED, FLAKY, NODE = (
    f"RMA-{name}-001[ranks=4,dtype=fp32]" for name in ("PUT", "GET", "COPY", "LOAD", "STORE")
)
"""Groups: one passes always, one breaks, one is mended, one is flaky, one fails on one node only."""
BREAKS, MENDS, STEPS = 24, 20, 14
"""Nights, counted from 0, from which on a group fails, passes, and a bandwidth is smaller."""


def night_of(number: int) -> str:
    return (FIRST + timedelta(days=number)).isoformat()


def plant(path: Path, nights: int = 30, seed: int = 1, groups: int = 4) -> Path:
    """Write a history with two nodes and ``groups`` further groups that pass."""
    draw = random.Random(seed)
    with History(path, create=True) as history:
        for number in range(nights):
            for node in ("node-a", "node-b"):
                _night(history, path, number, node, draw, groups)
    return path


def run_row(number: int, node: str, kind: str = "suite", **changes: Any) -> dict[str, Any]:
    """Return the row of a run."""
    return {
        "id": f"{kind}-{number}-{node}", "kind": kind, "digest": f"{kind}{number}{node}", "records": 9,
        "night": night_of(number), "leg": "gate", "node": node, "started": f"{night_of(number)}T02:00:00Z",
        "finished": f"{night_of(number)}T03:00:00Z", "device": "rocm", "arch": "gfx942", "ranks": "4", "mode": "fast",
        "level": "gate", "implementation": "iris_under_test", "version": "0.2.0", "library_commit": COMMITS[number],
        "harness": "0.2.0", "harness_commit": "c" * 40, "triton": "3.9.0", "torch": "2.13.0", "driver": "6.4",
        "gpus": f"GPU-{node}", "seed": str(number), **changes,
    }  # fmt: skip


def verdict_row(group: str, verdict: str, seconds: float = 2.0, **changes: Any) -> dict[str, Any]:
    """Return the row of a group's verdict."""
    failed = verdict != "pass"
    return {
        "name": group, "requirement": group.partition("[")[0], "verdict": verdict, "cases": 12, "seconds": seconds,
        "failing_case": "0123456789abcdef" if failed else None, "message": "heap differs" if failed else "",
        "repeats": None, "failed": None, **changes,
    }  # fmt: skip


def _night(history: History, path: Path, number: int, node: str, draw: random.Random, groups: int) -> None:
    verdicts = [verdict_row(STEADY, "pass", 2.0 + 0.04 * number + draw.gauss(0, 0.05))]
    verdicts.append(verdict_row(BROKEN, "fail" if number >= BREAKS else "pass"))
    verdicts.append(verdict_row(MENDED, "pass" if number >= MENDS else "fail"))
    flaky = draw.random() < 0.2
    verdicts.append(verdict_row(FLAKY, "flaky", repeats=6, failed=2) if flaky else verdict_row(FLAKY, "pass"))
    verdicts.append(verdict_row(NODE, "fail" if node == "node-b" and number % 3 == 0 else "pass"))
    verdicts += [verdict_row(f"CCL-X-{each:03}[ranks=4]", "pass", draw.uniform(1, 1.1)) for each in range(groups)]
    kernels = [
        {"name": STEADY, "kernel": "put_kernel", "variants": 2, "instructions": 240 if number < 12 else 310,
         "registers": 32, "spills": 0, "waits": 9, "lds": 0}
    ]  # fmt: skip
    marks = [{"text": "GPU-node-b: 2 corrected memory errors"}] if node == "node-b" and number % 7 == 0 else []
    owned = {"verdict": verdicts, "kernel": kernels, "mark": marks}
    insert(history, run_row(number, node), owned, path)
    width = 300.0 if number < STEPS else 270.0
    value = width * (1 + draw.gauss(0, 0.01)) * (0.6 if number == 9 and node == "node-a" else 1.0)
    measures = [
        {"metric": "bench.all_gather.fp16.8.16777216.iris.busbw_gbs", "gpu": "", "value": value, "low": value * 0.98,
         "high": value * 1.02, "samples": 20, "unit": "GB/s"},
        {"metric": "bench.all_gather.fp16.8.16777216.nccl.busbw_gbs", "gpu": "", "value": draw.gauss(320, 3.2),
         "low": 315.0, "high": 325.0, "samples": 20, "unit": "GB/s"},
    ]  # fmt: skip
    insert(history, run_row(number, node, "bench", level="bench", leg="bench"), {"measure": measures}, path)
