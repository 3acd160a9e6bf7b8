"""The kernels that execute litmus tests: one whose threads are work-groups, one whose threads are wavefronts."""

from __future__ import annotations

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.ordering.cases import RELEASE_GATHERS

GATHERED = tl.constexpr(RELEASE_GATHERS)


@gluon.jit
def see_once(ctx, flag, home, SEM: gl.constexpr, SCOPE: gl.constexpr):
    return ctx.atomic_add(flag, 0, home, sem=SEM, scope=SCOPE)


@gluon.jit
def step(
    ctx, program, number, cells, source, stride, lane, mask, home, spins,
    WRITE: gl.constexpr, READ: gl.constexpr, WRITES_TO: gl.constexpr, READS_FROM: gl.constexpr, LONG: gl.constexpr,
):  # fmt: skip
    """Execute operation ``number`` of ``program`` (see ``litmus.program_of``); return the values seen, -1 after a
    timeout. The codes from 8 on exist only if ``LONG``."""
    word = ((program >> (8 * number)) & 255).to(gl.int32)
    code, value = word % 16, word // 64
    at = cells + word // 16 % 4 * stride
    seen = lane * 0
    if code == 1:
        ctx.store(at + lane, lane * 0 + value, home, mask=mask)
    elif code == 2:
        ctx.put(source + value * stride + lane, at + lane, home, mask=mask)
    elif code == 3:
        ctx.atomic_xchg(at + lane, lane * 0 + value, home, mask=mask, sem="relaxed", scope="sys")
    elif code == 4:
        seen = ctx.load(at + lane, home, mask=mask)
    elif code == 5:
        if not GATHERED:
            tl.debug_barrier()
        ctx.atomic_xchg(at, value, home, sem=WRITE, scope=WRITES_TO)
    elif code == 6 or code == 7:
        flag = see_once(ctx, at, home, READ, READS_FROM)
        if code == 7:
            polls = 0
            while flag == 0 and polls < spins:
                flag = see_once(ctx, at, home, READ, READS_FROM)
                polls += 1
            if flag == 0:
                flag = -1
        seen += flag
    if LONG:
        if code == 8:
            flag = see_once(ctx, at, home, READ, READS_FROM)
            polls = 0
            while flag != 0 and polls < spins:
                flag = see_once(ctx, at, home, READ, READS_FROM)
                polls += 1
            seen -= (flag != 0).to(gl.int32)
        elif code == 9:
            flag = ctx.atomic_cas(at, 0, 1, home, sem=READ, scope=READS_FROM)
            polls = 0
            while flag != 0 and polls < spins:
                flag = ctx.atomic_cas(at, 0, 1, home, sem=READ, scope=READS_FROM)
                polls += 1
            seen -= (flag != 0).to(gl.int32)
        elif code == 10:
            seen = ctx.load(at + lane, home, mask=mask)
            ctx.store(at + lane, seen + 1, home, mask=mask)
    return seen


@gluon.jit(do_not_specialize=["threads", "instances", "steps", "stride", "n", "home", "spins", "skew"])
def litmus_kernel(
    IrisDeviceCtx: gl.constexpr, context, programs, numbers, cells, source, results,
    threads, instances, steps, stride, n, home, spins, skew,
    WRITE: gl.constexpr, READ: gl.constexpr, WRITES_TO: gl.constexpr, READS_FROM: gl.constexpr,
    SPT: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr, LONG: gl.constexpr,
):  # fmt: skip
    """Run thread ``numbers[work-group]`` of a litmus test in ``instances`` independent instances.

    ``programs``: int64[threads]; ``cells``: int32[instances, 4, stride] in ``home``'s heap, of which location 3 is
    the counter of threads that have started; ``source``: int32[3, stride], row v filled with v, for puts; ``results``:
    int32[threads, instances, steps, stride]. ``skew``: thread t starts ``t * skew`` polls late. Without ``LONG`` there
    are two steps, whose values are stored after both: a store waits for the value. No loop is unbounded, since the
    work-groups may not be resident at once.
    """
    ctx = IrisDeviceCtx.initialize(context)
    lane = gl.arange(0, SPT * LANES * WARPS, layout=gl.BlockedLayout([SPT], [LANES], [WARPS], [0]))
    mask = lane < n
    thread = gl.load(numbers + gl.program_id(0))
    program = gl.load(programs + thread)
    for instance in range(instances):
        here = cells + instance * 4 * stride
        start = here + 3 * stride
        ctx.atomic_add(start, 1, home, sem="relaxed", scope="sys")
        polls = 0
        while ctx.atomic_add(start, 0, home, sem="relaxed", scope="sys") < threads and polls < spins:
            polls += 1
        for _ in range(thread * skew):
            ctx.atomic_add(start, 0, home, sem="relaxed", scope="sys")
        out = results + (thread * instances + instance) * steps * stride + lane
        if LONG:
            for number in range(steps):
                seen = step(
                    ctx, program, number, here, source, stride, lane, mask, home, spins,
                    WRITE, READ, WRITES_TO, READS_FROM, LONG,
                )  # fmt: skip
                gl.store(out + number * stride, seen, mask=mask)
        else:
            a = step(
                ctx, program, 0, here, source, stride, lane, mask, home, spins,
                WRITE, READ, WRITES_TO, READS_FROM, LONG,
            )  # fmt: skip
            b = step(
                ctx, program, 1, here, source, stride, lane, mask, home, spins,
                WRITE, READ, WRITES_TO, READS_FROM, LONG,
            )  # fmt: skip
            gl.store(out, a, mask=mask)
            gl.store(out + stride, b, mask=mask)


