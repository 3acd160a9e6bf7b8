"""Merge of the shards of a large fleet: seconds, peak memory, and bytes, for evidence that is made here.

    python -m benchmarks.fleet_scale --nodes 1000 --groups 1000000 --folder DIR

Every group has one case of the size that the suite's cases have. A child process merges the shards, so that its memory
is that of the merge alone. The bytes that one night adds to a history of durations are counted too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.evidence import case_id, shards
from harness.evidence.chain import Chain

REQUIREMENT = "RMA-PUT-001"
KERNEL = "f" * 64


def main() -> None:
    """Write the shards, merge them in a child process, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--groups", type=int, default=10_000)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--merge", type=Path, default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.merge is not None:
        merge(arguments.merge)
        return
    with tempfile.TemporaryDirectory(prefix="iris-scale-", dir=arguments.folder) as folder:
        started = time.monotonic()
        size = write(Path(folder), arguments.nodes, arguments.groups)
        print(f"{arguments.nodes:,} shards, {arguments.groups:,} groups: {size / 1e6:,.0f} MB of evidence", flush=True)
        print(f"written in {time.monotonic() - started:,.0f} s", flush=True)
        command = [sys.executable, "-m", "benchmarks.fleet_scale", "--merge", folder]
        figures = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        times = f"{figures['seconds']:,.0f} s ({figures['used']:,.0f} s of one core)"
        print(f"merged in {times}, peak memory {figures['peak'] / 1e6:,.0f} MB")
        print(f"merged evidence: {figures['bytes'] / 1e6:,.0f} MB, {figures['counts']}")
        print(f"history of one night (seconds by group): {figures['history'] / 1e6:,.1f} MB")


def write(folder: Path, nodes: int, groups: int) -> int:
    """Write the shards of a run into ``folder``; return their bytes."""
    names = [f"{REQUIREMENT}[ranks=8,dtype=fp16,number={number}]" for number in range(groups)]
    division, text = shards.to_text(names, nodes, {"level": "core"})
    (folder / shards.FILE).write_text(text)
    total = 0
    for index, part in enumerate(shards.divided(names, nodes), 1):
        path = folder / f"{index}.jsonl"
        chain = Chain(f"run{index}")
        with path.open("wb") as file:
            for kind, content in _records(index, division, sorted({*part, *division.mandatory})):
                head = {"schema": 2, "record": kind, "run": chain.run, "sequence": chain.sequence, **content}
                line, value = chain.sealed(json.dumps(head, separators=(",", ":")).encode())
                file.write(line)
                chain.advance(value)
        total += path.stat().st_size
    return total


def merge(folder: Path) -> None:
    """Merge the shards in ``folder``, and print seconds, peak memory in bytes and sizes as JSON."""
    from harness.evidence.merging import merge_shards

    files = sorted(folder.glob("[0-9]*.jsonl"), key=lambda path: int(path.stem))
    output, started, used = folder / "merged.jsonl", time.monotonic(), time.process_time()
    merged = merge_shards(output, files, folder / shards.FILE)
    seconds, used = time.monotonic() - started, time.process_time() - used
    # ru_maxrss would be that of the process that started this one, if it had more
    peak = _high_water()
    history = folder / "history.json"
    history.write_text(json.dumps(shards.weights_in(output), separators=(",", ":")))
    print(
        json.dumps(
            {
                "seconds": seconds,
                "used": used,
                "peak": peak,
                "bytes": output.stat().st_size,
                "counts": dict(merged.counts),
                "history": history.stat().st_size,
            }
        )
    )


def _records(index: int, division: shards.Division, names: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    packages = {"torch": "2.13.0", "triton": "3.9.0"}
    yield "run", {
        "id": f"run{index}", "seed": 0, "level": "core", "device": "rocm", "arch": "gfx942", "ranks": [8],
        "implementation": {"name": "iris_under_test"}, "started": "2026-11-21T02:00:00Z",
        "environment": {"python": "3.11.7", "os": "Linux 6 x86_64", "cpus": 96, "packages": packages},
    }  # fmt: skip
    planned = [
        {"group": name, "requirement": REQUIREMENT, "nodeid": f"test_put.py::test_put{name[11:]}"} for name in names
    ]
    requirement = {"id": REQUIREMENT, "statement": "put copies exactly the masked elements"}
    shard = {"index": index, "of": division.of, "plan": division.digest, "node": f"node{index}"}
    yield "plan", {"groups": planned, "requirements": [requirement], "shard": shard}
    access = {
        "kind": "store",
        "width": 16,
        "where": "remote",
        "peer": True,
        "executions": 8,
        "lanes": 500,
        "bytes": 8000,
    }
    for name in names:
        drawn = {
            "type": "Copy",
            "fields": {"count": 4096, "dtype": "fp16", "offset": 3, "mask": "every third", "to": 1},
        }
        yield "case", {
            "id": case_id(REQUIREMENT, name, drawn), "requirement": REQUIREMENT, "group": name,
            "nodeid": _nodeid(name), "case": drawn, "seed": 0, "phase": "generate",
            "verdict": "pass", "repeat": "iris-harness replay 0123456789abcdef", "message": "", "kernels": [KERNEL],
            "launches": {KERNEL: {"launches": 8, "accesses": [access] * 3}}, "timing": {"seconds": 0.25},
        }  # fmt: skip
        yield "group", {
            "group": name, "requirement": REQUIREMENT, "verdict": "pass", "cases": 1, "message": "", "seconds": 0.3,
        }  # fmt: skip
    yield "end", {"exit_status": 0, "finished": "2026-11-21T06:00:00Z", "counts": {"pass": len(names), "skipped": 0}}


def _high_water() -> int:
    """Return the greatest memory of this process in bytes."""
    lines = Path("/proc/self/status").read_text("ascii", "replace").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def _nodeid(name: str) -> str:
    return f"test_put.py::test_put{name.removeprefix(REQUIREMENT).replace(',', '-')}"


if __name__ == "__main__":
    main()
