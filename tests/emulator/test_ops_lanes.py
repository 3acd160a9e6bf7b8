"""Edge values of opcodes that move values between lanes, of bitop3, and of other opcodes of gfx950."""

import itertools
import math
import random
import struct

import mpmath
import pytest

from harness.emulator.faults import UnimplementedInstruction
from tests.emulator.covering import covers
from tests.emulator.single import ALL, execute

LANES = list(range(64))
WORDS = [random.Random(3).getrandbits(32) for _ in LANES]
SOME = random.Random(5).getrandbits(64) & ~1
EDGES = [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x5555AAAA, 127, 128, 255, 256, 0xFFFFFF80, 0xFFFFFF7F]


def active(mask, lane):
    return mask >> lane & 1


# -- swizzle -----------------------------------------------------------------------------------------------------------


@covers("ds_swizzle_b32")
@pytest.mark.parametrize("mask", [ALL, SOME])
@pytest.mark.parametrize(
    ("pattern", "source"),
    [
        ("swizzle(SWAP,16)", lambda i: i ^ 16),
        ("swizzle(SWAP,1)", lambda i: i ^ 1),
        ("swizzle(REVERSE,8)", lambda i: i // 8 * 8 + 7 - i % 8),
        ("swizzle(REVERSE,32)", lambda i: i // 32 * 32 + 31 - i % 32),
        ("swizzle(BROADCAST,4,3)", lambda i: i // 4 * 4 + 3),
        ("swizzle(BROADCAST,32,31)", lambda i: i // 32 * 32 + 31),
        ("swizzle(QUAD_PERM,3,1,0,2)", lambda i: i // 4 * 4 + (3, 1, 0, 2)[i % 4]),
        ('swizzle(BITMASK_PERM,"01pi0")', lambda i: i // 32 * 32 + (8 | (i & 4) | (~i & 2))),
        ("0x8000", lambda i: i // 4 * 4),
        ("0x1f", lambda i: i),
        ("0xc020", lambda i: i // 32 * 32 + (i + 1) % 32),
        ("0xc460", lambda i: i // 32 * 32 + (i - 3) % 32),
        ("0xc038", lambda i: i // 8 * 8 + (i + 1) % 8),
    ],
)
def test_swizzle(pattern, source, mask):
    result = execute(f"ds_swizzle_b32 v0, v1 offset:{pattern}", v={0: 5, 1: WORDS}, exec=mask).v(0)
    for lane in LANES:
        sent = WORDS[source(lane)] if active(mask, source(lane)) else 0
        assert result[lane] == (sent if active(mask, lane) else 5), lane


def test_swizzle_patterns_that_the_emulator_lacks_are_refused():
    for pattern in ("0xe000", "swizzle(FFT,0)"):
        with pytest.raises(UnimplementedInstruction, match="ds_swizzle"):
            execute(f"ds_swizzle_b32 v0, v1 offset:{pattern}")


# -- swaps of rows -----------------------------------------------------------------------------------------------------


@covers("v_permlane16_swap_b32@gfx950 v_permlane32_swap_b32@gfx950")
@pytest.mark.parametrize("modifiers", ["", " bound_ctrl:1", " fi:1"])
@pytest.mark.parametrize("mask", [ALL, SOME])
@pytest.mark.parametrize("width", [16, 32])
def test_permlane_swap(width, mask, modifiers):
    a, b = WORDS, [w ^ 0xFFFF for w in reversed(WORDS)]
    result = execute(
        f"v_permlane{width}_swap_b32_e64 v0, v1{modifiers}" if modifiers else f"v_permlane{width}_swap_b32_e32 v0, v1",
        v={0: a, 1: b}, exec=mask, arch="gfx950",
    )  # fmt: skip
    after_a, after_b = list(a), list(b)
    for lane in LANES:
        if not lane & width:
            continue
        for mine, other, value, out in ((lane, lane - width, b, after_a), (lane - width, lane, a, after_b)):
            if not active(mask, mine):
                continue
            if active(mask, other) or "fi" in modifiers:
                out[mine] = value[other]
            elif "bound_ctrl" in modifiers:
                out[mine] = 0
    assert result.v(0) == after_a
    assert result.v(1) == after_b


# -- bitop3 ------------------------------------------------------------------------------------------------------------


@covers("v_bitop3_b32@gfx950")
@pytest.mark.parametrize("first", range(0, 256, 64))
def test_bitop3_every_table(first):
    a, b, c = (random.Random(n).getrandbits(32) for n in range(3))
    tables = range(first, first + 64)
    for table in tables:
        wanted = sum((table >> (4 * (a >> i & 1) + 2 * (b >> i & 1) + (c >> i & 1)) & 1) << i for i in range(32))
        result = execute(f"v_bitop3_b32 v0, v1, v2, s3 bitop3:{table:#x}", v={1: a, 2: b}, s={3: c}, arch="gfx950")
        assert result.v(0) == [wanted] * 64, hex(table)


@covers("v_bitop3_b16@gfx950")
def test_bitop3_of_halves_keeps_the_other_half():
    v = {0: 0xAAAABBBB, 1: 0x12340F0F, 2: 0x56783333}
    low = execute("v_bitop3_b16 v0, v1, v2, v2 bitop3:0x30", v=v, arch="gfx950").v(0)[0]
    assert low == 0xAAAA0000 | 0x0F0F & ~0x3333 & 0xFFFF
    high = execute("v_bitop3_b16 v0, v1, v2, v2 bitop3:0xc0 op_sel:[1,1,1,1]", v=v, arch="gfx950").v(0)[0]
    assert high == (0x1234 & 0x5678) << 16 | 0xBBBB


# -- integers ----------------------------------------------------------------------------------------------------------


@covers("v_prng_b32@gfx950")
def test_prng():
    for word in EDGES:
        wanted = (word << 1) & 0xFFFFFFFF ^ (197 if word >> 31 else 0)
        assert execute("v_prng_b32_e32 v0, v1", v={1: word}, arch="gfx950").v(0)[0] == wanted


@covers("v_ashr_pk_i8_i32@gfx950 v_ashr_pk_u8_i32@gfx950")
@pytest.mark.parametrize(("kind", "low", "high"), [("i8", -128, 127), ("u8", 0, 255)])
def test_ashr_pk(kind, low, high):
    cases = list(itertools.product(EDGES, EDGES, (0, 1, 7, 31, 33)))
    cases += cases[: -len(cases) % 64]
    for i in range(0, len(cases), 64):
        a, b, n = (list(column) for column in zip(*cases[i : i + 64], strict=True))
        got = execute(f"v_ashr_pk_{kind}_i32 v0, v1, v2, v3", v={0: 0xAAAABBBB, 1: a, 2: b, 3: n}, arch="gfx950").v(0)
        for lane, (x, y, count) in enumerate(zip(a, b, n, strict=True)):
            first, second = (
                min(max((w - (w >> 31 << 32)) >> count % 32, low), high) & 0xFF for w in (x, y)
            )  # fmt: skip
            assert got[lane] == 0xAAAA0000 | second << 8 | first, (hex(x), hex(y), count)


@covers("v_mad_legacy_u16 v_mad_legacy_i16")
@pytest.mark.parametrize("kind", ["u16", "i16"])
def test_mad_legacy_clears_the_upper_half(kind):
    for a, b, c in itertools.product((0, 1, 0x7FFF, 0x8000, 0xFFFF), repeat=3):
        v = {0: 0xAAAABBBB, 1: 0x50000 | a, 2: 0x60000 | b, 3: 0x70000 | c}
        assert execute(f"v_mad_legacy_{kind} v0, v1, v2, v3", v=v).v(0)[0] == (a * b + c) & 0xFFFF


# -- floats ------------------------------------------------------------------------------------------------------------

F32 = [0.0, -0.0, 1.0, -1.0, 1.5, math.inf, -math.inf, math.nan, 1e-45, 3.4e38]


def f32(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


def extreme(values, largest):
    """IEEE 754-2019: NaN wins, zeros compare by sign."""
    if any(math.isnan(v) for v in values):
        return math.nan
    return (max if largest else min)(values, key=lambda v: (v, math.copysign(1, v)))


@covers("v_minimum3_f32@gfx950 v_maximum3_f32@gfx950")
@pytest.mark.parametrize("name", ["minimum3", "maximum3"])
def test_minimum3_and_maximum3(name):
    cases = list(itertools.product(F32, repeat=3))
    cases += cases[: -len(cases) % 64]
    for i in range(0, len(cases), 64):
        part = cases[i : i + 64]
        v = {n + 1: [f32(case[n]) for case in part] for n in range(3)}
        got = execute(f"v_{name}_f32 v0, v1, v2, v3", v=v, arch="gfx950").v(0)
        for word, case in zip(got, part, strict=True):
            wanted = extreme(case, name == "maximum3")
            value = struct.unpack("<f", struct.pack("<I", word))[0]
            assert (math.isnan(value) and math.isnan(wanted)) or word == f32(wanted), case


@covers("v_pk_minimum3_f16@gfx950 v_pk_maximum3_f16@gfx950")
@pytest.mark.parametrize("name", ["minimum3", "maximum3"])
def test_packed_minimum3_and_maximum3(name):
    values = [0.0, -0.0, 1.0, -2.0, math.inf, math.nan]
    for low, high in itertools.product(itertools.permutations(values, 3), [(1.0, -0.0, 0.0), (math.nan, 1.0, 2.0)]):
        words = [struct.unpack("<I", struct.pack("<ee", *pair))[0] for pair in zip(low, high, strict=True)]
        got = execute(f"v_pk_{name}_f16 v0, v1, v2, v3", v=dict(enumerate(words, 1)), arch="gfx950").v(0)[0]
        for half, case in zip(struct.unpack("<ee", struct.pack("<I", got)), (low, high), strict=True):
            wanted = extreme(case, name == "maximum3")
            same = struct.pack("<e", half) == struct.pack("<e", wanted)
            assert same or (math.isnan(half) and math.isnan(wanted)), case


@covers("v_trig_preop_f64")
@pytest.mark.parametrize("segment", [0, 1, 2, 7, 22, 31])
def test_trig_preop_picks_53_bits_of_two_over_pi(segment):
    with mpmath.workprec(1400):
        bits = int(mpmath.floor(2 / mpmath.pi * mpmath.mpf(2) ** 1201))
    arguments = [1.0, 2.0**53, 2.0**54, 2.0**55, 1e300, 1e308, 2.0**944, 2.0**945, 2.0**1023, 5e-324, 0.0, -1e22]
    for argument in arguments:
        word = struct.unpack("<Q", struct.pack("<d", argument))[0]
        exponent = word >> 52 & 0x7FF
        shift = segment * 53 + max(exponent - 1077, 0)
        piece = (bits << shift) % (1 << 1201 + shift) >> 1201 - 53 & (1 << 53) - 1 if shift < 1201 + 53 else 0
        wanted = math.ldexp(piece, -53 - shift + (128 if exponent >= 1968 else 0))
        v = {2: word & 0xFFFFFFFF, 3: word >> 32}
        got = execute(f"v_trig_preop_f64 v[0:1], |v[2:3]|, {segment}", v=v).v64(0)[0]
        assert got == struct.unpack("<Q", struct.pack("<d", wanted))[0], argument
