"""do_bench, the bench module and kernel artifacts on real NVIDIA GPUs."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu import rig

REASON = rig.absent("cuda")
pytestmark = pytest.mark.skipif(REASON is not None, reason=f"needs a CUDA GPU: {REASON}")
ROOT = Path(__file__).resolve().parents[2]

TIMES = """
import json, time
import torch
from iris_under_test import do_bench

def busy():
    torch.cuda._sleep(4_000_000)

def direct():
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record(), busy(), end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end)

direct()
known = sorted(direct() for _ in range(9))[4]
print(json.dumps({
    "known": known,
    "median": do_bench(busy, n_warmup=3, n_repeat=9, return_mode="median"),
    "after a preamble": do_bench(busy, preamble_fn=lambda: torch.cuda._sleep(40_000_000), n_warmup=1, n_repeat=9,
                                 return_mode="median"),
    "all": do_bench(busy, n_warmup=0, n_repeat=4, return_mode="all"),
    "quantiles": do_bench(busy, n_warmup=0, n_repeat=9, quantiles=[0, 0.5, 1]),
}))
"""


def started(*command, **environment):
    return subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_times_are_those_of_events_around_the_work_alone():
    done = started("-c", TIMES)
    assert done.returncode == 0, done.stderr
    reported = json.loads(done.stdout)
    near = pytest.approx(reported["known"], rel=0.2)
    assert reported["known"] > 1
    assert reported["median"] == near
    assert reported["after a preamble"] == near, "the preamble takes ten times as long"
    assert reported["all"] == [near] * 4
    assert reported["quantiles"] == sorted(reported["quantiles"])
    assert reported["quantiles"][1] == near


@pytest.mark.skipif(rig.reason(2) is not None, reason=str(rig.reason(2)))
@pytest.mark.parametrize("more", [[], ["--use_gluon"]], ids=["triton", "gluon"])
def test_the_all_gather_benchmark(tmp_path, more):
    out, kept = tmp_path / "all_gather.csv", tmp_path / "artifacts"
    done = started(
        "benchmarks/all_gather.py",
        "--axis_num_ranks=2",
        "--axis_M=256,1024",
        "--axis_N=1024",
        "--heap_size=67108864",
        f"--benchmark_out={out}",
        *more,
        IRIS_KERNEL_ARTIFACTS_DIR=str(kept),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    rows = list(csv.DictReader(out.read_text(encoding="utf-8").splitlines()))
    assert [(row["M"], row["dtype"], row["status"]) for row in rows] == [
        (m, dtype, "ok") for m in ("256", "1024") for dtype in ("float16", "bfloat16")
    ]
    for row in rows:
        assert 0 < float(row["bandwidth_gb_s"]) < 1000, "no NVLink carries more"
    names = {json.loads(path.read_text())["kernel"] for path in kept.rglob("metadata.json")}
    assert names == {"move_triton"}
    assert {path.name for path in kept.rglob("rank*")} == {"rank0", "rank1"}
    assert all(path.read_text().lstrip().startswith("//") for path in kept.rglob("kernel.ptx"))
    assert list(kept.rglob("kernel.cubin"))


def test_more_ranks_than_gpus_are_refused_at_once():
    done = started(
        "benchmarks/all_gather.py", "--axis_num_ranks=9", "--axis_M=1024", "--axis_N=1024", "--time_limit=200"
    )
    assert done.returncode == 1
    assert "9 ranks need as many GPUs" in done.stderr
    assert "not run" in done.stdout