@gluon.jit(do_not_specialize=["instances", "stride", "n", "home"])
def wavefront_kernel(
    IrisDeviceCtx: gl.constexpr, context, programs, numbers, cells, source, results, instances, stride, n, home,
    WRITE: gl.constexpr, READ: gl.constexpr, SCOPE: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """Run a litmus test whose threads are wavefronts of one work-group: wavefront w is thread ``numbers[w]``, or none
    if that is -1.

    The other arguments are as in ``litmus_kernel``; the tests are short ones without waits, see ``litmus.once``, of
    which a thread may begin one or two steps late: ``litmus.delayed``. Lanes that a wavefront does not need are masked:
    all wavefronts execute all operations in the same order, each with the locations and values of its own thread.
    """
    ctx = IrisDeviceCtx.initialize(context)
    layout: gl.constexpr = gl.BlockedLayout([1], [LANES], [WARPS], [0])
    lane = gl.arange(0, LANES * WARPS, layout=layout)
    place = lane % LANES
    thread = gl.load(numbers + lane // LANES)
    words = gl.load(programs + thread, mask=thread >= 0, other=0)
    mask = (thread >= 0) & (place < n)
    for instance in range(instances):
        here = cells + instance * 4 * stride
        out = results + (thread * instances + instance) * 4 * stride + place
        a = wavefront_step(ctx, words & 255, here, source, stride, place, mask, home, WRITE, READ, SCOPE)
        b = wavefront_step(ctx, (words >> 8) & 255, here, source, stride, place, mask, home, WRITE, READ, SCOPE)
        c = wavefront_step(ctx, (words >> 16) & 255, here, source, stride, place, mask, home, WRITE, READ, SCOPE)
        d = wavefront_step(ctx, (words >> 24) & 255, here, source, stride, place, mask, home, WRITE, READ, SCOPE)
        gl.store(out, a, mask=mask)
        gl.store(out + stride, b, mask=mask)
        gl.store(out + 2 * stride, c, mask=mask)
        gl.store(out + 3 * stride, d, mask=mask)


@gluon.jit
def wavefront_step(
    ctx, word, cells, source, stride, place, mask, home, WRITE: gl.constexpr, READ: gl.constexpr, SCOPE: gl.constexpr
):
    """Execute an operation of each wavefront's own; return the values seen, a flag's in the first lane."""
    code, value = (word % 16).to(gl.int32), (word // 64).to(gl.int32)
    at = cells + word // 16 % 4 * stride
    ctx.store(at + place, value, home, mask=mask & (code == 1))
    ctx.put(source + value * stride + place, at + place, home, mask=mask & (code == 2))
    ctx.atomic_xchg(at + place, value, home, mask=mask & (code == 3), sem="relaxed", scope=SCOPE)
    first = mask & (place == 0)
    ctx.atomic_xchg(at, value, home, mask=first & (code == 5), sem=WRITE, scope=SCOPE)
    flag = ctx.atomic_add(at, place * 0, home, mask=first & (code == 6), sem=READ, scope=SCOPE)
    seen = ctx.load(at + place, home, mask=mask & (code == 4), other=0)
    return gl.where(code == 6, flag, seen)
