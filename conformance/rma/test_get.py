"""get(from_ptr, to_ptr, from_rank, mask, other, load_cache_modifier, store_cache_modifier): a peer's memory to local
memory.

Both pointers are the caller's own; only ``from_ptr`` is translated. The mask guards both sides, so ``other`` never
reaches memory. Nothing else on any rank changes, least of all on the rank that is read.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.rma.transfer import OTHER, mask_form, run_transfers
from fixtures.requirement import requirement
from harness.cases import ALL


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


def launch(env, case, source, slot, keep, peer):
    kernel = get_kernel if case.aligned else get_anywhere
    warps = env.warps(case.warps)
    kernel[(case.grid,)](
        env.device_context, env.context, source, slot, keep, case.n, peer,
        mask_form(case), OTHER if case.other else None, case.load_modifier, case.store_modifier,
        case.vector, env.device.lanes, warps, num_warps=warps,
    )  # fmt: skip


def run(env, case):
    return run_transfers(env, case, launch, push=False)


def cases(ranks, dtype):
    from harness.cases import strategies

    return strategies.transfers(ranks, dtype, other=True)


@requirement("RMA-GET-001", cases=cases, dtype=ALL)
def test_get(check, case):
    check(run, case)
