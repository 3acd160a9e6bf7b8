"""Evidence of runs and results of benchmarks, added to a history."""

from __future__ import annotations

import hashlib
import json
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.evidence import Case, Evidence, Kernel, Verdict, read
from history.database import History

_NAME = re.compile(r"[\w.:@+-]{1,80}", re.ASCII)
_BENCH_SCHEMA = 1
_BENCH_LIMIT = 256 << 20
_VALUES = {"median_us": "us", "busbw_gbs": "GB/s", "algbw_gbs": "GB/s", "ratio_to_nccl": ""}
SOAK = "soak"
_OWNED = ("verdict", "kernel", "measure", "mark")


@dataclass(frozen=True)
class Origin:
    """The place and the purpose of a run, which its evidence does not name: ``node`` is the machine's name, ``leg`` the
    run's name in the night's plan. ``night``: None for the day on which the run began, in UTC."""

    node: str = "-"
    leg: str = "-"
    night: str | None = None

    def __post_init__(self) -> None:
        for name, text in (("node", self.node), ("leg", self.leg), ("night", self.night or "-")):
            if not _NAME.fullmatch(text):
                raise UsageError(
                    f"--{name}: expected up to 80 letters, digits and any of . : @ + _ -, got {text!r:.100}"
                )


def add(history: History, path: Path, origin: Origin | None = None, *, case: str = "") -> bool:
    """Add a file of evidence, or the ``bench.json`` of a benchmark. Return False if the history has it already.

    ``case``: the id of the one case that the run repeated. Its verdict is then that of ``GROUP case ID``, since it is
    not the verdict of the whole group. Of a run that had not ended when it was added, the longer file replaces the
    shorter one. Raises UsageError for a file that is neither, for damaged evidence, and for two different files of one
    run.
    """
    digest, bench = _digest(path)
    run, owned = _of_bench(path, digest) if bench else _of_evidence(path)
    if case:
        ran = [row for row in owned["verdict"] if row["verdict"] != Verdict.NOT_RUN.value]
        owned = {**owned, "verdict": [{**row, "name": f"{row['name']} case {case}"} for row in ran], "kernel": []}
    return insert(history, _placed(run, digest, origin), owned, path)


@dataclass(frozen=True)
class Soak:
    """Result of a soak for the history. ``growth``: of each kind of use, such as ``memory`` in bytes; ``seconds``: of a
    round of each area, the median. ``message``: the first problem, or ""."""

    verdict: Verdict
    rounds: int
    cases: int
    elapsed: float
    growth: Mapping[str, float]
    seconds: Mapping[str, float]
    message: str = ""


def add_soak(history: History, path: Path, soak: Soak, origin: Origin | None = None) -> bool:
    """Add a soak, whose run the evidence at ``path`` describes: its verdict as that of the group ``soak``, and its
    measures ``soak.*``. Returns and raises as ``add`` does."""
    digest, _ = _digest(path)
    run, _ = _of_evidence(path)
    run |= {"kind": "soak", "level": "soak"}
    verdict = {
        "name": SOAK, "requirement": SOAK, "verdict": soak.verdict.value, "cases": soak.cases, "seconds": soak.elapsed,
        "failing_case": None, "message": soak.message[:500], "repeats": None, "failed": None,
    }  # fmt: skip
    values = {"rounds": (float(soak.rounds), ""), "cases": (float(soak.cases), "")}
    values |= {f"growth.{kind}": (value, "") for kind, value in soak.growth.items()}
    values |= {f"seconds.{area}": (value, "s") for area, value in soak.seconds.items()}
    empty = {"gpu": "", "low": None, "high": None, "samples": None}
    measures = [
        {**empty, "metric": f"{SOAK}.{name}", "value": value, "unit": unit} for name, (value, unit) in values.items()
    ]
    return insert(history, _placed(run, digest, origin), {"verdict": [verdict], "measure": measures}, path)


def _placed(run: dict[str, Any], digest: str, origin: Origin | None) -> dict[str, Any]:
    origin = origin or Origin()
    place = {"node": origin.node, "leg": origin.leg, "night": origin.night or run["started"][:10]}
    return {**run, "digest": digest, **place}


