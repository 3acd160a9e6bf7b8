"""Fused products: code for three targets, workspaces, progress. The conformance suite compares results at length."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from triton.runtime import driver

import iris_under_test
from harness import isa
from harness.isa.compile_only import target
from iris_under_test import ops
from iris_under_test.kernels.gather_matmul import gather_and_matmul
from iris_under_test.kernels.matmul_push import matmul_and_push
from iris_under_test.kernels.matmul_reduce import matmul_and_reduce
from tests.iris.ranks import run_checks

GUIDE = Path(__file__).parents[2] / "docs/fused.md"
SMALL = {"block_size_m": 16, "block_size_n": 32, "block_size_k": 16, "num_sms": 3}
RANKS = 2


def whole(rank, shape, dtype=torch.float16, seed=0):
    """Small whole numbers: every sum of products here is exact."""
    generator = torch.Generator().manual_seed(100 * seed + rank)
    return torch.randint(-2, 3, shape, generator=generator).to(dtype)


def product(ctx, num_ranks, m=20, n=33, k=24, seed=0):
    """The output on the heap, this rank's inputs, and the sum of all products."""
    output = ctx.zeros(m, n, dtype=torch.float16)
    inputs = [(whole(rank, (m, k), seed=seed), whole(rank, (k, n), seed=seed + 1)) for rank in range(num_ranks)]
    wanted = sum(a.float() @ b.float() for a, b in inputs).half()
    return output, *inputs[ctx.get_rank()], wanted


def the_guide_runs(ctx, rank, num_ranks):
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(code, str(GUIDE), "exec"), {"ctx": ctx})


def arguments_by_place(ctx, rank, num_ranks):
    output, a, b, wanted = product(ctx, num_ranks)
    bias, config = torch.arange(20).half(), ops.FusedConfig(**SMALL)
    workspace = ops.matmul_all_reduce(ctx, output, a, b, True, config, None, bias)
    workspace.wait()
    workspace.synchronize()
    assert workspace.is_completed()
    assert torch.equal(output, wanted + bias[:, None])
    output.zero_()
    ctx.ops.matmul_all_reduce(output, a, b, None, False, config, workspace)
    assert torch.equal(output, wanted)


def calls_without_a_workspace_share_one(ctx, rank, num_ranks):
    output, a, b, wanted = product(ctx, num_ranks)
    config = ops.FusedConfig(**SMALL)
    first = ctx.ops.matmul_reduce_scatter(output, a, b, config=config)
    free = ctx.heap.allocator.free_bytes()
    assert ctx.ops.matmul_reduce_scatter(output, a, b, config=config) is first
    assert ctx.heap.allocator.free_bytes() == free, "the second call takes nothing from the heap"
    first.clear()
    assert ctx.heap.allocator.free_bytes() > free, "clear gives back"
    assert not first.prepared and first.aux_buffer is None
    output.zero_()
    ctx.ops.matmul_reduce_scatter(output, a, b, config=config)
    share = output != 0
    assert share.any() and torch.equal(output[share], wanted[share])


def a_workspace_is_made_to_fit_another_call(ctx, rank, num_ranks):
    workspace = ops.FusedWorkspace()
    for variant, shape in (("spinlock", (20, 33, 24)), ("atomic", (20, 33, 24)), ("atomic", (40, 70, 24))):
        output, a, b, wanted = product(ctx, num_ranks, *shape)
        config = ops.FusedConfig(**SMALL, all_reduce_variant=variant)
        assert ctx.ops.matmul_all_reduce(output, a, b, config=config, workspace=workspace) is workspace
        assert torch.equal(output, wanted)
        m, n, k = shape
        assert workspace.matches("matmul_all_reduce", (m, n, k), torch.float16, num_ranks, variant)
    # What a kernel that was stopped may have left behind.
    workspace.aux_buffer.fill_(7)
    workspace.reset()
    output.zero_()
    ctx.ops.matmul_all_reduce(output, a, b, config=config, workspace=workspace)
    assert torch.equal(output, wanted), "a workspace that was reset is clean"
    workspace.clear()


