"""Triton's profiler on the emulated machine: instrumented kernels run, and their scopes are counted."""

import json
import os
import subprocess
import sys

import pytest

from harness.emulated_machine import Settings

PROGRAM = """
import sys
import torch, triton, triton.language as tl
import triton.profiler as proton
import triton.profiler.language as pl

pl.enable_semantic("triton")

@triton.jit
def copy(x, y, N: tl.constexpr):
    i = tl.arange(0, N)
    pl.enter_scope("load")
    a = tl.load(x + i)
    pl.exit_scope("load")
    tl.store(y + i, a)

proton.start(sys.argv[1], backend=sys.argv[2] or None)
x, y = torch.randn(64, device="cuda"), torch.zeros(64, device="cuda")
with proton.scope("outer"):
    copy[(1,)](x, y, 64, num_warps=1)
torch.cuda.synchronize()
assert torch.equal(x, y)
proton.finalize()
"""


def profile(tmp_path, backend):
    program = tmp_path / "program.py"  # Triton compiles functions of files only
    program.write_text(PROGRAM)
    return subprocess.run(
        [sys.executable, str(program), str(tmp_path / "profile"), backend],
        env=Settings(gpus=1).environment(os.environ), capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def scopes(node):
    """Return the cycles of each frame of a profile by name."""
    metrics = {node["frame"]["name"]: node["metrics"]} if node.get("frame") else {}
    for child in node.get("children", []):
        metrics |= scopes(child)
    return metrics


@pytest.mark.nightly
def test_instrumented_kernels_are_profiled(tmp_path):
    pytest.importorskip("triton.profiler.language")
    done = profile(tmp_path, "instrumentation")
    assert done.returncode == 0, done.stderr
    metrics = scopes(json.loads((tmp_path / "profile.hatchet").read_text())[0])
    assert {"outer", "copy", "load"} <= set(metrics)
    assert metrics["load"]["cycles"] > 0


@pytest.mark.nightly
def test_the_default_needs_a_library_of_rocm(tmp_path):
    done = profile(tmp_path, "")
    assert done.returncode != 0
    assert "Could not load `librocprofiler-sdk.so`" in done.stderr or "libroctracer64.so" in done.stderr
