"""copy(src_ptr, dst_ptr, from_rank, to_rank, mask, other, load_cache_modifier, store_cache_modifier): rank to rank.

One of the two ranks is the caller. Both pointers are the caller's own and both are translated. The mask guards both
sides. Each side keeps its own element type: a target of another one takes the converted values. Nothing else on any
rank changes.

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


@gluon.jit(do_not_specialize=["from_rank", "to_rank"])
def copy_kernel(
    IrisDeviceCtx: gl.constexpr, context_tensor, source, target, keep, n, from_rank, to_rank,
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
    ctx.copy(
        source + offsets, target + offsets, from_rank, to_rank, mask=mask, other=OTHER,
        load_cache_modifier=LOAD_MODIFIER, store_cache_modifier=STORE_MODIFIER,
    )  # fmt: skip


copy_anywhere = gluon.jit(copy_kernel.fn, do_not_specialize=["source", "target", "keep", "n", "from_rank", "to_rank"])


@triton.jit(do_not_specialize=PEERS)
def copy_by_context(
    DeviceContext: tl.constexpr, context_tensor, source, target, keep, n, RANK: tl.constexpr, RANKS: tl.constexpr,
    from_rank, to_rank, MASK: tl.constexpr, OTHER: tl.constexpr, LOAD_MODIFIER: tl.constexpr,
    STORE_MODIFIER: tl.constexpr, HINT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    ctx = DeviceContext.initialize(context_tensor, RANK, RANKS)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = None
    if MASK != "none":
        mask = mask_of(keep, n, offsets, MASK)
    ctx.copy(
        source + offsets, target + offsets, from_rank, to_rank, mask=mask, other=OTHER,
        load_cache_modifier=LOAD_MODIFIER, store_cache_modifier=STORE_MODIFIER, hint=HINT,
    )  # fmt: skip


@triton.jit(do_not_specialize=PEERS)
def copy_by_function(
    copy: tl.constexpr, heap_bases, source, target, keep, n, rank, from_rank, to_rank, MASK: tl.constexpr,
    OTHER: tl.constexpr, LOAD_MODIFIER: tl.constexpr, STORE_MODIFIER: tl.constexpr, HINT: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = None
    if MASK != "none":
        mask = mask_of(keep, n, offsets, MASK)
    copy(
        source + offsets, target + offsets, from_rank, to_rank, rank, heap_bases, mask=mask, other=OTHER,
        load_cache_modifier=LOAD_MODIFIER, store_cache_modifier=STORE_MODIFIER, hint=HINT,
    )  # fmt: skip


def launch(env, case, source, slot, keep, peer):
    from_rank, to_rank = (env.rank, peer) if case.direction == "to" else (peer, env.rank)
    if case.form != "gluon":
        kernels = (copy_by_context, copy_by_function)
        launch_triton(env, case, "copy", kernels, (source, slot, keep), from_rank, to_rank)
        return
    kernel = copy_kernel if case.aligned else copy_anywhere
    warps = env.warps(case.warps)
    kernel[(case.grid,)](
        env.device_context, env.context, source, slot, keep, case.n, from_rank, to_rank,
        mask_form(case), OTHER if case.other else None, case.load_modifier, case.store_modifier,
        case.vector, env.device.lanes, warps, num_warps=warps,
    )  # fmt: skip


def run(env, case):
    return run_transfers(env, case, launch, push=case.direction == "to")


def cases(ranks, dtype, form="gluon"):
    from harness.cases import strategies

    return strategies.transfers(ranks, dtype, other=True, direction=True, form=form)


@requirement("RMA-COPY-001", cases=cases, dtype=ALL)
def test_copy(check, case):
    check(run, case)


@requirement("RMA-COPY-002", cases=partial(cases, form="context"), weight=0.5, dtype=SOME)
def test_copy_by_context(check, case):
    check(run, case)


@requirement("RMA-COPY-003", cases=partial(cases, form="function"), weight=0.75, dtype=SOME)
def test_copy_by_function(check, case):
    check(run, case)
