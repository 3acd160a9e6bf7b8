"""put(from_ptr, to_ptr, to_rank, mask, other, load_cache_modifier, store_cache_modifier): local memory to a peer's.

Both pointers are the caller's own; only ``to_ptr`` is translated. Lanes that the mask switches off are neither read nor
written. Nothing else on any rank changes.

001  in Gluon, with ``IrisDeviceCtx``.
002  in Triton, with ``DeviceContext``.
003  in Triton, with the function.
"""

from functools import partial

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.rma.transfer import OTHER, PEERS, launch_triton, mask_form, mask_of, run_transfers
from fixtures.requirement import requirement
from harness.cases import ALL, SOME


@gluon.jit(do_not_specialize=["to_rank"])
def put_kernel(
    IrisDeviceCtx: gl.constexpr, context_tensor, source, target, keep, n, to_rank,
    MASK: gl.constexpr, OTHER: gl.constexpr, LOAD_MODIFIER: gl.constexpr, STORE_MODIFIER: gl.constexpr,
    SPT: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    ctx = IrisDeviceCtx.initialize(context_tensor)
    BLOCK: gl.constexpr = SPT * LANES * WARPS
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=gl.BlockedLayout([SPT], [LANES], [WARPS], [0]))
    mask = None
    if MASK != "none":
        mask = offsets < n
    if MASK == "pattern":
        mask = mask & (gl.load(keep + offsets, mask=mask, other=0) != 0)
    ctx.put(
        source + offsets, target + offsets, to_rank, mask=mask, other=OTHER,
        load_cache_modifier=LOAD_MODIFIER, store_cache_modifier=STORE_MODIFIER,
    )  # fmt: skip


put_anywhere = gluon.jit(put_kernel.fn, do_not_specialize=["source", "target", "keep", "n", "to_rank"])


@triton.jit(do_not_specialize=PEERS)
def put_by_context(
    DeviceContext: tl.constexpr, context_tensor, source, target, keep, n, RANK: tl.constexpr, RANKS: tl.constexpr,
    to_rank, MASK: tl.constexpr, OTHER: tl.constexpr, LOAD_MODIFIER: tl.constexpr, STORE_MODIFIER: tl.constexpr,
    HINT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    ctx = DeviceContext.initialize(context_tensor, RANK, RANKS)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = None
    if MASK != "none":
        mask = mask_of(keep, n, offsets, MASK)
    ctx.put(
        source + offsets, target + offsets, to_rank, mask=mask, other=OTHER,
        load_cache_modifier=LOAD_MODIFIER, store_cache_modifier=STORE_MODIFIER, hint=HINT,
    )  # fmt: skip


@triton.jit(do_not_specialize=PEERS)
def put_by_function(
    put: tl.constexpr, heap_bases, source, target, keep, n, rank, to_rank, MASK: tl.constexpr, OTHER: tl.constexpr,
    LOAD_MODIFIER: tl.constexpr, STORE_MODIFIER: tl.constexpr, HINT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = None
    if MASK != "none":
        mask = mask_of(keep, n, offsets, MASK)
    put(
        source + offsets, target + offsets, rank, to_rank, heap_bases, mask=mask, other=OTHER,
        load_cache_modifier=LOAD_MODIFIER, store_cache_modifier=STORE_MODIFIER, hint=HINT,
    )  # fmt: skip


def launch(env, case, source, slot, keep, peer):
    if case.form != "gluon":
        launch_triton(env, case, "put", (put_by_context, put_by_function), (source, slot, keep), peer)
        return
    kernel = put_kernel if case.aligned else put_anywhere
    warps = env.warps(case.warps)
    kernel[(case.grid,)](
        env.device_context, env.context, source, slot, keep, case.n, peer,
        mask_form(case), OTHER if case.other else None, case.load_modifier, case.store_modifier,
        case.vector, env.device.lanes, warps, num_warps=warps,
    )  # fmt: skip


def run(env, case):
    return run_transfers(env, case, launch, push=True)


def cases(ranks, dtype, form="gluon"):
    from harness.cases import strategies

    return strategies.transfers(ranks, dtype, other=True, form=form)


@requirement("RMA-PUT-001", cases=cases, dtype=ALL)
def test_put(check, case):
    check(run, case)


@requirement("RMA-PUT-002", cases=partial(cases, form="context"), weight=0.5, dtype=SOME)
def test_put_by_context(check, case):
    check(run, case)


@requirement("RMA-PUT-003", cases=partial(cases, form="function"), weight=0.75, dtype=SOME)
def test_put_by_function(check, case):
    check(run, case)
