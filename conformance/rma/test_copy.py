"""copy(src_ptr, dst_ptr, from_rank, to_rank, mask, other, load_cache_modifier, store_cache_modifier): rank to rank.

One of the two ranks is the caller. Both pointers are the caller's own and both are translated. The mask guards both
sides. Each side keeps its own element type: a target of another one takes the converted values. Nothing else on any
rank changes.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.rma.transfer import OTHER, mask_form, run_transfers
from fixtures.requirement import requirement
from harness.cases import ALL


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


def launch(env, case, source, slot, keep, peer):
    kernel = copy_kernel if case.aligned else copy_anywhere
    from_rank, to_rank = (env.rank, peer) if case.direction == "to" else (peer, env.rank)
    warps = env.warps(case.warps)
    kernel[(case.grid,)](
        env.device_context, env.context, source, slot, keep, case.n, from_rank, to_rank,
        mask_form(case), OTHER if case.other else None, case.load_modifier, case.store_modifier,
        case.vector, env.device.lanes, warps, num_warps=warps,
    )  # fmt: skip


def run(env, case):
    return run_transfers(env, case, launch, push=case.direction == "to")


def cases(ranks, dtype):
    from harness.cases import strategies

    return strategies.transfers(ranks, dtype, other=True, direction=True)


@requirement("RMA-COPY-001", cases=cases, dtype=ALL)
def test_copy(check, case):
    check(run, case)
