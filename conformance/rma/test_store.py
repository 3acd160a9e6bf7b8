"""store(pointer, value, to_rank, mask, cache_modifier): a block of values to a peer's memory.

``pointer`` is the caller's own and is translated to the target. Lanes that the mask switches off are not written.
Nothing else on any rank changes.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.rma.transfer import OTHER, mask_form, run_transfers
from fixtures.requirement import requirement
from harness.cases import ALL


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


def launch(env, case, source, slot, keep, peer):
    kernel = store_kernel if case.aligned else store_anywhere
    warps = env.warps(case.warps)
    kernel[(case.grid,)](
        env.device_context, env.context, source, slot, keep, case.n, peer,
        mask_form(case), OTHER if case.other else None, case.load_modifier, case.store_modifier,
        case.vector, env.device.lanes, warps, num_warps=warps,
    )  # fmt: skip


def run(env, case):
    return run_transfers(env, case, launch, push=True)


def cases(ranks, dtype):
    from harness.cases import strategies

    return strategies.transfers(ranks, dtype)


@requirement("RMA-STORE-001", cases=cases, dtype=ALL)
def test_store(check, case):
    check(run, case)
