"""Message passing: a consumer that polls a flag with acquire at system scope sees the complete payload.

The producer stores blocks into the consumer's heap and sets one flag per block with release at system scope. The
consumer polls its own flag with acquire at system scope and copies the block. Either side may start late. In the ring
shape, consumers and producers are work-groups of one launch on every rank, the waiting ones first, so that a waiting
work-group must not prevent others from running. A flag is set by compare-and-swap (and cleared by the consumer's), by
exchange, or by addition.

001  in Gluon, with ``IrisDeviceCtx``.
002  in Triton, with ``DeviceContext``.
"""

from functools import partial

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.ordering.cases import RELEASE_WAITS, MessageCase
from conformance.ordering.kernels import GATHERED
from fixtures.requirement import requirement
from harness.cases import of_name, payload, rounds_needed
from harness.oracles import exchange
from harness.oracles.heap import starts

SETTINGS = ("cas", "xchg", "add")
"""The operations that set a flag. A kernel has all of them, and executes the one whose number it is given."""


@gluon.jit
def produce(
    ctx,
    source,
    target,
    flag,
    n,
    block,
    to_rank,
    setting,
    SPT: gl.constexpr,
    LANES: gl.constexpr,
    WARPS: gl.constexpr,
):
    """Store a block and set its flag by the operation number ``setting``, see ``SETTINGS``."""
    BLOCK: gl.constexpr = SPT * LANES * WARPS
    offsets = block * BLOCK + gl.arange(0, BLOCK, layout=gl.BlockedLayout([SPT], [LANES], [WARPS], [0]))
    mask = offsets < n
    values = ctx.load(source + offsets, ctx.cur_rank, mask=mask)
    ctx.store(target + offsets, values, to_rank, mask=mask)
    if not GATHERED:
        tl.debug_barrier()
    if setting == 0:
        ctx.atomic_cas(flag + block, 0, 1, to_rank, sem="release", scope="sys")
    elif setting == 1:
        ctx.atomic_xchg(flag + block, 1, to_rank, sem="release", scope="sys")
    else:
        ctx.atomic_add(flag + block, 1, to_rank, sem="release", scope="sys")


@gluon.jit
def consume(ctx, target, result, flag, n, block, setting, SPT: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr):
    BLOCK: gl.constexpr = SPT * LANES * WARPS
    offsets = block * BLOCK + gl.arange(0, BLOCK, layout=gl.BlockedLayout([SPT], [LANES], [WARPS], [0]))
    mask = offsets < n
    seen = 0
    while seen == 0:
        if setting == 0:
            seen = ctx.atomic_cas(flag + block, 1, 0, ctx.cur_rank, sem="acquire", scope="sys")
        else:
            seen = ctx.atomic_add(flag + block, 0, ctx.cur_rank, sem="acquire", scope="sys")
    values = ctx.load(target + offsets, ctx.cur_rank, mask=mask)
    ctx.store(result + offsets, values, ctx.cur_rank, mask=mask)


