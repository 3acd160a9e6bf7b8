"""The debug build on a real GPU: a put outside the heap ends the process's device context, with a message."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.gpu import rig

REASON = rig.reason(1)
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))
ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import sys, torch, triton, triton.language as tl
import iris_under_test as iris
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from iris_under_test.gluon import IrisDeviceCtx

@triton.jit
def by_function(IrisDeviceCtx: tl.constexpr, context, heap, start, rank, LANES: tl.constexpr):
    offsets = start + tl.arange(0, 128)
    iris.store(heap + offsets, offsets, 0, rank, context + 2)

@gluon.jit
def by_gluon(IrisDeviceCtx: gl.constexpr, context, heap, start, rank, LANES: gl.constexpr):
    ctx = IrisDeviceCtx.initialize(context)
    offsets = start + gl.arange(0, 128, layout=gl.BlockedLayout([1], [LANES], [4], [0]))
    ctx.store(heap + offsets, offsets, rank)

heap = torch.zeros(1 << 14, dtype=torch.int32, device="cuda")
context = torch.tensor([1 << 16, 0, 0, 1, heap.data_ptr(), *[0] * 17], device="cuda")[2:]
lanes = triton.runtime.driver.active.get_current_target().warp_size
kernel = {"function": by_function, "gluon": by_gluon}[sys.argv[1]]
kernel[(1,)](IrisDeviceCtx, context, heap, 16256, 0, lanes)
torch.cuda.synchronize()
print("inside", int(heap[-1]), flush=True)
kernel[(1,)](IrisDeviceCtx, context, heap, int(sys.argv[2]), int(sys.argv[3]), lanes)
torch.cuda.synchronize()
print("not stopped")
"""


@pytest.mark.parametrize("form", ["function", "gluon"])
@pytest.mark.parametrize(
    ("start", "rank", "messages"),
    [
        (16258, 0, ("pointer outside the heap", "touched: 65032", "touched: 65543", "bytes in the heap: 65536")),
        (0, 1, ("rank outside the world", "target rank: 1", "number of ranks: 1")),
    ],
)
def test_a_wrong_store_is_stopped_and_told(tmp_path, form, start, rank, messages):
    script = tmp_path / "wrong_store.py"
    script.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, str(script), form, str(start), str(rank)],
        env={**os.environ, "IRIS_DEBUG": "1", "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    printed = done.stdout + done.stderr
    assert done.returncode != 0, printed
    assert "inside 16383" in printed, printed
    assert "not stopped" not in printed, printed
    line = next(
        n
        for n, text in enumerate(PROGRAM.splitlines(), 1)
        if ("iris.store" if form == "function" else "ctx.store") in text
    )
    for words in ("iris store: ", f"in by_{form} at ", f"wrong_store.py:{line}", "iris: by rank: 0", *messages):
        assert words in printed, printed
