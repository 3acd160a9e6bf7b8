"""A run of a level of the suite, cold and warm, in the working tree and in another revision, and the ratios of the two.

    python -m benchmarks.conformance_gate [--base REV] [--level gate] [--ranks 4] [--groups 1] [--cores N] [--limit S]
                                          [--base-limit S] [-k EXPRESSION] [PATH ...]

Each side has a kernel cache of its own, empty for its cold pass; its warm pass repeats the run with the cache that the
cold one filled. The base is unpacked with ``git archive`` into a temporary folder and runs with this interpreter and
its packages; on a machine without the repository's history, ``--base`` names a folder with its files. A pass that takes
longer than ``--limit`` seconds is stopped, and its rates are those of the cases until then: so compare ``cases_per_s``
of two passes that were stopped. The warm pass after a stopped one is stopped too, once it has executed as many cases:
what comes then is not in the cache. Prints one line of JSON per pass, then the ratios, working tree to base.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_END = 90.0
"""Seconds that a stopped run may take to end its ranks in order, before it is killed."""

_RATIOS = ("cases", "cases_per_s", "kernels", "seconds", "case_seconds", "compile_seconds", "median_case_ms")


def main() -> None:
    arguments = _arguments()
    cores = sorted(os.sched_getaffinity(0))[: arguments.cores]
    os.sched_setaffinity(0, cores)
    with tempfile.TemporaryDirectory(prefix="iris-harness-gate-") as name:
        folder = Path(name)
        sides = [("tree", ROOT, arguments.groups, arguments.limit)]
        if arguments.base:
            given = Path(arguments.base).resolve()
            base = given if given.is_dir() else _unpacked(arguments.base, folder / "source")
            sides.insert(0, ("base", base, arguments.base_groups, arguments.base_limit or arguments.limit))
        figures: dict[tuple[str, str], dict[str, Any]] = {}
        for side, root, groups, limit in sides:
            enough = None
            for temperature in ("cold", "warm"):
                result = _pass(root, folder / side, temperature, groups, arguments, limit, enough)
                enough = None if result["complete"] else result["cases"]
                figures[side, temperature] = result
                conditions = {
                    "side": side,
                    "kernels_in_cache": temperature == "warm",
                    "cores": len(cores),
                    "groups": groups,
                }
                print(json.dumps(conditions | result), flush=True)
        for temperature in ("cold", "warm") if arguments.base else ():
            tree, base = figures["tree", temperature], figures["base", temperature]
            ratios = {key: round(tree[key] / base[key], 3) if base[key] else None for key in _RATIOS}
            print(json.dumps({"ratio": "tree / base", "kernels_in_cache": temperature == "warm"} | ratios), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", default=["conformance"], help="what to run, relative to each side's root")
    parser.add_argument("--base", help="revision to compare with, such as 9a87c2f, or a folder with its files")
    parser.add_argument("--level", default="gate")
    parser.add_argument("--ranks", default="4")
    parser.add_argument("--device", default="emulated")
    parser.add_argument("--deadline", default="120", help="seconds that a case may take")
    parser.add_argument("--groups", type=int, default=1, help="rank groups at once in the working tree")
    parser.add_argument("--base-groups", type=int, default=1, help="rank groups at once in the base")
    parser.add_argument("--cores", type=int, default=os.cpu_count(), help="cores that each run may use")
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds after which a pass is stopped")
    parser.add_argument("--base-limit", type=float, help="the same for the base; by default --limit")
    parser.add_argument("-k", dest="expression", default="", help="pytest's -k")
    return parser.parse_args()


def _unpacked(revision: str, folder: Path) -> Path:
    """Return ``folder`` with the files of a revision of this repository."""
    folder.mkdir()
    archive = folder.with_suffix(".tar")
    with open(archive, "wb") as file:
        subprocess.run(["git", "archive", revision], cwd=ROOT, stdout=file, check=True)
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    return folder


def _pass(
    root: Path,
    folder: Path,
    temperature: str,
    groups: int,
    arguments: argparse.Namespace,
    limit: float,
    enough: int | None,
) -> dict[str, Any]:
    """Run the suite of the tree at ``root`` once and return its figures.

    ``folder``: the side's caches and evidence. The run is stopped after ``limit`` seconds, and after ``enough`` cases.
    """
    results = folder / temperature
    results.mkdir(parents=True)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(root), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "TRITON_CACHE_DIR": str(folder / "kernels"),
        "NUMBA_CACHE_DIR": str(folder / "numba"),
        "OMP_NUM_THREADS": "1",
    }
    # Until it had --api, the suite's --level was the API's, and --profile the amount of testing.
    level = "--level" if '"--api"' in (root / "fixtures" / "plugin.py").read_text() else "--profile"
    command = [
        sys.executable, "-m", "pytest", *arguments.paths, "-q", "-p", "no:cacheprovider",
        level, arguments.level, "--ranks", arguments.ranks, "--device", arguments.device,
        "--deadline", arguments.deadline, "--evidence", str(results / "evidence.jsonl"),
        *(["-p", "xdist", "-n", str(groups)] if groups > 1 else []),
        *(["-k", arguments.expression] if arguments.expression else []),
    ]  # fmt: skip
    started = time.monotonic()
    with open(results / "output.txt", "wb") as output:
        run = subprocess.Popen(
            command, cwd=root, env=environment, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        status: int | None = None
        try:
            while time.monotonic() < started + limit and status is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    status = run.wait(1)
                if enough is not None and _written(results) >= enough:
                    break
        finally:
            seconds = time.monotonic() - started
            _end(run)
    if status not in (0, 1, None):  # 1: a case failed, which the evidence has
        sys.exit((results / "output.txt").read_text(errors="replace")[-3000:])
    figures = _figures(results, seconds)
    if status is not None and not figures["cases"]:
        sys.exit(f"no case ran in {root}:\n{(results / 'output.txt').read_text(errors='replace')[-3000:]}")
    return {"complete": status is not None, "status": status} | figures


def _end(run: subprocess.Popen[bytes]) -> None:
    """End a run and everything in its session. An interrupt comes first: it ends its ranks and writes its evidence."""
    with contextlib.suppress(subprocess.TimeoutExpired, ProcessLookupError):
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGINT)
            run.wait(_END)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGKILL)
    run.wait(10)


def _figures(results: Path, seconds: float) -> dict[str, Any]:
    """Return the figures of a pass. ``median_case_ms``: of the cases that compiled nothing. In early
    revisions a case has no seconds of compilation: there the median is of all cases."""
    cases = list(_cases(results))
    warm = [case["timing"]["seconds"] for case in cases if not case["timing"].get("compile_seconds")]
    verdicts = {verdict: sum(case["verdict"] == verdict for case in cases) for verdict in ("pass", "fail", "unknown")}
    return {
        "cases": len(cases),
        **verdicts,
        "cases_per_s": round(len(cases) / seconds, 3),
        "kernels": len({kernel for case in cases for kernel in case["kernels"]}),
        "seconds": round(seconds, 1),
        "case_seconds": round(sum(case["timing"]["seconds"] for case in cases), 1),
        "compile_seconds": round(sum(case["timing"].get("compile_seconds", 0.0) for case in cases), 1),
        "median_case_ms": round(1000 * statistics.median(warm), 1) if warm else 0,
    }


def _written(results: Path) -> int:
    """Return how many cases the evidence of a run has so far, at most."""
    return sum(file.read_bytes().count(b'"record":"case"') for file in results.rglob("*.jsonl"))


def _cases(results: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of the cases that were executed, each once."""
    seen = set()
    for file in sorted(results.rglob("*.jsonl")):
        for line in file.read_bytes().splitlines():
            with contextlib.suppress(ValueError):  # the last line of a run that was stopped
                record = json.loads(line)
                key = (record.get("group"), record.get("id"))
                if record.get("record") == "case" and record.get("timing") and key not in seen:
                    seen.add(key)
                    yield record


if __name__ == "__main__":
    main()