@gluon.jit(do_not_specialize=["n", "consumed", "to_rank", "setting"])
def message_kernel(
    IrisDeviceCtx: gl.constexpr, context_tensor, source, target, result, flag, n, consumed, to_rank, setting,
    SPT: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """Work-groups [0, consumed) consume a block each, and the next ones produce one each. One kernel for all ranks."""
    ctx = IrisDeviceCtx.initialize(context_tensor)
    pid = gl.program_id(0)
    if pid < consumed:
        consume(ctx, target, result, flag, n, pid, setting, SPT, LANES, WARPS)
    else:
        produce(ctx, source, target, flag, n, pid - consumed, to_rank, setting, SPT, LANES, WARPS)


@triton.jit
def triton_produce(ctx, source, target, flag, n, block, to_rank, setting, BLOCK: tl.constexpr):
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    values = ctx.load(source + offsets, ctx.rank, mask=mask)
    ctx.store(target + offsets, values, to_rank, mask=mask)
    if not GATHERED:
        tl.debug_barrier()
    if setting == 0:
        ctx.atomic_cas(flag + block, 0, 1, to_rank, sem="release", scope="sys")
    elif setting == 1:
        ctx.atomic_xchg(flag + block, 1, to_rank, sem="release", scope="sys")
    else:
        ctx.atomic_add(flag + block, 1, to_rank, sem="release", scope="sys")


@triton.jit
def triton_consume(ctx, target, result, flag, n, block, setting, BLOCK: tl.constexpr):
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    seen = 0
    while seen == 0:
        if setting == 0:
            seen = ctx.atomic_cas(flag + block, 1, 0, ctx.rank, sem="acquire", scope="sys")
        else:
            seen = ctx.atomic_add(flag + block, 0, ctx.rank, sem="acquire", scope="sys")
    values = ctx.load(target + offsets, ctx.rank, mask=mask)
    ctx.store(result + offsets, values, ctx.rank, mask=mask)


@triton.jit(do_not_specialize=["n", "consumed", "to_rank", "setting"])
def triton_message_kernel(
    DeviceContext: tl.constexpr, context_tensor, source, target, result, flag, n, consumed, to_rank, setting,
    BLOCK: tl.constexpr, RANK: tl.constexpr, RANKS: tl.constexpr,
):  # fmt: skip
    """See ``message_kernel``."""
    ctx = DeviceContext.initialize(context_tensor, RANK, RANKS)
    pid = tl.program_id(0)
    if pid < consumed:
        triton_consume(ctx, target, result, flag, n, pid, setting, BLOCK)
    else:
        triton_produce(ctx, source, target, flag, n, pid - consumed, to_rank, setting, BLOCK)


def run(env, case: MessageCase):
    mismatch = None
    for round_ in range(rounds_needed(case.dtype, case.rounds * env.world_size * case.n)):
        mismatch = _round(env, case, round_) or mismatch
    return mismatch


def _round(env, case, digit):
    me, ranks, image, dtype = env.rank, env.world_size, env.image, of_name(case.dtype)
    right = (me + 1) % ranks
    pairs = {
        (rank, (rank + 1) % ranks)
        for rank in range(ranks)
        if case.shape == "ring" or (rank % 2 == 0 and rank + 1 < ranks)
    }
    consumes, produces = any(to == me for _, to in pairs), any(by == me for by, _ in pairs)
    size = case.n * dtype.itemsize
    places = starts(1024, [size, size, size, 4 * case.blocks] * case.rounds)

    image.reset()
    regions = []
    for k in range(case.rounds):
        source, target, result = (
            image.claim(f"{label} of message {k}", places[4 * k + i], case.n, dtype)
            for i, label in enumerate(("source", "target", "result"))
        )
        flags = image.claim(f"flags of message {k}", places[4 * k + 3], case.blocks, torch.int32)
        mine = payload(case.dtype, case.n, rank=me, ranks=ranks, round_=digit, repetition=k)
        image.fill(source, mine)
        image.fill(flags, torch.zeros(case.blocks, dtype=torch.int32))
        for values in exchange(mine, pairs, rank=me, ranks=ranks).values():
            image.expect(target, values)
            image.expect(result, values)
            image.expected(flags).fill_(0 if case.flag == "cas" else 1)
        regions.append((source, target, result, flags))

    with env.acting():
        if (
            (case.late == "producer" and produces)
            or (case.late == "consumer" and consumes and case.shape == "pair")
            or (case.late == "consumer" and me == 0)
        ):
            env.late(me, case.late_ms)
        warps = env.warps(case.warps)
        grid, setting = (case.blocks * (consumes + produces),), SETTINGS.index(case.flag)
        for places_of_one in regions if consumes or produces else ():
            consumed = case.blocks * consumes
            data = (*(image.tensor(region) for region in places_of_one), case.n, consumed, right, setting)
            if case.form == "gluon":
                message_kernel[grid](
                    env.device_context, env.context, *data, case.spt, env.device.lanes, warps, num_warps=warps
                )
            else:
                triton_message_kernel[grid](
                    env.under_test.triton_context, env.context, *data, case.block, me, ranks, num_warps=warps
                )
    env.settle()
    return image.difference()


def cases(ranks, shape, form="gluon"):
    from conformance.ordering import strategies

    return strategies.messages("int32", shape, form)


@requirement("ORDER-MESSAGE-001", cases=cases, weight=3.0, ranks=2, weak=RELEASE_WAITS, shape=("pair", "ring"))
def test_message(check, case):
    check(run, case)


@requirement(
    "ORDER-MESSAGE-002",
    cases=partial(cases, form="context"),
    ranks=2,
    weight=1.5,
    weak=RELEASE_WAITS,
    shape=("pair", "ring"),
)
def test_message_by_context(check, case):
    check(run, case)
