"""Cases per second of the put requirement on warm ranks, against the same cases under a torchrun start each.

    python -m benchmarks.conformance_rate [--cases 200] [--starts 3] [--ranks 2 4] [--device cuda --groups 4]

Both sides run the very same cases with the same rank function, kernels compiled before; the warm side as the suite
runs them, drawn by Hypothesis and recorded as evidence, by ``--groups`` controllers at once, each with ranks of its own
(on GPUs of its own). Prints one line of JSON per world size.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from benchmarks import rounds
from conformance.rma import test_put
from fixtures.check import Check
from fixtures.execution import Execution
from fixtures.ledger import Ledger
from fixtures.options import Options
from fixtures.requirement import ATTRIBUTE
from fixtures.rig import Rig
from harness import cases, devices, evidence
from harness.ranks import RankGroup


def options_of(device: devices.Device) -> dict[str, Any]:
    """Options of the ranks."""
    plain = {"device": device.name, "arch": device.arch, "implementation": "iris_under_test"}
    return {"backend": device.backend, **plain}


def drawn(ranks: int, count: int) -> list[Any]:
    """The first ``count`` distinct int32 cases."""
    distinct: dict[str, Any] = {}

    @settings(
        max_examples=4 * count,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @seed(0)
    @given(st.one_of(*test_put.cases(ranks, "int32")))
    def collect(case: Any) -> None:
        if len(distinct) < count:
            distinct.setdefault(json.dumps(cases.to_json(case)), case)

    collect()
    return list(distinct.values())


def warm_rate(name: str, ranks: int, todo: list[Any], folder: Path, groups: int) -> tuple[float, float]:
    """Cases per second of ``groups`` times ``todo`` through ``Check``, after all of them have run once; and the seconds
    of that first pass."""
    context = multiprocessing.get_context("spawn")
    gate = context.Barrier(groups)
    with concurrent.futures.ProcessPoolExecutor(groups, context, initializer=_share, initargs=(gate,)) as pool:
        jobs = [pool.submit(_two_passes, name, ranks, todo, folder / str(index)) for index in range(groups)]
        seconds = [job.result() for job in jobs]
    return groups * len(todo) / max(second for _, second in seconds), max(first for first, _ in seconds)


def _share(barrier: Any) -> None:
    global _gate
    _gate = barrier


def _two_passes(name: str, ranks: int, todo: list[Any], folder: Path) -> list[float]:
    """Seconds of two passes over ``todo`` on a rank group; the second begins at the same time in all processes."""
    device = devices.known(name)
    options = Options.checked(
        device=name, arch=None, mode=None, ranks=str(ranks), level="gate",
        implementation_name="iris_under_test", seed=None, evidence=None, replay=None, deadline=None,
    )  # fmt: skip
    held = getattr(test_put.test_put, ATTRIBUTE)
    folder.mkdir(exist_ok=True)
    ledger = Ledger(folder / f"evidence-{ranks}.jsonl", options)
    seconds = []
    with (
        rounds.gpus(device, ranks, print) as held_back,
        RankGroup(ranks, setup="fixtures.worker:setup", options=options_of(device), **held_back) as group,
    ):
        warm: set[tuple[str, int]] = set()
        for _ in range(2):
            check = Check(Execution(Rig(group, warm), ranks, options), options, ledger, "benchmark", "put")
            group.start()
            _gate.wait(300)
            started = time.monotonic()
            check.run(_every(held, todo), {"dtype": "int32"})
            seconds.append(time.monotonic() - started)
    verdicts = {group.verdict for records in evidence.read(ledger.path).groups.values() for group in records}
    if verdicts != {evidence.Verdict.PASS}:
        sys.exit(f"the cases did not pass: {verdicts}")
    return seconds


def _every(held: Any, todo: list[Any]) -> Any:
    from dataclasses import replace

    return replace(held, cases=lambda ranks, dtype: todo)


def start_seconds(name: str, ranks: int, todo: list[Any], starts: int, folder: Path) -> float:
    """Median seconds of one case under a torchrun start of its own."""
    taken = []
    for i, case in enumerate(todo[:starts]):
        file = folder / f"case-{ranks}-{i}.json"
        file.write_text(json.dumps(cases.to_json(case)))
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            str(ranks),
            "-m",
            "benchmarks.conformance_rate",
        ]
        started = time.monotonic()
        done = subprocess.run(
            [*command, "--one", str(file), "--device", name],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        taken.append(time.monotonic() - started)
        if done.returncode:
            sys.exit(done.stderr)
    return statistics.median(taken)


def run_one(name: str, file: str) -> None:
    """On a rank that torchrun started: one case, from start to end."""
    import torch.distributed as dist

    from fixtures import worker

    device = devices.known(name)
    dist.init_process_group(device.backend)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    info = {"rank": rank, "world_size": ranks, "local_rank": rank, "node": 0, "nodes": 1}
    env = worker.setup(info, options_of(device))
    case = json.loads(Path(file).read_text())
    result = worker.run_case(env, {"function": "conformance.rma.transfer:run", "case": {**case, "data": {"op": "put"}}})
    dist.destroy_process_group()
    if result["difference"] or result["error"]:
        sys.exit(f"the case failed: {result}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--device", choices=devices.names(), default="emulated")
    parser.add_argument("--groups", type=int, default=1, help="rank groups at once, on GPUs of their own")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        run_one(arguments.device, arguments.one)
        return
    with tempfile.TemporaryDirectory() as folder:
        for ranks in arguments.ranks:
            todo = drawn(ranks, arguments.cases)
            rate, first = warm_rate(arguments.device, ranks, todo, Path(folder), arguments.groups)
            start = start_seconds(arguments.device, ranks, todo, arguments.starts, Path(folder))
            print(
                json.dumps(
                    {
                        "device": arguments.device,
                        "groups": arguments.groups,
                        "ranks": ranks,
                        "cases": len(todo),
                        "first_pass_s": round(first, 2),
                        "warm_cases_per_s": round(rate, 1),
                        "own_start_s_per_case": round(start, 2),
                        "ratio": round(rate * start, 1),
                    }
                ),
                flush=True,
            )


if __name__ == "__main__":
    main()