def a_workspace_of_another_instance_is_made_anew(ctx, rank, num_ranks):
    config, other = ops.FusedConfig(**SMALL), iris_under_test.iris(1 << 20)
    workspace = None
    for instance in (ctx, other):
        output, a, b, wanted = product(instance, num_ranks)
        workspace = instance.ops.matmul_all_reduce(output, a, b, config=config, workspace=workspace)
        assert torch.equal(output, wanted) and instance.is_symmetric(workspace.aux_buffer)
    workspace.clear()
    other.close()


def the_defaults_fit(ctx, rank, num_ranks):
    """float32 tiles of 256 x 64 and 64 deep would take more than a work-group of gfx942 has."""
    m, n, k = 5, 7, 3
    a, b = whole(rank, (m, k), torch.float32), whole(rank, (k, n), torch.float32, seed=1)
    output = ctx.zeros(m * num_ranks, n, dtype=torch.float32)
    ctx.ops.matmul_all_gather(output, a, b)
    assert torch.equal(output[rank * m : (rank + 1) * m], a @ b)


def nothing_to_multiply(ctx, rank, num_ranks):
    config, bias = ops.FusedConfig(**SMALL), torch.arange(4).half()
    output = ctx.ones(4, 6, dtype=torch.float16)
    ctx.ops.matmul_all_reduce(output, torch.empty(4, 0).half(), torch.empty(0, 6).half(), bias=bias, config=config)
    assert torch.equal(output, bias[:, None].expand(4, 6)), "the sum of no products"
    shard = ctx.zeros(4, 0, dtype=torch.float16)
    ctx.ops.all_gather_matmul(output, shard, torch.empty(0, 6).half(), config=config)
    assert not output.any()
    empty = ctx.zeros(0, 6, dtype=torch.float16)
    ctx.ops.matmul_reduce_scatter(empty, torch.empty(0, 3).half(), torch.empty(3, 6).half(), config=config)


def few_programs_are_resident(ctx, rank, num_ranks):
    """One wavefront at once on rank 0, two on rank 1, of grids of nine programs."""
    from harness.emulator.driver import schedule

    before = schedule.CHUNK_WAVES, schedule.RESIDENT_WAVES
    schedule.CHUNK_WAVES, schedule.RESIDENT_WAVES = 1, 1 + rank
    try:
        config = ops.FusedConfig(**SMALL | {"num_sms": 9})
        output, a, b, wanted = product(ctx, num_ranks, 48, 96, 16)
        for variant in ("two_shot", "spinlock"):
            config.all_reduce_variant = variant
            ctx.ops.matmul_all_reduce(output, a, b, config=config)
            assert torch.equal(output, wanted), variant
        shard = ctx.zeros(48, 16, dtype=torch.float16)
        shard.copy_(a)
        everyones = torch.cat([whole(other, (48, 16)) for other in range(num_ranks)], dim=1)
        wide = torch.cat([b] * num_ranks)
        for _ in range(2):
            ctx.ops.all_gather_matmul(output, shard, wide, config=config)
            assert torch.equal(output, (everyones.float() @ wide.float()).half())
    finally:
        schedule.CHUNK_WAVES, schedule.RESIDENT_WAVES = before


def offsets_are_64_bit(ctx, rank, num_ranks):
    """Rows of all matrices 2^30 elements apart, in one allocation of which little is ever touched."""
    rows, part = 3, 16
    memory = ctx.empty(rows, 2**30, dtype=torch.float16)
    shard, output, turned = memory[:, :part], memory[:, 64 : 64 + rows], memory[:, 128 : 128 + part * num_ranks]
    everyones = [whole(other, (rows, part)) for other in range(num_ranks)]
    b = whole(7, (part * num_ranks, rows))
    shard.copy_(everyones[rank])
    turned.copy_(b.t())
    config = ops.FusedConfig(**SMALL)
    ctx.ops.all_gather_matmul(output, shard, turned.t(), config=config).clear()
    assert torch.equal(output, (torch.cat(everyones, dim=1).float() @ b.float()).half())
    output.zero_()
    ctx.ops.matmul_all_reduce(output, shard, turned[:, :part].t(), config=config).clear()
    assert torch.equal(output, sum(a.float() @ b[:part].float() for a in everyones).half())
    ctx.free(memory)