def insert(history: History, run: dict[str, Any], owned: Mapping[str, list[dict[str, Any]]], path: Path) -> bool:
    """Insert a run and the rows that belong to it. Return False if the history has the run already."""
    for known in history.rows("SELECT digest, records, finished FROM run WHERE id = ?", run["id"]):
        if known["digest"] == run["digest"] or (known["finished"] is None and known["records"] > run["records"]):
            return False
        if known["finished"] is not None:
            raise UsageError(
                f"{path} differs from the file of the run {run['id']} that the history has: one of both was edited"
            )
        history.delete_run(run["id"])
    history.insert("run", [run])
    for table in _OWNED:
        history.insert(table, [{"run": run["id"], **row} for row in owned.get(table, ())])
    return True


def _digest(path: Path) -> tuple[str, bool]:
    """Return the SHA-256 of a file, and whether it looks like the result of a benchmark."""
    digest, first = hashlib.sha256(), b""
    try:
        if not path.is_file():
            raise UsageError(f"{path} is not a file: name an evidence.jsonl or a bench.json")
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                first = first or block[:4096]
                digest.update(block)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    return digest.hexdigest(), b'"semantics"' in first and b'"record"' not in first


# -- evidence --------------------------------------------------------------------------------------------------------


def _of_evidence(path: Path) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    evidence = read(path)
    cut = () if evidence.ends else ("was cut off: its writer was killed", "has no line end: it was cut off")
    if problems := [problem for problem in evidence.problems if not cut or not problem.endswith(cut)]:
        raise UsageError(f"{path} is damaged, so nothing of it was added: {problems[0]}")
    if not evidence.runs:
        raise UsageError(f"{path} has no record of a run: name the evidence.jsonl of a whole run")
    run = evidence.runs[0]
    packages = run.environment.get("packages", {})
    hardware = evidence.hardware[0] if evidence.hardware else None
    harness = run.harness.get("packages", {})
    row = {
        "id": run.id,
        "kind": "suite",
        "records": len(evidence.cases) + len(evidence.groups) + len(evidence.ends),
        "started": run.started,
        "finished": evidence.ends[-1].finished if evidence.ends else None,
        "device": run.device,
        "arch": run.arch,
        "ranks": ",".join(map(str, run.ranks)),
        "mode": run.mode,
        "level": run.level,
        "implementation": run.implementation["name"],
        "version": run.implementation.get("version"),
        "library_commit": run.implementation.get("commit"),
        "harness": run.harness.get("version") or packages.get("iris-harness"),
        "harness_commit": next((each.get("commit") for name, each in harness.items() if name == "harness"), None),
        "triton": packages.get("triton"),
        "torch": packages.get("torch"),
        "driver": str(hardware.driver.get("version")) if hardware and hardware.driver.get("version") else None,
        "gpus": " ".join(sorted({gpu for record in evidence.hardware for gpu in record.gpus})),
        "seed": str(run.seed),
    }
    return row, {
        "verdict": _verdicts(evidence),
        "kernel": _kernels(evidence),
        "measure": _telemetry(evidence),
        "mark": [{"text": text} for text in sorted({mark for record in evidence.telemetry for mark in record.marks})],
    }


def _verdicts(evidence: Evidence) -> list[dict[str, Any]]:
    """Return a row for each planned group: with its verdict, or ``not_run`` if it did not end."""
    rows = []
    for result in evidence.requirements().values():
        for group, verdict in result.groups.items():
            record = evidence.groups[group][-1] if group in evidence.groups else None
            repeats = record.repeats if record is not None and record.repeats else {}
            rows.append(
                {
                    "name": group,
                    "requirement": result.id,
                    "verdict": verdict.value,
                    "cases": record.cases if record else 0,
                    "seconds": record.seconds if record else None,
                    "failing_case": record.failing_case if record else None,
                    "message": (record.message if record else "")[:500],
                    "repeats": repeats.get("runs"),
                    "failed": repeats.get("failed"),
                }
            )
    return rows


def _kernels(evidence: Evidence) -> list[dict[str, Any]]:
    """Return a row for each group and name of a kernel: the greatest counters of its variants."""
    used: dict[tuple[str, str], dict[str, Kernel]] = defaultdict(dict)
    for case in _of_ended(evidence):
        for each in case.kernels:
            if (kernel := evidence.kernels.get(each)) is not None:
                used[case.group, kernel.name][each] = kernel
    return [
        {
            "name": group,
            "kernel": name,
            "variants": len(variants),
            "instructions": _greatest(variants.values(), lambda f: f.get("instructions")),
            "registers": _greatest(variants.values(), lambda f: f.get("registers") or f.get("vgprs")),
            "spills": _greatest(variants.values(), lambda f: f.get("vgpr_spills")),
            "waits": _greatest(variants.values(), lambda f: f.get("waits")),
            "lds": _greatest(variants.values(), lambda f: f.get("lds")),
        }
        for (group, name), variants in sorted(used.items())
    ]


