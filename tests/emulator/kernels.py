"""Kernels for the differential tests of the emulator: Gluon and Triton, importable by spawned processes."""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def moved(pointer, delta):
    """Return ``pointer`` plus ``delta`` bytes, computed as a symmetric heap translates addresses.

    This prevents buffer instructions.
    """
    return (pointer.to(gl.int64, bitcast=True) + delta).to(pointer.dtype, bitcast=True)


@gluon.jit
def copy(
    src,
    dst,
    delta,
    n,
    other,
    MASKED: gl.constexpr,
    OTHER: gl.constexpr,
    MOVED: gl.constexpr,
    LOAD: gl.constexpr,
    STORE: gl.constexpr,
    SIZE: gl.constexpr,
    WARPS: gl.constexpr,
):
    """dst[i] = src[i] for i < n, if masked only for i % 3 != 1; other elements of dst become ``other``, or 0.

    Example: n 4, src [1, 2, 3, 4], other 9: dst [1, 9, 3, 4].
    """
    BLOCK: gl.constexpr = 64 * WARPS * SIZE
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=gl.BlockedLayout([SIZE], [64], [WARPS], [0]))
    source = src + offsets
    target = dst + offsets
    if MOVED:
        source = moved(source, delta)
        target = moved(target, delta)
    inside = offsets < n
    if MASKED:
        wanted = inside & (offsets % 3 != 1)
        if OTHER:
            values = gl.load(source, mask=wanted, other=other, cache_modifier=LOAD)
            gl.store(target, values, mask=inside, cache_modifier=STORE)
        else:
            gl.store(target, gl.load(source, mask=wanted, cache_modifier=LOAD), mask=wanted, cache_modifier=STORE)
    else:
        values = gl.load(source, mask=inside, cache_modifier=LOAD)
        gl.store(target, values, mask=inside, cache_modifier=STORE)


@gluon.jit
def atomic(
    dst,
    values,
    out,
    delta,
    n,
    slots,
    OP: gl.constexpr,
    SEM: gl.constexpr,
    SCOPE: gl.constexpr,
    RETURN: gl.constexpr,
    SIZE: gl.constexpr,
    WARPS: gl.constexpr,
):
    """Apply element i of ``values`` to dst[i % slots] by an atomic; out[i] is the old value.

    Example: OP add, slots 1, dst [10], values [1, 2]: dst [13], out [10, 11] or [12, 10].
    """
    BLOCK: gl.constexpr = 64 * WARPS * SIZE
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=gl.BlockedLayout([SIZE], [64], [WARPS], [0]))
    mask = offsets < n
    target = moved(dst + offsets % slots, delta)
    value = gl.load(values + offsets, mask=mask)
    if OP == "add":
        old = gl.atomic_add(target, value, mask=mask, sem=SEM, scope=SCOPE)
    elif OP == "xchg":
        old = gl.atomic_xchg(target, value, mask=mask, sem=SEM, scope=SCOPE)
    elif OP == "and":
        old = gl.atomic_and(target, value, mask=mask, sem=SEM, scope=SCOPE)
    elif OP == "or":
        old = gl.atomic_or(target, value, mask=mask, sem=SEM, scope=SCOPE)
    elif OP == "xor":
        old = gl.atomic_xor(target, value, mask=mask, sem=SEM, scope=SCOPE)
    elif OP == "min":
        old = gl.atomic_min(target, value, mask=mask, sem=SEM, scope=SCOPE)
    else:
        old = gl.atomic_max(target, value, mask=mask, sem=SEM, scope=SCOPE)
    if RETURN:
        gl.store(out + offsets, old, mask=mask)


@gluon.jit
def compare_and_swap(
    dst, expected, values, out, delta, SEM: gl.constexpr, SCOPE: gl.constexpr, SIZE: gl.constexpr, WARPS: gl.constexpr
):
    """Set dst[i] to values[i] where it equals expected[i]; out[i] is the old value."""
    BLOCK: gl.constexpr = 64 * WARPS * SIZE
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=gl.BlockedLayout([SIZE], [64], [WARPS], [0]))
    old = gl.atomic_cas(
        moved(dst + offsets, delta), gl.load(expected + offsets), gl.load(values + offsets), sem=SEM, scope=SCOPE
    )
    gl.store(out + offsets, old)


@gluon.jit
def scalar_atomic(dst, out, delta, OP: gl.constexpr, SEM: gl.constexpr, SCOPE: gl.constexpr):
    """One atomic per work-group on dst[0]; out[work-group] is the old value."""
    pid = gl.program_id(0)
    target = moved(dst, delta)
    if OP == "add":
        old = gl.atomic_add(target, pid + 1, sem=SEM, scope=SCOPE)
    elif OP == "xchg":
        old = gl.atomic_xchg(target, pid + 1, sem=SEM, scope=SCOPE)
    elif OP == "max":
        old = gl.atomic_max(target, pid + 1, sem=SEM, scope=SCOPE)
    else:
        old = gl.atomic_cas(target, pid, pid + 1, sem=SEM, scope=SCOPE)
    gl.store(out + pid, old)