CHECKS = [
    the_guide_runs,
    arguments_by_place,
    calls_without_a_workspace_share_one,
    a_workspace_is_made_to_fit_another_call,
    a_workspace_of_another_instance_is_made_anew,
    the_defaults_fit,
    nothing_to_multiply,
    few_programs_are_resident,
    offsets_are_64_bit,
]


@pytest.fixture(scope="module")
def outcome():
    return run_checks(CHECKS, RANKS, 1 << 33, emulated=True)


@pytest.mark.slow
@pytest.mark.parametrize("check", [check.__name__ for check in CHECKS])
def test_on_ranks(outcome, check):
    assert outcome[check] == ""


# What is compiled

M, N, K, SIZE = 1024, 1024, 512, 4


def launched(kernel, alignment=16, **constants):
    """The kernel for full tiles of 256 x 64 fp16, compiled for the active target."""
    nvidia = driver.active.get_current_target().backend == "cuda"
    matrix = torch.empty(SIZE * M, N, dtype=torch.float16)
    context, words = torch.zeros(32, dtype=torch.int64), torch.zeros(64, dtype=torch.int32)
    head = (context, context, 1, matrix)
    strides = (K, 1, N, 1, N, 1, 0)
    arguments = {
        matmul_and_push: (*head, matrix, matrix, matrix, M, N, K, *strides),
        matmul_and_reduce: (*head, matrix, matrix, matrix, matrix, words, M, N, K, *strides, 16, 16),
        gather_and_matmul: (*head, matrix, words, matrix, matrix, matrix, M, N, K, K, 1, K, *strides[2:], 2),
    }[kernel]
    compiled = kernel[(8,)](
        *arguments, SIZE=SIZE, BIASED=True, ALIGNMENT=alignment, BLOCK_M=256, BLOCK_N=64, BLOCK_K=64, EVEN_K=True,
        GROUP_M=1, CACHE_A=".ca", CACHE_B=".ca", PRECISION="ieee", **constants,
        num_warps=8 if nvidia else 4, num_stages=4 if nvidia else 2,
    )  # fmt: skip
    return isa.fingerprint(compiled.asm["ptx" if nvidia else "amdgcn"])


ORDER = {"NUM_XCDS": 1, "CHUNK": 1}
KERNELS = {
    "push": (matmul_and_push, ORDER, "store"),
    "sum": (matmul_and_reduce, {**ORDER, "HOW": "slots", "OWNED": True, "PUSHED": True}, "store"),
    "gather": (gather_and_matmul, {"COPY_K": 128}, "load"),
}


# Stores that signal: at the beginning, at the end, and that a tile of every member is complete.
SIGNALS = {"push": 2, "sum": 3, "gather": 0}
GFX942, GFX950, SM90 = ("hip", "gfx942"), ("hip", "gfx950"), ("cuda", 90)
COMPILED = [(name, arch) for arch in (GFX942, SM90) for name in KERNELS] + [("sum", GFX950)]


@pytest.mark.long
@pytest.mark.parametrize(("name", "arch"), COMPILED, ids=lambda one: one if isinstance(one, str) else str(one[1]))
def test_what_crosses_the_link_is_16_bytes_wide(name, arch):
    kernel, constants, kind = KERNELS[name]
    with target(*arch):
        code = launched(kernel, **constants)
    assert isa.remote_mismatch(code, kind, 16) is None
    widths = isa.remote_widths(code, kind)
    assert widths[16] >= {"push": SIZE, "sum": 1 + SIZE, "gather": 1}[name], "one for each member at least"
    assert not code.vgpr_spills, code.vgpr_spills
    # The only narrower ones are the words by which devices wait for each other, which AMD GPUs exchange by atomics.
    assert sum(widths.values()) - widths[16] == (SIGNALS[name] if arch == SM90 else 0), widths


@pytest.mark.long
@pytest.mark.parametrize(("name", "arch"), COMPILED, ids=lambda one: one if isinstance(one, str) else str(one[1]))
def test_elements_by_themselves_are_seen_to_cross_the_link(name, arch):
    kernel, constants, kind = KERNELS[name]
    with target(*arch):
        code = launched(kernel, alignment=2, **constants)
    assert re.match(rf"remote {kind} accesses are \d+ x 2 bytes wide", isa.remote_mismatch(code, kind, 16))
