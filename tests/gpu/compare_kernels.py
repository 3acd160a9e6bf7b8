"""Kernels whose results do not depend on the device: the same bits on any GPU that Triton compiles for.

What a device may choose is left out: payloads of NaN (``compare`` makes them equal), which of -0 and +0 is the minimum
(such pairs return the first), results beyond the range of an integer, fused or separate roundings of a * b + c,
approximations such as exp, and the order of inexact additions. Divisions and square roots are those that Triton rounds
correctly.
"""

from __future__ import annotations

import triton
import triton.language as tl

INTEGERS = ("add", "sub", "mul", "and", "or", "xor", "not", "shl", "shr", "min", "max", "less", "div", "mod", "abs")
FLOATS = ("add", "sub", "mul", "fma", "min", "max", "less", "equal", "abs", "neg")
ROUNDED = ("div_rn", "sqrt_rn", "floor", "ceil")
REDUCTIONS = ("sum", "max", "min", "xor", "argmax", "argmin")
SCANS = ("cumsum", "cumprod", "reverse", "maximum", "recurrence")
ATOMICS = ("add", "max", "min", "and", "or", "xor", "xchg", "cas")
SHAPES = ("flip", "trans", "gather", "sort", "histogram", "interleave", "split")


@triton.jit
def integers(x, y, out, OP: tl.constexpr, N: tl.constexpr):
    """Apply an operation of INTEGERS to each element; counts of shifts are below the width, divisors not 0 or -1."""
    i = tl.program_id(0) * N + tl.arange(0, N)
    a, b = tl.load(x + i), tl.load(y + i)
    if OP == "add":
        r = a + b
    elif OP == "sub":
        r = a - b
    elif OP == "mul":
        r = a * b
    elif OP == "and":
        r = a & b
    elif OP == "or":
        r = a | b
    elif OP == "xor":
        r = a ^ b
    elif OP == "not":
        r = ~a
    elif OP == "shl":
        r = a << (b & 7)
    elif OP == "shr":
        r = a >> (b & 7)
    elif OP == "min":
        r = tl.minimum(a, b)
    elif OP == "max":
        r = tl.maximum(a, b)
    elif OP == "less":
        r = (a < b).to(a.dtype)
    elif OP == "div":
        r = a // tl.where((b == 0) | (~b == 0), 3, b)
    elif OP == "mod":
        r = a % tl.where((b == 0) | (~b == 0), 3, b)
    else:
        r = tl.abs(a >> 1)
    tl.store(out + i, r.to(a.dtype))


@triton.jit
def high_products(x, y, out, N: tl.constexpr):
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out + i, tl.umulhi(tl.load(x + i), tl.load(y + i)))


@triton.jit
def floats(x, y, z, out, OP: tl.constexpr, N: tl.constexpr):
    """Apply an operation of FLOATS or ROUNDED to each element."""
    i = tl.program_id(0) * N + tl.arange(0, N)
    a, b, c = tl.load(x + i), tl.load(y + i), tl.load(z + i)
    if OP == "add":
        r = a + b
    elif OP == "sub":
        r = a - b
    elif OP == "mul":
        r = a * b
    elif OP == "fma":
        r = tl.fma(a, b, c)
    elif OP == "min":
        r = tl.where(a == b, a, tl.minimum(a, b))
    elif OP == "max":
        r = tl.where(a == b, a, tl.maximum(a, b))
    elif OP == "less":
        r = (a < b).to(a.dtype)
    elif OP == "equal":
        r = (a == b).to(a.dtype)
    elif OP == "abs":
        r = tl.abs(a)
    elif OP == "neg":
        r = 0.0 - a  # what -a is depends on the version of Triton: for 0 it is +0 until 3.6
    elif OP == "div_rn":
        r = tl.div_rn(a, b)
    elif OP == "sqrt_rn":
        r = tl.sqrt_rn(tl.abs(a))
    elif OP == "floor":
        r = tl.floor(a)
    else:
        r = tl.ceil(a)
    tl.store(out + i, r.to(a.dtype))


@triton.jit
def converted(x, out, N: tl.constexpr):
    """Convert to the type of the output, to nearest even."""
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out + i, tl.load(x + i).to(out.dtype.element_ty))


@triton.jit
def truncated(x, out, N: tl.constexpr):
    """Convert float32 to float16 toward zero."""
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out + i, tl.load(x + i).to(tl.float16, fp_downcast_rounding="rtz"))


@triton.jit
def reduced(x, out, OP: tl.constexpr, N: tl.constexpr):
    """Reduce each row of N integers."""
    a = tl.load(x + tl.program_id(0) * N + tl.arange(0, N))
    if OP == "sum":
        r = tl.sum(a, 0)
    elif OP == "max":
        r = tl.max(a, 0)
    elif OP == "min":
        r = tl.min(a, 0)
    elif OP == "xor":
        r = tl.xor_sum(a, 0)
    elif OP == "argmax":
        r = tl.argmax(a, 0)
    else:
        r = tl.argmin(a, 0)
    tl.store(out + tl.program_id(0), r)


