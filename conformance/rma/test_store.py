"""store(pointer, value, to_rank, mask, cache_modifier): a block of values to a peer's memory.

``pointer`` is the caller's own and is translated to the target. Lanes that the mask switches off are not written.
Nothing else on any rank changes.

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
def store_kernel(
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
    value = gl.load(source + offsets, mask=mask)
    ctx.store(target + offsets, value, to_rank, mask=mask, cache_modifier=STORE_MODIFIER)


store_anywhere = gluon.jit(store_kernel.fn, do_not_specialize=["source", "target", "keep", "n", "to_rank"])


@triton.jit(do_not_specialize=PEERS)
def store_by_context(
    DeviceContext: tl.constexpr, context_tensor, source, target, keep, n, RANK: tl.constexpr, RANKS: tl.constexpr,
    to_rank, MASK: tl.constexpr, OTHER: tl.constexpr, LOAD_MODIFIER: tl.constexpr, STORE_MODIFIER: tl.constexpr,
    HINT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    ctx = DeviceContext.initialize(context_tensor, RANK, RANKS)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = None
    if MASK != "none":
        mask = mask_of(keep, n, offsets, MASK)
    value = tl.load(source + offsets, mask=mask)
    ctx.store(target + offsets, value, to_rank, mask=mask, cache_modifier=STORE_MODIFIER, hint=HINT)


@triton.jit(do_not_specialize=PEERS)
def store_by_function(
    store: tl.constexpr, heap_bases, source, target, keep, n, rank, to_rank, MASK: tl.constexpr, OTHER: tl.constexpr,
    LOAD_MODIFIER: tl.constexpr, STORE_MODIFIER: tl.constexpr, HINT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = None
    if MASK != "none":
        mask = mask_of(keep, n, offsets, MASK)
    value = tl.load(source + offsets, mask=mask)
    store(
        target + offsets, value, rank, to_rank, heap_bases, mask=mask, hint=HINT, cache_modifier=STORE_MODIFIER
    )  # fmt: skip


def launch(env, case, source, slot, keep, peer):
    if case.form != "gluon":
        launch_triton(env, case, "store", (store_by_context, store_by_function), (source, slot, keep), peer)
        return
    kernel = store_kernel if case.aligned else store_anywhere
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

    return strategies.transfers(ranks, dtype, form=form)


@requirement("RMA-STORE-001", cases=cases, dtype=ALL)
def test_store(check, case):
    check(run, case)


@requirement("RMA-STORE-002", cases=partial(cases, form="context"), weight=0.5, dtype=SOME)
def test_store_by_context(check, case):
    check(run, case)


@requirement("RMA-STORE-003", cases=partial(cases, form="function"), weight=0.75, dtype=SOME)
def test_store_by_function(check, case):
    check(run, case)
