"""Tile-level collectives: what they compile to for each target, their order between wavefronts and ranks, and what is
not published: ``all_reduce`` by an AllReduceConfig, ``set_ready``."""

import functools
import re
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl

from harness import emulator
from harness.emulator.driver.explore import FAILS, HOLDS, explore
from harness.isa import fingerprint
from harness.isa.compile_only import target
from iris_under_test import AllReduceConfig, DeviceContext, Tile, TileView, make_tensor_view, x
from tests.examples.test_guides import blocks, execute
from tests.iris.ranks import run_checks
from tests.iris.triton_kernels import compile_for

GUIDE = Path(__file__).resolve().parents[2] / "docs/tile-collectives.md"
BLOCK = 64
TARGETS = {"gfx942": ("hip", "gfx942"), "gfx950": ("hip", "gfx950"), "sm_90": ("cuda", 90)}
EACH_TARGET = ["gfx942", pytest.param("gfx950", marks=pytest.mark.nightly), "sm_90"]


@triton.jit
def sum_kernel(
    context, given, shared, output, locks, m, n, stride, RANK: tl.constexpr, RANKS: tl.constexpr, CODE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """One program per tile; RING finds ``shared`` filled before."""
    ctx = DeviceContext.initialize(context, RANK, RANKS)
    tiles_n = tl.cdiv(n, BLOCK_N)
    pid_m, pid_n = tl.program_id(0) // tiles_n, tl.program_id(0) % tiles_n
    place = TileView(pid_m, pid_n, BLOCK_M, BLOCK_N)
    here, mask = make_tensor_view(given, m, n, stride, 1).tile_ptr(place)
    tile = Tile(pid_m, pid_n, BLOCK_M, BLOCK_N, tl.load(here, mask=mask))
    source, result = make_tensor_view(shared, m, n, stride, 1), make_tensor_view(output, m, n, stride, 1)
    if CODE == x.ONE_SHOT or CODE == x.TWO_SHOT:
        there, mask = source.tile_ptr(place)
        tl.store(there, tile.data, mask=mask)
        ctx.set_ready(place, source, locks)
    ctx.all_reduce(tile, source, result, AllReduceConfig(CODE, locks))


CODES = {name: getattr(x, name).value for name in ("ATOMIC", "RING", "TWO_SHOT", "ONE_SHOT", "SPINLOCK")}
FLAGGED = ("TWO_SHOT", "ONE_SHOT", "SPINLOCK")


# What is compiled


@functools.cache
def compiled(code: str, machine: str, dtype: str = "fp16"):
    """The kernel with 16 bytes per lane, for four ranks. Returns its text too: flags are written in assembly."""
    pointers = dict.fromkeys(("given", "shared", "output"), f"*{dtype}")
    sizes = {"m": "i32", "n": "i32", "stride": "i32"}
    types = {"context": "*i64", **pointers, "locks": "*i32", **sizes}
    constants = {"RANK": 1, "RANKS": 4, "CODE": CODES[code], "BLOCK_M": 16, "BLOCK_N": 128}
    aligned = ("context", *pointers, "n", "stride")
    with target(*TARGETS[machine]):
        text = compile_for(machine, sum_kernel, types, constants, aligned)
    return fingerprint(text), text


@pytest.mark.long
@pytest.mark.parametrize("machine", EACH_TARGET)
@pytest.mark.parametrize("code", [code for code in CODES if code != "ATOMIC"])
def test_remote_accesses_of_sums_are_16_bytes_wide(code, machine):
    code_of, _ = compiled(code, machine)
    payload = {(a.kind, a.width) for a in code_of.accesses if a.where == "remote" and not a.is_flag}
    stores = {("store", 16)} if code in ("TWO_SHOT", "SPINLOCK") else set()
    assert {one for one in payload if one[0] != "atomic"} == {("load", 16), *stores}
    assert not code_of.vgpr_spills


@pytest.mark.parametrize("machine", EACH_TARGET)
@pytest.mark.parametrize("dtype", ["fp16", "bf16", "i32"])
def test_atomic_sums_compile_and_act_at_system_scope(dtype, machine):
    code, _ = compiled("ATOMIC", machine, dtype)
    atomics = [access for access in code.accesses if access.kind == "atomic"]
    assert atomics
    assert all({"sc1", "sys"} & set(access.bits) for access in atomics), [access.bits for access in atomics]


def test_atomic_sums_of_types_without_atomics_are_refused():
    with pytest.raises(triton.CompilationError) as caught:
        compiled("ATOMIC", "gfx942", "i8")
    causes = [caught.value]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    assert any("all_reduce_atomic: dst_view must have" in str(cause) for cause in causes)


@pytest.mark.parametrize("code", FLAGGED)
def test_flags_are_ordered_at_system_scope_by_every_wavefront(code):
    """A write-back that is waited for, then a barrier, then the flag; after a poll an invalidation."""
    code_of, text = compiled(code, "gfx942")
    assert set(code_of.writebacks) == {"sc0 sc1"}
    assert set(code_of.invalidates) == {"sc0 sc1"}
    flags = [access for access in code_of.accesses if access.kind == "atomic"]
    assert flags
    assert all("sc1" in access.bits for access in flags)
    kept = ("buffer_wbl2", "s_waitcnt vmcnt(0)", "s_barrier", "global_atomic")
    steps = [line for line in (line.split(";")[0].strip() for line in text.splitlines()) if line.startswith(kept)]
    at = steps.index("buffer_wbl2 sc0 sc1")
    assert steps[at + 1].startswith("s_waitcnt vmcnt(0)"), steps
    assert steps[at + 2] == "s_barrier", steps
    assert any(step.startswith("global_atomic_swap") for step in steps[at + 3 :]), steps


@pytest.mark.parametrize("code", FLAGGED)
def test_flags_are_fenced_at_system_scope_on_nvidia(code):
    code_of, text = compiled(code, "sm_90")
    assert ".acq_rel.sys" in text
    atomics = [set(access.bits) for access in code_of.accesses if access.kind == "atomic"]
    assert atomics
    assert all("sys" in bits for bits in atomics)


# Order, under every schedule that the memory model allows


def summed(code: str, warps: int):
    """A program for ``explore``: two ranks sum a tile of one element per lane."""

    def program(driver) -> None:
        # The heap of each rank: given, shared, output and locks at the same places.
        memory = torch.zeros(2, 2048, dtype=torch.int32)
        words, locks = memory.view(2, 4, 512)[:, :3, : 64 * warps], memory[:, 1536:]
        for rank in (0, 1):
            words[rank, 0] = torch.arange(64 * warps) + 1000 * (rank + 1)
            words[rank, 2] = 0 if code == "SPINLOCK" else -1
        header = [memory[0].nbytes, 0]
        bases = [heap.data_ptr() for heap in memory]
        with emulator.concurrent_ranks(driver) as ranks:
            for rank in (0, 1):
                with ranks.rank(rank):
                    context = torch.tensor([*header, rank, 2, *bases], dtype=torch.int64)[2:]
                    given, shared, output = words[rank]
                    sum_kernel[(1,)](
                        context, given, shared, output, locks[rank], 1, 64 * warps, 64 * warps, rank, 2, CODES[code],
                        1, 64 * warps, num_warps=warps,
                    )  # fmt: skip
        wanted = words[0, 0] + words[1, 0]
        for rank in (0, 1):
            assert torch.equal(words[rank, 2], wanted), f"rank {rank} has {words[rank, 2].tolist()}"

    return program


@pytest.fixture
def _no_driver_left():
    yield
    emulator.deactivate()


@pytest.mark.slow
@pytest.mark.usefixtures("_no_driver_left")
@pytest.mark.parametrize("warps", [1, *(pytest.param(warps, marks=pytest.mark.nightly) for warps in (4, 8))])
@pytest.mark.parametrize("code", FLAGGED)
def test_sums_hold_in_both_readings_of_the_memory_model(code, warps):
    verdict = explore(summed(code, warps), 25)
    assert verdict.outcome == HOLDS, str(verdict)


@pytest.mark.usefixtures("_no_driver_left")
@pytest.mark.parametrize(
    ("code", "fence"),
    [(code, fence) for code in FLAGGED for fence in ("buffer_wbl2 sc0 sc1", "buffer_inv sc0 sc1")],
)
def test_a_missing_fence_is_noticed(code, fence):
    program = summed(code, 4)

    def without(driver) -> None:
        driver.rewrite = lambda _, text: text.replace(fence, "s_nop 0")
        program(driver)

    assert explore(without, 60).outcome == FAILS


@pytest.mark.usefixtures("_no_driver_left")
def test_a_lock_that_nobody_takes_is_noticed():
    program = summed("SPINLOCK", 1)

    def without(driver) -> None:
        # The exchange whose old value is used.
        taken = r"global_atomic_swap (v\d+), .*sc0.*"
        driver.rewrite = lambda _, text: re.sub(taken, r"v_mov_b32_e32 \1, 0", text)
        program(driver)

    assert explore(without, 60).outcome == FAILS


# What is not published, and the guide


def sums_by_config(ctx, rank, num_ranks):
    """Two tiles, the second of them ragged, by each variant; twice on the same tensors."""
    m, n = 4, BLOCK + 8
    for code, number in CODES.items():
        given = ctx.zeros(m, n, dtype=torch.float32)
        shared, output = (ctx.full((m, n), -7.0, dtype=torch.float32) for _ in range(2))
        locks = ctx.zeros(2, dtype=torch.int32)
        for turn in range(2):
            given.copy_(torch.arange(m * n).view(m, n) * (rank + 1) + turn)
            if code == "RING":
                shared.copy_(given)
            if code in ("ATOMIC", "SPINLOCK"):
                output.zero_()
            locks.zero_()
            ctx.device_barrier()
            sum_kernel[(2,)](
                ctx.get_device_context(), given, shared, output, locks, m, n, n, rank, num_ranks, number, m, BLOCK,
                num_warps=1,
            )  # fmt: skip
            ctx.device_barrier()
            total = sum(range(1, num_ranks + 1))
            wanted = torch.arange(m * n).view(m, n).float() * total + turn * num_ranks
            assert torch.equal(output.cpu(), wanted), f"{code}, turn {turn}: {output}"
            assert locks.tolist() == [int(code in ("ONE_SHOT", "TWO_SHOT"))] * 2, f"{code}: {locks}"
            ctx.barrier()


def guide(ctx, rank, num_ranks):
    execute("\n\n".join(blocks(GUIDE)), ctx)


def a_wrong_guide_is_seen(ctx, rank, num_ranks):
    with pytest.raises(AssertionError):
        execute("\n\n".join(blocks(GUIDE)).replace("== [2 * (r + 1)", "== [3 * (r + 1)"), ctx)


CHECKS = [sums_by_config, guide, a_wrong_guide_is_seen]


@pytest.fixture(scope="module")
def failures():
    return run_checks(CHECKS, num_ranks=2, heap_size=1 << 20, emulated=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS])
def test_on_two_emulated_ranks(failures, name):
    assert failures[name] == "", failures[name]
