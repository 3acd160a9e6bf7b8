"""Arithmetic of compiled kernels against NumPy and torch.

Integer division, IEEE division, fused multiply-add, conversions and reductions.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch

from harness import emulator
from tests.emulator import kernels
from tests.emulator.data import DTYPES, bits, random_bits
from tests.emulator.ieee import F32

N = 700
BLOCK = 256
GRID = (3,)


@pytest.fixture(autouse=True)
def device():
    yield emulator.activate()
    emulator.deactivate()


def interesting(name: str, seed: int) -> torch.Tensor:
    """Return the edges of the type, followed by random bits."""
    dtype = DTYPES[name]
    values = random_bits(N, dtype, seed)
    if dtype.is_floating_point:
        f = torch.finfo(dtype)
        edges = [
            0.0,
            -0.0,
            1.0,
            -1.0,
            math.inf,
            -math.inf,
            math.nan,
            f.max,
            f.min,
            f.tiny,
            -f.tiny,
            f.smallest_normal / 2,
            3.0,
            1 / 3,
        ]
    else:
        f = torch.iinfo(dtype)
        edges = [0, 1, -1, f.max, f.min, 2, 7, f.max - 1]
    # Every edge against every edge: one operand repeats the list, the other its elements.
    count = len(edges)
    order = range(count * count)
    values[: count * count] = torch.tensor([edges[i % count if seed % 2 else i // count] for i in order], dtype=dtype)
    return values


def same_numbers(got: torch.Tensor, wanted: torch.Tensor) -> None:
    """Check for equal bits, with all NaN equal."""
    wrong = bits(got) != bits(wanted)
    if wanted.dtype.is_floating_point:
        wrong &= ~(got.isnan() & wanted.isnan())
    where = wrong.nonzero().flatten()[:4].tolist()
    assert not where, f"elements {where}: {got[where]} instead of {wanted[where]}"


def run(op, a, b, c=None):
    out = torch.zeros_like(a)
    kernels.arithmetic[GRID](a, b, a if c is None else c, out, N, BLOCK, op, num_warps=4)
    return out


@pytest.mark.parametrize("name", ["i8", "i16", "i32", "i64"])
def test_integer_division_truncates(name):
    a, b = interesting(name, 2), interesting(name, 3)
    low = torch.iinfo(a.dtype).min
    b[(b == 0) | ((b == -1) & (a == low))] = 3  # undefined
    quotient, remainder = torch.zeros_like(a), torch.zeros_like(a)
    kernels.divide[GRID](a, b, quotient, remainder, N, BLOCK, num_warps=4)
    wanted = [int(Fraction(x, y)) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert quotient.tolist() == wanted
    assert remainder.tolist() == [x - q * y for x, y, q in zip(a.tolist(), b.tolist(), wanted, strict=True)]


@pytest.mark.parametrize("name", ["fp32", "fp64"])
def test_ieee_division(name):
    """div_scale, rcp, fma steps, div_fmas and div_fixup produce the correctly rounded quotient, for every operand."""
    a, b = interesting(name, 2), interesting(name, 3)
    op = "div_rn" if name == "fp32" else "div"
    with np.errstate(all="ignore"):
        same_numbers(run(op, a, b), torch.from_numpy(a.numpy() / b.numpy()))


@pytest.mark.slow
def test_ieee_square_root():
    a = interesting("fp32", 2)
    # Triton 3.6 passes denormals to v_rsq_f32, which reads them as 0; 3.9 scales them first.
    a[(a != 0) & (a.abs() < torch.finfo(torch.float32).smallest_normal)] = 2.0
    with np.errstate(all="ignore"):
        same_numbers(run("sqrt_rn", a, a), torch.from_numpy(np.sqrt(a.numpy())))


@pytest.mark.nightly
@pytest.mark.parametrize("op", ["add", "sub", "mul"])
@pytest.mark.parametrize("name", DTYPES)
def test_arithmetic(name, op):
    a, b = interesting(name, 2), interesting(name, 3)
    combine = {"add": torch.add, "sub": torch.sub, "mul": torch.mul}[op]
    same_numbers(run(op, a, b), combine(a, b))


@pytest.mark.parametrize("name", ["fp32", "fp64", "i32", "i64"])
@pytest.mark.parametrize("op", ["minimum", "maximum"])
def test_minimum_and_maximum(name, op):
    a, b = interesting(name, 2), interesting(name, 3)
    out = run(op, a, b)
    if not a.dtype.is_floating_point:
        assert torch.equal(out, getattr(torch, op)(a, b))
        return
    # A number wins over a NaN.
    numbers = ~(a.isnan() | b.isnan())
    assert torch.equal(out[numbers], getattr(torch, op)(a, b)[numbers])
    assert torch.equal(out.isnan(), a.isnan() & b.isnan())


@pytest.mark.slow
def test_fused_multiply_add_rounds_once():
    a, b, c = (interesting("fp32", seed) for seed in (2, 3, 4))
    # Products that cancel: only a fused sum keeps the bits that rounding the product would lose.
    a[300:400] = 1 + torch.arange(100) * 2.0**-23
    b[300:400] = 1 - torch.arange(100) * 2.0**-23
    c[300:400] = -1.0
    out = run("fma", a, b, c)
    for x, y, z, got in zip(*(t.tolist() for t in (a, b, c)), bits(out).tolist(), strict=True):
        if all(map(math.isfinite, (x, y, z))):
            exact = Fraction(x) * Fraction(y) + Fraction(z)
            if exact:
                assert got & 0xFFFFFFFF == F32.round(exact)


@pytest.mark.parametrize("name", ["i32", "i64"])
def test_shifts(name):
    a, b = interesting(name, 2), interesting(name, 3)
    shift = b & 7
    same_numbers(run("shift", a, b), (a >> shift) ^ (a << shift))


def test_high_product():
    a, b = interesting("i32", 2), interesting("i32", 3)
    wanted = [(x & 0xFFFFFFFF) * (y & 0xFFFFFFFF) >> 32 for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert [x & 0xFFFFFFFF for x in run("umulhi", a, b).tolist()] == wanted


CONVERSIONS = [(a, b) for a in DTYPES for b in DTYPES if a != b]


@pytest.mark.parametrize(("source", "target"), CONVERSIONS, ids=lambda n: n)
def test_conversion(source, target):
    a = interesting(source, 2)
    if a.dtype.is_floating_point and not DTYPES[target].is_floating_point:
        a[~a.isfinite() | (a.abs() > 100)] = 3.7  # out of range is undefined
    out = torch.zeros(N, dtype=DTYPES[target])
    kernels.convert[GRID](a, out, N, BLOCK, num_warps=4)
    same_numbers(out, a.to(DTYPES[target]))


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("name", ["i32", "i64", "fp32", "fp64"])
def test_reductions(name, warps):
    """Sums and maxima over a block: DPP, permutes, and the local data share between wavefronts."""
    a = torch.randint(-1000, 1000, (N,), generator=torch.Generator().manual_seed(1)).to(DTYPES[name])
    out = torch.zeros(6, dtype=DTYPES[name])
    kernels.total[GRID](a, out, N, BLOCK, num_warps=warps)
    padded = torch.cat([a, torch.zeros(3 * BLOCK - N, dtype=a.dtype)]).view(3, BLOCK)
    assert torch.equal(out[:3], padded.sum(1))
    assert torch.equal(out[3:], padded.max(1).values)