def _of_ended(evidence: Evidence) -> Iterable[Case]:
    return (case for case in evidence.cases if case.group in evidence.groups and case.verdict is Verdict.PASS)


def _greatest(kernels: Iterable[Kernel], counter: Callable[[Mapping[str, Any]], int | None]) -> int | None:
    return max((value for kernel in kernels if (value := counter(kernel.fingerprint)) is not None), default=None)


def _telemetry(evidence: Evidence) -> list[dict[str, Any]]:
    """Return the range of each gauge, and the sum of each counter, over the run, for each GPU."""
    gauges: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    counters: dict[tuple[str, str], float] = defaultdict(float)
    for record in evidence.telemetry:
        for gpu in record.gpus:
            for name, (low, high) in gpu.get("gauges", {}).items():
                gauges[f"telemetry.{name}", gpu["gpu"]].append((low, high))
            if record.cases:
                continue  # a record without a case covers the whole run
            for name, value in gpu.get("deltas", {}).items():
                counters[f"telemetry.{name}", gpu["gpu"]] += value
    rows = [
        {
            "metric": metric, "gpu": gpu, "value": statistics.median(high for _, high in ranges), "unit": "",
            "low": min(low for low, _ in ranges), "high": max(high for _, high in ranges), "samples": len(ranges),
        }
        for (metric, gpu), ranges in sorted(gauges.items())
    ]  # fmt: skip
    return rows + [
        {"metric": metric, "gpu": gpu, "value": value, "unit": "", "low": None, "high": None, "samples": None}
        for (metric, gpu), value in sorted(counters.items())
    ]


# -- benchmarks ------------------------------------------------------------------------------------------------------


def _of_bench(path: Path, digest: str) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """Return the rows of a ``bench.json``. The id of the run is the hash of its content."""
    try:
        if path.stat().st_size > _BENCH_LIMIT:
            raise ValueError("is too large")
        plain = json.loads(path.read_bytes())
        if plain["schema"] != _BENCH_SCHEMA:
            raise UsageError(f"{path} has schema {plain['schema']!r:.20}, and this version reads {_BENCH_SCHEMA}")
        request, environment = plain["request"], plain["environment"]
        packages = environment.get("packages", {})
        implementation = request["implementation"]
        prefix = f"bench.{request['op']}.{request['dtype']}.{request['ranks']}"
        rows = [row for size in plain["sizes"] for cell in size["cells"] for row in _of_cell(prefix, size, cell)]
        run = {
            "id": f"bench-{digest[:32]}",
            "kind": "bench",
            "records": len(rows),
            "started": str(plain["started"]),
            "finished": str(plain["finished"] or plain["started"]),
            "device": str(request["device"]),
            "arch": str(request["arch"]),
            "ranks": str(request["ranks"]),
            "mode": "fast",
            "level": "bench",
            "implementation": str(implementation),
            "version": None,
            "library_commit": environment.get("commit"),
            "harness": packages.get("iris-harness"),
            "harness_commit": None,
            "triton": packages.get("triton"),
            "torch": packages.get("torch"),
            "driver": None,
            "gpus": "",
            "seed": "0",
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"{path} is not a bench.json ({type(error).__name__}: {error}): nothing was added") from None
    return run, {"measure": list({(row["metric"], row["gpu"]): row for row in rows}.values())}


def _of_cell(prefix: str, size: Mapping[str, Any], cell: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    if cell["status"] != "ok":
        return
    config = "".join(f",{name}={value}" for name, value in sorted(dict(cell.get("config") or {}).items()))
    cus = f".{cell['cus']}cus" if cell.get("cus") else ""
    for name, unit in _VALUES.items():
        value = cell.get(name)
        if not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
            continue
        low, high = (cell.get(f"{p}_us") for p in ("p10", "p90")) if name == "median_us" else (None, None)
        if name.endswith("bw_gbs") and cell.get("p10_us") and cell.get("p90_us"):
            low, high = (value * cell["median_us"] / cell[each] for each in ("p90_us", "p10_us"))
        yield {
            "metric": f"{prefix}.{size['bytes']}.{cell['backend']}{cus}{config}.{name}",
            "gpu": "",
            "value": float(value),
            "low": low,
            "high": high,
            "samples": len(cell.get("times_us") or ()),
            "unit": unit,
        }