@triton.jit
def _larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def _compose(a, b, c, d):
    """Compose x -> a x + b and x -> c x + d."""
    return a * c, b * c + d


@triton.jit
def scanned(x, out, OP: tl.constexpr, N: tl.constexpr):
    """Scan each row of N integers."""
    i = tl.program_id(0) * N + tl.arange(0, N)
    a = tl.load(x + i)
    if OP == "cumsum":
        r = tl.cumsum(a, 0)
    elif OP == "cumprod":
        r = tl.cumprod(a | 1, 0)
    elif OP == "reverse":
        r = tl.cumsum(a, 0, reverse=True)
    elif OP == "maximum":
        r = tl.associative_scan(a, 0, _larger)
    else:
        _, r = tl.associative_scan((a | 1, a), 0, _compose)
    tl.store(out + i, r)


@triton.jit
def counted(x, out, OP: tl.constexpr, CELLS: tl.constexpr, N: tl.constexpr):
    """Update cells by integer atomics, whose order does not matter; ``xchg`` and ``cas`` write what was written."""
    i = tl.program_id(0) * N + tl.arange(0, N)
    a = tl.load(x + i)
    cell = out + (a & (CELLS - 1))
    if OP == "add":
        tl.atomic_add(cell, a)
    elif OP == "max":
        tl.atomic_max(cell, a & 0x7FFFFFFF)
    elif OP == "min":
        tl.atomic_min(cell, a & 0x7FFFFFFF)
    elif OP == "and":
        tl.atomic_and(cell, a)
    elif OP == "or":
        tl.atomic_or(cell, a)
    elif OP == "xor":
        tl.atomic_xor(cell, a)
    elif OP == "xchg":
        tl.atomic_xchg(cell, (a & (CELLS - 1)) * 3)
    else:
        tl.atomic_cas(cell, tl.zeros_like(a), (a & (CELLS - 1)) * 5)


@triton.jit
def added(x, out, CELLS: tl.constexpr, N: tl.constexpr):
    """Add small whole numbers to floating-point cells: every order gives the same sum."""
    i = tl.program_id(0) * N + tl.arange(0, N)
    a = tl.load(x + i)
    tl.atomic_add(out + (a & (CELLS - 1)), ((a >> 8) & 7).to(out.dtype.element_ty))


@triton.jit
def shaped(x, out, OP: tl.constexpr, N: tl.constexpr):
    """Move the elements of a row of N integers."""
    i = tl.arange(0, N)
    a = tl.load(x + tl.program_id(0) * N + i)
    if OP == "flip":
        r = tl.flip(a, 0)
    elif OP == "trans":
        r = tl.reshape(tl.trans(tl.reshape(a, (N // 8, 8))), (N,))
    elif OP == "gather":
        r = tl.gather(a, (i * 37) % N, 0)
    elif OP == "sort":
        r = tl.sort(a)
    elif OP == "histogram":
        r = tl.histogram(a & (N - 1), N)
    elif OP == "interleave":
        half = tl.load(x + tl.program_id(0) * N + tl.arange(0, N // 2))
        r = tl.interleave(half, half + 1)
    else:
        one, two = tl.split(tl.reshape(a, (N // 2, 2)))
        r = tl.interleave(two, one)
    tl.store(out + tl.program_id(0) * N + i, r)


@triton.jit
def product(x, y, out, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, ACC: tl.constexpr):
    """Multiply matrices of small whole numbers: every sum is exact."""
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, K)
    a = tl.load(x + i[:, None] * K + k[None, :])
    b = tl.load(y + k[:, None] * N + j[None, :])
    c = tl.dot(a, b, input_precision="ieee", out_dtype=ACC)
    tl.store(out + i[:, None] * N + j[None, :], c)


@triton.jit
def steps(x, out, N: tl.constexpr):
    """Count the steps of the Collatz sequence, element by element, until all have arrived at 1 or made 200 steps."""
    i = tl.program_id(0) * N + tl.arange(0, N)
    a = (tl.load(x + i) & 0xFFFF) | 1
    count = tl.zeros_like(a)
    n = 0
    while (n < 200) & (tl.max((a != 1).to(tl.int32), 0) != 0):
        going = a != 1
        a = tl.where(going, tl.where(a % 2 == 0, a // 2, 3 * a + 1), a)
        count += going.to(a.dtype)
        n += 1
    tl.store(out + i, count)


@triton.jit
def drawn(out, SEED: tl.constexpr, N: tl.constexpr):
    """Store random numbers of Philox: integers, and floats that are exact products."""
    i = tl.program_id(0) * N + tl.arange(0, N)
    tl.store(out + i, tl.randint(SEED, i))
