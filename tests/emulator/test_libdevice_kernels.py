"""Functions of AMD's device library as Triton links them, against mpmath.

They execute the division steps, the argument reduction of large angles, tables and branches. Fused multiply-add is
switched off: Triton's default lets LLVM insert it where the library must not have it (its double-word arithmetic then
loses half of its digits).
"""

import math

import mpmath
import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra.hip import libdevice

from harness import emulator

N = 128


@triton.jit
def one_argument(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i)
    tl.store(out + i, libdevice.sin(a))
    tl.store(out + BLOCK + i, libdevice.cos(a))
    tl.store(out + 2 * BLOCK + i, libdevice.tan(a))
    tl.store(out + 3 * BLOCK + i, libdevice.exp(a))
    tl.store(out + 4 * BLOCK + i, libdevice.log(a))
    tl.store(out + 5 * BLOCK + i, libdevice.log1p(a))
    tl.store(out + 6 * BLOCK + i, libdevice.expm1(a))
    tl.store(out + 7 * BLOCK + i, libdevice.atanh(a))
    tl.store(out + 8 * BLOCK + i, libdevice.acos(a))
    tl.store(out + 9 * BLOCK + i, libdevice.tanh(a))
    tl.store(out + 10 * BLOCK + i, libdevice.erf(a))
    tl.store(out + 11 * BLOCK + i, libdevice.rsqrt(a))


FUNCTIONS = [
    mpmath.sin, mpmath.cos, mpmath.tan, mpmath.exp, mpmath.log, mpmath.log1p, mpmath.expm1, mpmath.atanh, mpmath.acos,
    mpmath.tanh, mpmath.erf, lambda x: 1 / mpmath.sqrt(x),
]  # fmt: skip


@triton.jit
def two_arguments(x, y, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b = tl.load(x + i), tl.load(y + i)
    tl.store(out + i, libdevice.pow(a, b))
    tl.store(out + BLOCK + i, libdevice.atan2(a, b))
    tl.store(out + 2 * BLOCK + i, libdevice.hypot(a, b))
    tl.store(out + 3 * BLOCK + i, libdevice.fmod(a, b))
    tl.store(out + 4 * BLOCK + i, libdevice.nextafter(a, b))
    tl.store(out + 5 * BLOCK + i, libdevice.copysign(a, b))


def ulps(got: float, exact, dtype) -> float:
    """Return the distance in units in the last place of the exact result; infinite if only one is a number."""
    if isinstance(exact, mpmath.mpc) or mpmath.isnan(exact):
        return 0 if math.isnan(got) else math.inf
    largest = float(torch.finfo(dtype).max)
    if abs(exact) > largest or not math.isfinite(got):
        return 0 if abs(exact) > largest * (1 - 1e-7) and got == math.copysign(math.inf, exact) else math.inf
    unit = np.spacing(np.array(abs(float(exact))).astype(str(dtype).removeprefix("torch.")))
    return float(abs(mpmath.mpf(got) - exact) / float(unit))


def arguments(dtype, seed: int) -> torch.Tensor:
    """Return numbers of all sizes, angles of many turns, and the functions' edge values."""
    some = torch.Generator().manual_seed(seed)
    edges = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.999,
        1e-8,
        -1e-5,
        1e-30,
        88.5,
        -87.5,
        710.0,
        1e5,
        2.5e7,
        3e8,
        1e15,
        1e22,
        7.0,
    ]
    random = torch.randn(N - len(edges), dtype=dtype, generator=some)
    spread = torch.randint(-6, 6, (len(random),), generator=some)
    return torch.cat([torch.tensor(edges, dtype=dtype), random * 2.0**spread])


@pytest.fixture(autouse=True)
def device():
    emulator.activate()
    with mpmath.workprec(400):
        yield
    emulator.deactivate()


def exact(function, *values):
    try:
        return function(*map(mpmath.mpf, values))
    except (ValueError, ZeroDivisionError):
        return None  # a pole


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_functions_of_one_argument(dtype):
    x = arguments(dtype, 1)
    out = torch.zeros(len(FUNCTIONS), N, dtype=dtype)
    one_argument[(1,)](x, out, N, num_warps=1, enable_fp_fusion=False)
    for function, row in zip(FUNCTIONS, out.tolist(), strict=True):
        for value, got in zip(x.tolist(), row, strict=True):
            wanted = exact(function, value)
            # OpenCL 3.0, "Relative Error as ULPs": 4 for most of these, 5 for tan and tanh, 16 for erf.
            assert wanted is None or ulps(got, wanted, dtype) <= 5, (function, value, got, wanted)


@pytest.mark.nightly
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_functions_of_two_arguments(dtype):
    x, y = arguments(dtype, 2), arguments(dtype, 3).flip(0)
    y[y == 0] = 3.0
    out = torch.zeros(6, N, dtype=dtype)
    two_arguments[(1,)](x, y, out, N, num_warps=1, enable_fp_fusion=False)
    power, angle, length, rest, after, signed = out
    assert torch.equal(angle.signbit(), x.signbit())
    angle = angle.abs()  # mpmath has no -0
    for a, b, *got in zip(x.tolist(), y.tolist(), power.tolist(), angle.tolist(), length.tolist(), strict=True):
        for function, value in zip(
            (mpmath.power, lambda y, x: mpmath.atan2(abs(y), x), mpmath.hypot), got, strict=True
        ):
            wanted = exact(function, a, b)
            # pow may be off by 16.
            assert wanted is None or ulps(value, wanted, dtype) <= 16, (function, a, b, value, wanted)
    assert torch.equal(rest, torch.fmod(x, y))
    assert torch.equal(after, torch.nextafter(x, y))
    assert torch.equal(signed, torch.copysign(x, y))