@triton.jit
def plain_copy(src, dst, n, other, BLOCK: tl.constexpr, OTHER: tl.constexpr):
    """dst[i] = src[i] for i < n and i % 5 != 2, ``other`` there if OTHER: plain pointers become buffer instructions."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    wanted = inside & (offsets % 5 != 2)
    if OTHER:
        tl.store(dst + offsets, tl.load(src + offsets, mask=wanted, other=other), mask=inside)
    else:
        tl.store(dst + offsets, tl.load(src + offsets, mask=wanted), mask=wanted)


@triton.jit
def plain_vector_copy(src, dst, BLOCK: tl.constexpr):
    """dst = src, whole blocks: the widest accesses."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(dst + offsets, tl.load(src + offsets))


@triton.jit
def plain_atomic(dst, values, out, n, slots, BLOCK: tl.constexpr, OP: tl.constexpr, RETURN: tl.constexpr):
    """Do the same as ``atomic``, on plain pointers at gpu scope, relaxed."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    target = dst + offsets % slots
    value = tl.load(values + offsets, mask=mask)
    if OP == "add":
        old = tl.atomic_add(target, value, mask=mask, sem="relaxed")
    elif OP == "xchg":
        old = tl.atomic_xchg(target, value, mask=mask, sem="relaxed")
    elif OP == "and":
        old = tl.atomic_and(target, value, mask=mask, sem="relaxed")
    elif OP == "or":
        old = tl.atomic_or(target, value, mask=mask, sem="relaxed")
    elif OP == "xor":
        old = tl.atomic_xor(target, value, mask=mask, sem="relaxed")
    elif OP == "min":
        old = tl.atomic_min(target, value, mask=mask, sem="relaxed")
    else:
        old = tl.atomic_max(target, value, mask=mask, sem="relaxed")
    if RETURN:
        tl.store(out + offsets, old, mask=mask)


@triton.jit
def plain_cas(dst, expected, values, out, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    old = tl.atomic_cas(dst + offsets, tl.load(expected + offsets), tl.load(values + offsets), sem="relaxed")
    tl.store(out + offsets, old)


@triton.jit
def divide(a, b, quotient, remainder, n, BLOCK: tl.constexpr):
    """quotient = a // b and remainder = a % b, truncated as in C."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(a + offsets, mask=mask, other=1)
    y = tl.load(b + offsets, mask=mask, other=1)
    tl.store(quotient + offsets, x // y, mask=mask)
    tl.store(remainder + offsets, x % y, mask=mask)


@triton.jit
def arithmetic(a, b, c, out, n, BLOCK: tl.constexpr, OP: tl.constexpr):
    """Element-wise OP, for comparison with NumPy."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(a + offsets, mask=mask)
    y = tl.load(b + offsets, mask=mask)
    if OP == "div":
        z = x / y
    elif OP == "div_rn":
        z = tl.div_rn(x, y)
    elif OP == "fma":
        z = tl.fma(x, y, tl.load(c + offsets, mask=mask))
    elif OP == "minimum":
        z = tl.minimum(x, y)
    elif OP == "maximum":
        z = tl.maximum(x, y)
    elif OP == "sub":
        z = x - y
    elif OP == "mul":
        z = x * y
    elif OP == "sqrt_rn":
        z = tl.sqrt_rn(x)
    elif OP == "umulhi":
        z = tl.umulhi(x, y)
    elif OP == "shift":
        z = (x >> (y & 7)) ^ (x << (y & 7))
    else:
        z = x + y
    tl.store(out + offsets, z, mask=mask)


@triton.jit
def convert(a, out, n, BLOCK: tl.constexpr):
    """out = a, in the element type of ``out``."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(a + offsets, mask=mask).to(out.dtype.element_ty), mask=mask)


@triton.jit
def total(a, out, n, BLOCK: tl.constexpr):
    """out[work-group] = the sum of its block, out[programs + work-group] = the maximum: cross-lane moves."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(a + offsets, mask=offsets < n, other=0)
    tl.store(out + tl.program_id(0), tl.sum(x, axis=0))
    tl.store(out + tl.num_programs(0) + tl.program_id(0), tl.max(x, axis=0))


@gluon.jit
def count_up(counter, ROUNDS: gl.constexpr, CAS: gl.constexpr):
    """Add 1 to counter[0] ROUNDS times from each work-group, by an atomic addition or a compare-and-swap loop."""
    for _ in range(ROUNDS):
        if CAS:
            old = gl.atomic_add(counter, 0, sem="relaxed", scope="sys")
            seen = gl.atomic_cas(counter, old, old + 1, sem="relaxed", scope="sys")
            while seen != old:
                old = seen
                seen = gl.atomic_cas(counter, old, old + 1, sem="relaxed", scope="sys")
        else:
            gl.atomic_add(counter, 1, sem="relaxed", scope="sys")


@gluon.jit
def store_one(pointer, delta):
    gl.store(moved(pointer, delta), 1)


@gluon.jit
def far_store(pointer, delta, WARPS: gl.constexpr):
    """Each lane stores its number; the line of ``store_one`` and of this call are in the fault report."""
    offsets = gl.arange(0, 64 * WARPS, layout=gl.BlockedLayout([1], [64], [WARPS], [0]))
    store_one(pointer + offsets, delta)


@gluon.jit
def counted(src, dst, n):
    """One wavefront, one dword a lane: small enough to count its instructions by hand."""
    offsets = gl.arange(0, 64, layout=gl.BlockedLayout([1], [64], [1], [0]))
    mask = offsets < n
    gl.store(moved(dst + offsets, 0 * n), gl.load(src + offsets, mask=mask), mask=mask)
