"""bench.main: a file of benchmarks run as its users run it, and command lines that it refuses.

The runs start their own ranks, so rank 0 starts them in a process apart while the others wait; on two ranks only, as
one of them takes seconds.
"""

import csv
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import HostCase

FILE = Path(__file__).with_name("benchmarks.py")
SECONDS = 150.0
# What torch.distributed.elastic tells a rank; the process apart is none.
ELASTIC = ("TORCHELASTIC_", "MASTER_", "RANK", "LOCAL_", "WORLD_SIZE", "GROUP_", "ROLE_")


def run(env, case):
    return {"refusals": refusals, "whole": whole}[case.what](env)


def refusals(env):
    """None of them starts a rank."""
    found, main = Findings(env.rank), env.under_test.module.bench.main
    for wrong in (
        ["--benchmark_filter=no_such"],
        ["--axis_no_such=1"],
        ["--benchmark_format=xml"],
        ["--n_repeat=none"],
    ):
        found.raises(f"main({wrong})", (SystemExit, ValueError, RuntimeError), lambda wrong=wrong: main(wrong))
    return found.first


def whole(env):
    found = Findings(env.rank)
    if env.rank == 0:
        with tempfile.TemporaryDirectory() as folder:
            _check_run(env, found, Path(folder) / "results.csv")
    env.settle()
    return found.first


def _check_run(env, found, path):
    arguments = [
        "--benchmark_format=csv",
        f"--benchmark_out={path}",
        "--heap_size=4194304",
        "--n_warmup=1",
        "--n_repeat=3",
    ]
    arguments += ["--axis_num_ranks=2", "--skip_rows=1", "--use_gluon"]
    if env.device.torch_device.type == "cpu":
        arguments.append("--setup=harness.emulator:activate")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ELASTIC)}
    done = subprocess.run(
        [sys.executable, str(FILE), *arguments],
        env={**kept, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "HARNESS_PACKAGE": env.under_test.name},
        capture_output=True,
        text=True,
        timeout=SECONDS - 30,
        check=False,
    )
    if done.returncode != 0:
        found.note("exit status of the run", f"{done.returncode}: {done.stderr[-1500:]}", 0)
        return
    rows = list(csv.DictReader(path.read_text(encoding="utf-8").splitlines()))
    gathers = [row for row in rows if row["benchmark"] == "gather"]
    found.equal("axes, in order", [(row["num_ranks"], row["rows"], row["dtype"]) for row in gathers],
                [("2", "2", "float16"), ("2", "2", "float32")])  # fmt: skip
    for row, moved in zip(gathers, (2 * 64 * 2, 2 * 64 * 4), strict=False):
        mean = float(row["mean_ms"])
        found.true(
            f"{row['dtype']}: times are positive and in order", 0 < float(row["min_ms"]) <= mean <= float(row["max_ms"])
        )
        wanted = moved / 1e9 / (mean / 1e3)
        found.true(f"bandwidth {row['bandwidth_gb_s']} is bytes over mean, {wanted}",
                   abs(float(row["bandwidth_gb_s"]) - wanted) <= 1e-9 * wanted)  # fmt: skip
        found.equal("the counter", float(row["asked"]), 2.0)
    for row in rows:
        if row["benchmark"] == "left_out":
            found.equal(
                "the skipped one", (row["status"], row["detail"], row["mean_ms"]), ("skipped", "for a reason", "")
            )
        if row["benchmark"] == "own_counts":
            found.true("TFLOPS are told", float(row["tflops"]) > 0)
            found.equal("--use_gluon as the benchmark sees it", float(row["gluon"]), 1.0)
    found.equal("benchmarks", [row["benchmark"] for row in rows], ["gather", "gather", "left_out", "own_counts"])


def cases(ranks):
    return [HostCase("refusals"), *([HostCase("whole")] if ranks == 2 else [])]


@requirement("BENCH-MAIN-001", cases=cases)
def test_main(check, case):
    check(run, case, deadline=SECONDS)
