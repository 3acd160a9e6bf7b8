"""Model of an MFMA on Python integers: positions of elements, per lane, and the addition of products.

Written from AMD's "CDNA3 ISA" and "CDNA4 ISA" (matrix chapters), the formulas of AMD's matrix instruction calculator
and the models of arXiv:2511.10909, independently of ``harness.emulator``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from tests.emulator.ieee import F32, F64, fma

NAN = "nan"
CANONICAL_NAN = 0x7FC00000


# -- elements ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Element:
    """A format: widths of exponent and mantissa, bias, and the meaning of its largest patterns."""

    exponent: int
    mantissa: int
    bias: int
    top: str = "numbers"

    @property
    def bits(self) -> int:
        return 1 + self.exponent + self.mantissa

    def decode(self, word: int):
        """Return NAN, infinity as (sign, None, None), or (sign, integer mantissa, exponent): mantissa * 2**exponent."""
        fraction = word & ((1 << self.mantissa) - 1)
        exponent = word >> self.mantissa & ((1 << self.exponent) - 1)
        sign = -1 if word >> (self.exponent + self.mantissa) & 1 else 1
        ones = exponent == (1 << self.exponent) - 1
        if self.top == "ieee" and ones:
            return NAN if fraction else (sign, None, None)
        if self.top == "ocp" and ones and fraction == (1 << self.mantissa) - 1:
            return NAN
        if self.top == "fnuz" and word == 0x80:
            return NAN
        if exponent:
            return sign, fraction | 1 << self.mantissa, exponent - self.bias - self.mantissa
        return sign, fraction, 1 - self.bias - self.mantissa


ELEMENTS = {
    "f16": Element(5, 10, 15, "ieee"),
    "bf16": Element(8, 7, 127, "ieee"),
    "xf32": Element(8, 10, 127, "ieee"),
    "fp8 gfx942": Element(4, 3, 8, "fnuz"),
    "bf8 gfx942": Element(5, 2, 16, "fnuz"),
    "fp8 gfx950": Element(4, 3, 7, "ocp"),
    "bf8 gfx950": Element(5, 2, 15, "ieee"),
    "fp6": Element(2, 3, 1),
    "bf6": Element(3, 2, 3),
    "fp4": Element(2, 1, 1),
}


def element(kind: str, arch: str) -> Element:
    return ELEMENTS.get(kind) or ELEMENTS[f"{kind} {arch}"]


def width(kind: str, arch: str) -> int:
    """Return the bits of an element in its register."""
    return {"f32": 32, "f64": 64, "i8": 8, "i32": 32, "xf32": 32}.get(kind) or element(kind, arch).bits


# -- the instruction ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mfma:
    """The parts of a mnemonic: ``blocks`` products of M x K by K x N."""

    d: str
    m: int
    n: int
    k: int
    blocks: int
    a: str
    b: str
    scaled: bool = False

    def __getitem__(self, side: str) -> str:
        return {"a": self.a, "b": self.b}[side]


def parse(mnemonic: str, a: str = "", b: str = "") -> Mfma:
    """Parse a mnemonic; ``a`` and ``b`` are the formats of an f8f6f4 instruction."""
    match = re.fullmatch(r"v_mfma_(scale_)?([fi]\d+)_(\d+)x(\d+)x(\d+)_(?:(\d+)b_)?(\w+)", mnemonic)
    assert match is not None
    scale, d, m, n, k, blocks, types = match.groups()
    if types != "f8f6f4":
        a, _, b = types.partition("_")
    return Mfma(d, int(m), int(n), int(k), int(blocks or 1), a, b or a, bool(scale))


def input_of(op: Mfma, side: str, lane: int, n: int, bits: int):
    """Return (block, row or column, k) of the n-th element of a lane of A or B."""
    rows = op.m if side == "a" else op.n
    per_lane = rows * op.k * op.blocks // 64
    group = lane // (rows * op.blocks)
    if per_lane == 32 and bits == 8 and op.d == "f32":
        # f8f6f4: a lane has 16 successive k of each half.
        k = n % 16 + 16 * group + (op.k // 2 if n >= 16 else 0)
    else:
        k = per_lane * group + n
    return lane // rows % op.blocks, lane % rows, k


def output_of(op: Mfma, lane: int, n: int):
    """Return (block, row, column) of the n-th element of a lane of C and D."""
    if op.d == "f64":
        return (0, 4 * n + lane // 16, lane % 16) if op.m == 16 else (lane // 4 % 4, lane // 16, lane % 4)
    if op.m == 32:
        return n // 16, 8 * (n // 4 % 4) + 4 * (lane // 32) + n % 4, lane % 32
    if op.m == 16:
        return n // 4, 4 * (lane // 16) + n % 4, lane % 16
    return lane // 4, n, lane % 4


def b_lane(lane: int, blgp: int) -> int:
    """Return the lane whose B is used for ``lane``."""
    quarter = lane // 16
    table = {
        0: [0, 1, 2, 3], 1: [0, 1, 0, 1], 2: [2, 3, 2, 3], 3: [1, 2, 3, 0],
        4: [0] * 4, 5: [1] * 4, 6: [2] * 4, 7: [3] * 4,
    }  # fmt: skip
    return 16 * table[blgp][quarter] + lane % 16


def a_block(block: int, cbsz: int, abid: int) -> int:
    """Return the block of A that is used for ``block``."""
    size = 2**cbsz
    return block // size * size + abid


# -- arithmetic --------------------------------------------------------------------------------------------------------


def dot(op: Mfma, arch: str, a: list[int], b: list[int], c: int, scales: list[int | None] | None = None) -> int:
    """Return the bits of c + sum of a * b, for the patterns of one row of A and one column of B.

    ``scales``: the sum of the two exponents for each 32 k, None for a NaN.
    """
    if op.a == "i8":
        signed = [(x - (x >> 7 << 8)) * (y - (y >> 7 << 8)) for x, y in zip(a, b, strict=True)]
        return (c + sum(signed)) & 0xFFFFFFFF
    if op.a in ("f32", "f64"):
        f = F32 if op.a == "f32" else F64
        for x, y in zip(a, b, strict=True):
            c = fma(f, x, y, c)
        return c
    if op.a == "xf32":
        a, b = ([x >> 13 for x in side] for side in (a, b))
    pairs = [(element(op.a, arch).decode(x), element(op.b, arch).decode(y)) for x, y in zip(a, b, strict=True)]
    eight = op.a not in ("f16", "bf16", "xf32")
    size = 16 if eight else 4 if op.a == "xf32" else 8
    fractions = element(op.a, arch).mantissa + element(op.b, arch).mantissa
    for first in range(0, len(pairs), size):
        scale = scales[first // 32] if scales else 0
        c = CANONICAL_NAN if scale is None else add_group(pairs[first : first + size], fractions, c, eight, scale)
    return c


def add_group(pairs: list, fractions: int, c: int, eight: bool, scale: int = 0) -> int:
    """Add one group of products and C. ``fractions`` are the mantissa bits of both elements; see ``native.mfma``."""
    if any(NAN in pair for pair in pairs) or F32.is_nan(c):
        return CANONICAL_NAN
    infinities = {1 if c < 1 << 31 else -1} if F32.is_inf(c) else set()
    sums: list[list[tuple[int, int]]] = [[], []]
    for n, ((sign_a, a, ea), (sign_b, b, eb)) in enumerate(pairs):
        sign = sign_a * sign_b
        if a is None or b is None:
            if a == 0 or b == 0:
                return CANONICAL_NAN
            infinities.add(sign)
        elif not eight and a * b * Fraction(2) ** (ea + eb) >= 2**128:
            infinities.add(sign)
        elif a * b:
            sums[n % 2 if eight else 0].append((sign * a * b, ea + eb))
        elif not eight:
            sums[0].append((0, -126 - fractions))
    if infinities:
        return CANONICAL_NAN if len(infinities) > 1 else 0x7F800000 if 1 in infinities else 0xFF800000
    # Each sum in units of 2**(top - 24).
    parts = []
    for terms in sums:
        if terms:
            top = max(e + fractions for _, e in terms)
            parts.append((sum(toward_zero(x, e - (top - 24)) for x, e in terms), top))
    top = max((t for _, t in parts), default=None)
    total = sum(down(x, t - top) for x, t in parts)
    c_sign, c_mantissa, c_exponent = Element(8, 23, 127).decode(c)
    c_top = c_exponent + 23
    both = c_top if top is None else max(top + scale, c_top)
    if top is not None:
        total = down(total, top + scale - 24 - (both - 31))
    kept = down(c_sign * c_mantissa, c_exponent - (both - 24))
    if eight and c_top < both - 25:
        kept = 0
    return F32.round((total + kept * 128) * Fraction(2) ** (both - 31))


def down(x: int, shift: int) -> int:
    """floor(x * 2**shift)."""
    return x << shift if shift >= 0 else x >> -shift


def toward_zero(x: int, shift: int) -> int:
    return -down(-x, shift) if x < 0 else down(x, shift)
