"""get(from_ptr, to_ptr, from_rank, mask, other, load_cache_modifier, store_cache_modifier): a peer's memory to local
memory.

Both pointers are the caller's own; only ``from_ptr`` is translated. The mask guards both sides, so ``other`` never
reaches memory. Nothing else on any rank changes, least of all on the rank that is read.

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


@gluon.jit(do_not_specialize=["from_rank"])
def get_kernel(
    IrisDeviceCtx: gl.constexpr, context_tensor, source, target, keep, n, from_rank,
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
    ctx.get(
        source + offsets, target + offsets, from_rank, mask=mask, other=OTHER,
        load_cache_modifier=LOAD_MODIFIER, store_cache_modifier=STORE_MODIFIER,
    )  # fmt: skip


get_anywhere = gluon.jit(get_kernel.fn, do_not_specialize=["source", "target", "keep", "n", "from_rank"])


@triton.jit(do_not_specialize=PEERS)
def get_by_context(
    DeviceContext: tl.constexpr, context_tensor, source, target, keep, n, RANK: tl.constexpr, RANKS: tl.constexpr,
    from_rank, MASK: tl.constexpr, OTHER: tl.constexpr, LOAD_MODIFIER: tl.constexpr, STORE_MODIFIER: tl.constexpr,
    HINT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    ctx = DeviceContext.initialize(context_tensor, RANK, RANKS)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = None
    if MASK != "none":
        mask = mask_of(keep, n, offsets, MASK)
    ctx.get(
        source + offsets, target + offsets, from_rank, mask=mask, other=OTHER,
        load_cache_modifier=LOAD_MODIFIER, store_cache_modifier=STORE_MODIFIER, hint=HINT,
    )  # fmt: skip


@triton.jit(do_not_specialize=PEERS)
def get_by_function(
    get: tl.constexpr, heap_bases, source, target, keep, n, rank, from_rank, MASK: tl.constexpr, OTHER: tl.constexpr,
    LOAD_MODIFIER: tl.constexpr, STORE_MODIFIER: tl.constexpr, HINT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = None
    if MASK != "none":
        mask = mask_of(keep, n, offsets, MASK)
    # The caller comes first, whatever the parameters are called.
    get(
        source + offsets, target + offsets, rank, from_rank, heap_bases, mask=mask, other=OTHER,
        load_cache_modifier=LOAD_MODIFIER, store_cache_modifier=STORE_MODIFIER, hint=HINT,
    )  # fmt: skip


def launch(env, case, source, slot, keep, peer):
    if case.form != "gluon":
        launch_triton(env, case, "get", (get_by_context, get_by_function), (source, slot, keep), peer)
        return
    kernel = get_kernel if case.aligned else get_anywhere
    warps = env.warps(case.warps)
    kernel[(case.grid,)](
        env.device_context, env.context, source, slot, keep, case.n, peer,
        mask_form(case), OTHER if case.other else None, case.load_modifier, case.store_modifier,
        case.vector, env.device.lanes, warps, num_warps=warps,
    )  # fmt: skip


def run(env, case):
    return run_transfers(env, case, launch, push=False)


def cases(ranks, dtype, form="gluon"):
    from harness.cases import strategies

    return strategies.transfers(ranks, dtype, other=True, form=form)


@requirement("RMA-GET-001", cases=cases, dtype=ALL)
def test_get(check, case):
    check(run, case)


@requirement("RMA-GET-002", cases=partial(cases, form="context"), weight=0.5, dtype=SOME)
def test_get_by_context(check, case):
    check(run, case)


@requirement("RMA-GET-003", cases=partial(cases, form="function"), weight=0.75, dtype=SOME)
def test_get_by_function(check, case):
    check(run, case)
