"""The kernel that executes every litmus test."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def see_once(ctx, flag, home, SEM: gl.constexpr, SCOPE: gl.constexpr):
    return ctx.atomic_add(flag, 0, home, sem=SEM, scope=SCOPE)


@gluon.jit
def step(
    ctx, word, cells, source, stride, lane, mask, home, spins,
    WRITE: gl.constexpr, READ: gl.constexpr, WRITES_TO: gl.constexpr, READS_FROM: gl.constexpr,
):  # fmt: skip
    """Execute the operation ``word`` (see ``litmus.program_of``); return the values seen, -1 after a timeout."""
    code, value = word % 8, word // 32
    at = cells + word // 8 % 4 * stride
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
        ctx.atomic_xchg(at, value, home, sem=WRITE, scope=WRITES_TO)
    elif code >= 6:
        flag = see_once(ctx, at, home, READ, READS_FROM)
        if code == 7:
            polls = 0
            while flag == 0 and polls < spins:
                flag = see_once(ctx, at, home, READ, READS_FROM)
                polls += 1
            if flag == 0:
                flag = -1
        seen += flag
    return seen


@gluon.jit(do_not_specialize=["threads", "instances", "stride", "n", "home", "spins", "skew"])
def litmus_kernel(
    IrisDeviceCtx: gl.constexpr, context, program, numbers, cells, source, results,
    threads, instances, stride, n, home, spins, skew,
    WRITE: gl.constexpr, READ: gl.constexpr, WRITES_TO: gl.constexpr, READS_FROM: gl.constexpr,
    SPT: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """Run thread ``numbers[work-group]`` of a litmus test in ``instances`` independent instances.

    ``program``: int32[threads, 2]; ``cells``: int32[instances, 4, stride] in ``home``'s heap, of which location 3 is
    the counter of threads that have started; ``source``: int32[3, stride], row v filled with v, for puts; ``results``:
    int32[threads, instances, 2, stride]. ``skew``: thread t starts ``t * skew`` polls late. No loop is unbounded, since
    the work-groups may not be resident at once.
    """
    ctx = IrisDeviceCtx.initialize(context)
    lane = gl.arange(0, SPT * LANES * WARPS, layout=gl.BlockedLayout([SPT], [LANES], [WARPS], [0]))
    mask = lane < n
    thread = gl.load(numbers + gl.program_id(0))
    # Both words before the first operation: a load between the operations would wait for the first one.
    one, two = gl.load(program + 2 * thread), gl.load(program + 2 * thread + 1)
    for instance in range(instances):
        here = cells + instance * 4 * stride
        start = here + 3 * stride
        ctx.atomic_add(start, 1, home, sem="relaxed", scope="sys")
        polls = 0
        while ctx.atomic_add(start, 0, home, sem="relaxed", scope="sys") < threads and polls < spins:
            polls += 1
        for _ in range(thread * skew):
            ctx.atomic_add(start, 0, home, sem="relaxed", scope="sys")
        a = step(ctx, one, here, source, stride, lane, mask, home, spins, WRITE, READ, WRITES_TO, READS_FROM)
        b = step(ctx, two, here, source, stride, lane, mask, home, spins, WRITE, READ, WRITES_TO, READS_FROM)
        out = results + (thread * instances + instance) * 2 * stride + lane
        gl.store(out, a, mask=mask)
        gl.store(out + stride, b, mask=mask)
