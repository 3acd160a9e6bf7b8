"""Cost of a rank group, compared with PyTorch's own means, measured in one run.

    python benchmarks/ranks.py            all figures
    python benchmarks/ranks.py --help     fewer, or other sizes

Start: from nothing to the first barrier passed on every rank, for a group, for its restart, and for a bare torchrun.
Call: one call that does nothing, and one that does a barrier, against PyTorch's MultiProcContinuousTest doing nothing
but a barrier. Lost: the cases that do not run after a failing, a hanging and a crashing one.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from harness.ranks import CaseFailed, RankGroup  # noqa: E402 (the checkout comes first on the path)

TARGETS = "benchmarks.ranks_targets"
Row = tuple[str, str, float, str, float | None]


def start_of_group(ranks: int, options: dict[str, Any]) -> tuple[float, float]:
    """Seconds to the first barrier of a new group, and of its restart after a crash."""
    begin = time.perf_counter()
    with RankGroup(ranks, options=options) as group:
        group.call(f"{TARGETS}:barrier")
        first = time.perf_counter() - begin
        try:
            group.call(f"{TARGETS}:crash")
        except CaseFailed:
            begin = time.perf_counter()
        group.call(f"{TARGETS}:barrier")
        return first, time.perf_counter() - begin


def start_of_torchrun(ranks: int) -> float:
    """Seconds from the command to the last rank that passed its first barrier."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", str(HERE / "ranks_torchrun.py")]
    # torchrun leaves its log folder behind.
    with tempfile.TemporaryDirectory() as folder:
        begin = time.time()
        done = subprocess.run(
            command,
            env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TMPDIR": folder},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=300,
        )
    return max(float(line) for line in done.stdout.split()) - begin


def calls(ranks: int, count: int) -> tuple[float, float]:
    """Median seconds of a call that does nothing, and of one that does a barrier."""
    with RankGroup(ranks, options={"compile_once": False}) as group:
        medians = []
        for name in ("nothing", "barrier"):
            times = []
            for _ in range(count):
                begin = time.perf_counter()
                group.call(f"{TARGETS}:{name}")
                times.append(time.perf_counter() - begin)
            medians.append(statistics.median(times))
        return medians[0], medians[1]


def continuous(ranks: int, count: int) -> float:
    """Median seconds of a test of MultiProcContinuousTest that does a barrier."""
    command = [sys.executable, str(HERE / "ranks_continuous.py"), str(ranks), str(count)]
    done = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if done.returncode != 0:
        raise click.ClickException(f"MultiProcContinuousTest failed\n{done.stderr}")
    return float(json.loads(done.stdout.splitlines()[-1])["median"])


def lost(ranks: int) -> tuple[int, int]:
    """Return how many good cases were lost next to a failing, a hanging and a crashing one, and their total."""
    names = ["barrier", "fail", "barrier", "barrier", "hang", "barrier", "barrier", "crash", "barrier", "barrier"]
    good = bad = 0
    with RankGroup(ranks, options={"compile_once": False}) as group:
        for name in names:
            try:
                group.call(f"{TARGETS}:{name}", deadline=1.0 if name == "hang" else 60.0)
                good += name == "barrier"
            except CaseFailed:
                bad += name == "barrier"
    return bad, good + bad


@click.command(help=__doc__)
@click.option("--ranks", default=4, show_default=True, help="Ranks of the groups that are started.")
@click.option("--repeat", default=3, show_default=True, help="Starts of each kind; the median is shown.")
@click.option("--count", default=500, show_default=True, help="Calls of each kind.")
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="Also write the figures as JSON.")
def main(ranks: int, repeat: int, count: int, output: Path | None) -> None:
    console = Console(stderr=True)
    rows: list[Row] = []
    with console.status("bare torchrun") as status:
        torchrun = statistics.median(start_of_torchrun(ranks) for _ in range(repeat))
        rows.append((f"start, {ranks} ranks", "bare torchrun, gloo", torchrun, "s", None))
        for label, options in (("group", {}), ("group, no compiler", {"compile_once": False})):
            status.update(f"start of a {label}")
            pairs = [start_of_group(ranks, options) for _ in range(repeat)]
            first, again = (statistics.median(column) for column in zip(*pairs, strict=True))
            rows.append((f"start, {ranks} ranks", label, first, "s", torchrun / first))
            rows.append((f"restart, {ranks} ranks", label, again, "s", torchrun / again))
        for size in sorted({2, ranks}):
            status.update(f"MultiProcContinuousTest, {size} ranks")
            theirs = continuous(size, count)
            status.update(f"calls, {size} ranks")
            nothing, barrier = calls(size, count)
            rows.append((f"case, {size} ranks", "MultiProcContinuousTest, barrier", theirs * 1e3, "ms", None))
            rows.append((f"case, {size} ranks", "call, barrier", barrier * 1e3, "ms", theirs / barrier))
            rows.append((f"case, {size} ranks", "call, nothing", nothing * 1e3, "ms", theirs / nothing))
        status.update("cases lost")
        bad, total = lost(ranks)
        rows.append((f"cases lost of {total}", "after a failure, a hang, a crash", float(bad), "", None))
    table = Table("figure", "of", "value", "times faster")
    for figure, of, value, unit, ratio in rows:
        table.add_row(figure, of, f"{value:.3g} {unit}".rstrip(), "" if ratio is None else f"{ratio:.1f}")
    Console(width=100).print(table)
    if output is not None:
        keys = ("figure", "of", "value", "unit", "times_faster")
        output.write_text(json.dumps([dict(zip(keys, row, strict=True)) for row in rows], indent=1) + "\n")
    if bad:
        raise click.ClickException(f"{bad} cases were lost")


if __name__ == "__main__":
    main()
