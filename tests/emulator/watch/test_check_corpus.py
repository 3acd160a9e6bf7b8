"""Mode check reports nothing about correct kernels: one of each kind of the corpus."""

import importlib
import pkgutil

import pytest
import torch
import triton
import triton.language as tl

import tests.corpus
from harness import emulator
from tests.corpus.case import CASES

pytestmark = pytest.mark.usefixtures("form")

for module in pkgutil.iter_modules(tests.corpus.__path__, "tests.corpus."):
    if not module.name.rsplit(".", 1)[1].startswith(("test_", "conftest", "case")):
        importlib.import_module(module.name)

NAMES = (
    "atomic_slots-add-bfloat16", "spin_lock-4", "segmented_reduction", "attention_forward-True-100-32-2-2",
    "device_print", "gluon_transpose-float16-8-4", "gluon_async_copy-True-4", "gluon_buffer_operations-float32-4-True",
    "matmul_pipelined-3", "matmul_split_k-float16", "layer_norm_forward-float16-1", "cumsum-int32-1-True-8",
    "softmax_one_pass-float32-200-4", "sort-float16-False-2", "histogram-16-4", "casts-bf16-fp32",
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_clean(name):
    (case,) = (case for case in CASES if case.name == name)
    emulator.activate(case.archs[0], mode="check")
    try:
        case.check()
    finally:
        emulator.deactivate()


@triton.jit
def imprecise(a, b, c, K, N: tl.constexpr, BLOCK: tl.constexpr):
    i, k = tl.arange(0, N), tl.arange(0, BLOCK)
    total = tl.zeros((N, N), tl.float32)
    for start in range(0, K, BLOCK):
        left = tl.load(a + i[:, None] * K + (start + k)[None, :])
        right = tl.load(b + (start + k)[:, None] * N + i[None, :])
        total = tl.dot(left, right, total, max_num_imprecise_acc=32)
    tl.store(c + i[:, None] * N + i[None, :], total)


@pytest.mark.nightly
def test_a_ping_pong_schedule():
    """Eight wavefronts, half of them one s_barrier behind the others: Triton's schedule of an fp8 product."""
    emulator.activate("gfx942", mode="check")
    try:
        a, b = (torch.randint(-2, 3, shape).float() for shape in ((256, 256), (256, 256)))
        c = torch.zeros(256, 256)
        fp8 = torch.float8_e4m3fnuz
        kernel = imprecise[(1,)](a.to(fp8), b.to(fp8), c, 256, 256, 64, num_warps=8, num_stages=2)
        assert "s_setprio" in kernel.asm["amdgcn"]
        assert torch.equal(c, a @ b)
    finally:
        emulator.deactivate()
