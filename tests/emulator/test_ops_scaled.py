"""Scaled conversions of gfx950 and stochastic rounding, against exact arithmetic on the values of each format."""

import random
from fractions import Fraction

import pytest

from tests.emulator.covering import covers
from tests.emulator.ieee import F16, F32, Format, convert
from tests.emulator.single import execute

BF16 = Format(16, 7)
WIDE = {"f32": F32, "f16": F16, "bf16": BF16}
SATURATE = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1"


def table(exponent: int, mantissa: int, bias: int) -> list[Fraction]:
    """Return the magnitudes of a format's codes as if none were an infinity or NaN."""
    values = []
    for code in range(1 << exponent + mantissa):
        field, rest = code >> mantissa, Fraction(code % (1 << mantissa), 1 << mantissa)
        values.append((rest + (field > 0)) * Fraction(2) ** (max(field, 1) - bias))
    return values


# Magnitudes of the numbers, and the result for larger ones: NaN, infinity, or the largest.
NUMBERS = {
    "fp8": table(4, 3, 7)[:-1],
    "bf8": table(5, 2, 15)[:-4],
    "fp6": table(2, 3, 1),
    "bf6": table(3, 2, 3),
    "fp4": table(2, 1, 1),
}
BITS = {"fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4}
TOO_LARGE = {"fp8": 0x7F, "bf8": 0x7C}
NAN = {"fp8": 0x7F, "bf8": 0x7F}


def test_the_largest_numbers():
    """OCP OFP8 1.0, table 1; OCP Microscaling Formats 1.0, section 5.3."""
    assert {name: values[-1] for name, values in NUMBERS.items()} == {
        "fp8": 448, "bf8": 57344, "fp6": Fraction(15, 2), "bf6": 28, "fp4": 6
    }  # fmt: skip


def up(name: str, code: int, power: int, wide: Format) -> int:
    """Return the wide pattern of a code times 2**power."""
    sign = wide.sign if code >> BITS[name] - 1 else 0
    magnitude = code & (1 << BITS[name] - 1) - 1
    if magnitude >= len(NUMBERS[name]):
        return sign | wide.inf if name == "bf8" and magnitude == TOO_LARGE[name] else wide.nan
    return sign | wide.round(NUMBERS[name][magnitude] * Fraction(2) ** power)


def down(name: str, wide: Format, word: int, power: int, saturate=False, noise: int | None = None) -> int:
    """Return the code of a wide pattern divided by 2**power; ``noise`` / 2**32 replaces rounding to nearest even."""
    numbers, sign = NUMBERS[name], (1 << BITS[name] - 1 if wide.negative(word) else 0)
    if wide.is_nan(word):
        return NAN.get(name, len(numbers) - 1) | sign
    beyond = len(numbers) - 1 if saturate else TOO_LARGE.get(name, len(numbers) - 1)
    if wide.is_inf(word):
        return beyond | sign
    value = abs(wide.value(word)) / Fraction(2) ** power
    # One more number above the largest, to round to.
    grid = [*numbers, 2 * numbers[-1] - numbers[-2]]
    below = max((i for i, number in enumerate(grid) if number <= value), default=0)
    if below == len(grid) - 1:
        return beyond | sign
    part = (value - grid[below]) / (grid[below + 1] - grid[below])
    if noise is not None:
        above = part + Fraction(noise, 1 << 32) >= 1
    else:
        above = part > Fraction(1, 2) or (part == Fraction(1, 2) and below & 1)
    code = below + above
    return (beyond if code >= len(numbers) else code) | sign


def same(name: str, got: int, wanted: int) -> bool:
    magnitude = (1 << BITS[name] - 1) - 1
    nan = len(NUMBERS[name]) + (name == "bf8")
    return got == wanted or (name in NAN and got & magnitude >= nan and wanted & magnitude >= nan)


def patterns(name: str, wide: Format, power: int, count: int = 192) -> list[int]:
    """Return the format's numbers, halfway points and neighbours, specials, overflows, in the wide format, scaled."""
    some, numbers = random.Random(name), NUMBERS[name]
    words = [0, 1, wide.nan, wide.inf, wide.inf - 1]
    words += [wide.round(numbers[-1] * factor * Fraction(2) ** power) for factor in (1, Fraction(17, 16), 2)]
    words += [some.randrange(wide.inf) for _ in range(10)]
    while 2 * len(words) < count:
        i = some.randrange(len(numbers) - 1)
        for value in (numbers[i], (numbers[i] + numbers[i + 1]) / 2):
            word = wide.round(value * Fraction(2) ** power)
            words += [word, word + 1, max(word - 1, 0)]
    return [w | s for w in words for s in (0, wide.sign)][:count]


def scale_word(power: int) -> int:
    """Return a float32 with that exponent, and a mantissa that must have no effect."""
    return power + 127 << 23 | 0x123456


def bits(number: int, count: int = 4) -> str:
    return "[" + ",".join(str(number >> i & 1) for i in range(count)) + "]"


# -- up ----------------------------------------------------------------------------------------------------------------


@covers(*(f"v_cvt_scalef32_pk_{wide}_{name}@gfx950" for wide in WIDE for name in ("fp8", "bf8")))
@pytest.mark.parametrize("name", ["fp8", "bf8"])
@pytest.mark.parametrize("wide", WIDE)
@pytest.mark.parametrize(("power", "high"), [(0, 0), (-2, 1), (3, 0), (100, 1), (-140, 0)])
def test_two_of_eight_bits_up(wide, name, power, high):
    power = max(power, -127)
    for first in range(0, 256, 64):
        codes = [(first + i, 255 - first - i) for i in range(64)]
        v = {1: [(a | b << 8) << 16 * high | 0x1234 << 16 * (1 - high) for a, b in codes], 5: scale_word(power)}
        target = "v[2:3]" if wide == "f32" else "v2"
        result = execute(f"v_cvt_scalef32_pk_{wide}_{name} {target}, v1, v5 op_sel:{bits(high, 3)}", v=v, arch="gfx950")
        check_pair(wide, result, [tuple(up(name, code, power, WIDE[wide]) for code in both) for both in codes])


def check_pair(wide, result, wanted):
    f = WIDE[wide]
    for i, (low, high) in enumerate(wanted):
        got = (result.v(2)[i], result.v(3)[i]) if wide == "f32" else (result.v(2)[i] & 0xFFFF, result.v(2)[i] >> 16)
        for a, b in zip(got, (low, high), strict=True):
            assert a == b or (f.is_nan(a) and f.is_nan(b)), (i, hex(a), hex(b))


@covers(*(f"v_cvt_scalef32_{wide}_{name}@gfx950" for wide in ("f32", "f16") for name in ("fp8", "bf8")))
@pytest.mark.parametrize("name", ["fp8", "bf8"])
@pytest.mark.parametrize("wide", ["f32", "f16"])
@pytest.mark.parametrize("byte", range(4))
def test_one_of_eight_bits_up(wide, name, byte):
    f, high = WIDE[wide], byte & 1
    for first in range(0, 256, 64):
        v = {1: [(first + i) << 8 * byte | 0x3C3C3C3C & ~(0xFF << 8 * byte) for i in range(64)], 5: scale_word(-1)}
        select = bits(byte | (high << 3 if wide == "f16" else 0))
        result = execute(
            f"v_cvt_scalef32_{wide}_{name} v0, v1, v5 op_sel:{select}", v={0: 0xAAAABBBB, **v}, arch="gfx950"
        )
        for i, got in enumerate(result.v(0)):
            wanted = up(name, first + i, -1, f)
            if wide == "f16":
                kept, got = (got & 0xFFFF, got >> 16) if high else (got >> 16, got & 0xFFFF)
                assert kept == (0xBBBB if high else 0xAAAA)
            assert got == wanted or (f.is_nan(got) and f.is_nan(wanted))


@covers(*(f"v_cvt_scalef32_pk_{wide}_fp4@gfx950" for wide in WIDE))
@pytest.mark.parametrize("wide", WIDE)
@pytest.mark.parametrize("byte", range(4))
def test_two_of_four_bits_up(wide, byte):
    codes = [(i % 16, i * 7 % 16) for i in range(64)]
    v = {1: [(a | b << 4) << 8 * byte | 0x5A5A5A5A & ~(0xFF << 8 * byte) for a, b in codes], 5: scale_word(2)}
    target = "v[2:3]" if wide == "f32" else "v2"
    result = execute(f"v_cvt_scalef32_pk_{wide}_fp4 {target}, v1, v5 op_sel:{bits(byte, 3)}", v=v, arch="gfx950")
    check_pair(wide, result, [tuple(up("fp4", code, 2, WIDE[wide]) for code in both) for both in codes])


def test_the_scale_of_nan():
    v = {1: 0x3838, 5: 0x7F800000}
    assert F32.is_nan(execute("v_cvt_scalef32_pk_f32_fp8 v[2:3], v1, v5", v=v, arch="gfx950").v(2)[0])
    v = {1: 0x3F800000, 5: 0x7FC00000}
    assert execute("v_cvt_scalef32_pk_fp8_f32 v0, v1, v1, v5", v=v, arch="gfx950").v(0)[0] == 0x7F7F


# -- down --------------------------------------------------------------------------------------------------------------


def sources(wide: str, words: list[int]) -> tuple[dict[int, list[int]], list[tuple[int, int]]]:
    """Return registers v1 (and v2) that hold the words and the same in reverse, and the pairs in them."""
    pairs = list(zip(words, words[::-1], strict=True))
    if wide == "f32":
        return {1: [a for a, _ in pairs], 2: [b for _, b in pairs]}, pairs
    return {1: [a | b << 16 for a, b in pairs]}, pairs


@covers(*(f"v_cvt_scalef32_pk_{name}_{wide}@gfx950" for wide in WIDE for name in ("fp8", "bf8", "fp4")))
@pytest.mark.parametrize("name", ["fp8", "bf8", "fp4"])
@pytest.mark.parametrize("wide", WIDE)
@pytest.mark.parametrize(("power", "at", "saturate"), [(0, 0, True), (2, 1, False), (-3, 3, True), (-3, 2, False)])
def test_two_down(wide, name, power, at, saturate):
    pairs_at, width = (at, 8) if name == "fp4" else (at & 1, 16)
    select = bits(pairs_at << 2) if name == "fp4" else bits(pairs_at << (3 if wide == "f32" else 2))
    registers, pairs = sources(wide, patterns(name, WIDE[wide], power))
    operands = "v1, v2" if wide == "f32" else "v1"
    text = f"v_cvt_scalef32_pk_{name}_{wide} v0, {operands}, v5 op_sel:{select}"
    v = {0: 0xAAAABBBB, 5: scale_word(power), **registers}
    result = execute(*[SATURATE] * saturate, text, v=v, arch="gfx950", waves=3).v(0)
    field = (1 << width) - 1 << width * pairs_at
    for got, both in zip(result, pairs, strict=True):
        assert got & ~field == 0xAAAABBBB & ~field
        codes = (got & field) >> width * pairs_at
        for i, word in enumerate(both):
            code = codes >> i * width // 2 & (1 << BITS[name]) - 1
            wanted = down(name, WIDE[wide], word, power, saturate)
            assert same(name, code, wanted), (hex(word), hex(code), hex(wanted))


NOISE = [0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x12345678]


def prng(word: int) -> int:
    return word << 1 & 0xFFFFFFFF ^ (197 if word >> 31 else 0)


@covers(*(f"v_cvt_scalef32_sr_{name}_{wide}@gfx950" for wide in WIDE for name in ("fp8", "bf8")))
@covers(*(f"v_cvt_scalef32_sr_pk_fp4_{wide}@gfx950" for wide in WIDE))
@pytest.mark.parametrize("name", ["fp8", "bf8", "fp4"])
@pytest.mark.parametrize("wide", WIDE)
@pytest.mark.parametrize(("power", "byte"), [(0, 0), (4, 3)])
def test_scaled_and_rounded_at_random(wide, name, power, byte):
    words = patterns(name, WIDE[wide], power)
    noise = [NOISE[i % len(NOISE)] for i in range(len(words))]
    registers, pairs = sources(wide, words)
    packed = name == "fp4"
    operand, v = "v1", {0: 0xAAAABBBB, 3: noise, 5: scale_word(power), **registers}
    if packed and wide == "f32":
        operand, v = "v[6:7]", {0: 0xAAAABBBB, 3: noise, 5: scale_word(power), 6: registers[1], 7: registers[2]}
    text = f"v_cvt_scalef32_sr_{'pk_' * packed}{name}_{wide} v0, {operand}, v3, v5 op_sel:{bits(byte << 2)}"
    result = execute(SATURATE, text, v=v, arch="gfx950", waves=3).v(0)
    for got, (low, high), number in zip(result, pairs, noise, strict=True):
        assert got & ~(0xFF << 8 * byte) == 0xAAAABBBB & ~(0xFF << 8 * byte)
        code = got >> 8 * byte & 0xFF
        wanted = down(name, WIDE[wide], low, power, True, number)
        assert same(name, code & (1 << BITS[name]) - 1, wanted), (hex(low), hex(number))
        if packed:
            assert code >> 4 == down(name, WIDE[wide], high, power, True, prng(number))


# The FNUZ formats of gfx942: one more exponent at the bottom; the only special code is 0x80, which is NaN.
FNUZ = {"fp8": table(4, 3, 8), "bf8": table(5, 2, 16)}


@covers(*(f"v_cvt_sr_{name}_f32@{arch}" for name in ("fp8", "bf8") for arch in ("gfx942", "gfx950")))
@pytest.mark.parametrize("name", ["fp8", "bf8"])
@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("byte", range(4))
def test_rounded_at_random(name, arch, byte, monkeypatch):
    if arch == "gfx942":
        monkeypatch.setitem(NUMBERS, name, FNUZ[name])
        monkeypatch.setitem(TOO_LARGE, name, 0x80)
        monkeypatch.setitem(NAN, name, 0x80)
    words = patterns(name, F32, 0)
    noise = [NOISE[i % len(NOISE)] for i in range(len(words))]
    text = f"v_cvt_sr_{name}_f32 v0, v1, v2 op_sel:{bits(byte << 2)}"
    result = execute(text, v={0: 0xAAAABBBB, 1: words, 2: noise}, arch=arch, waves=3).v(0)
    for got, word, number in zip(result, words, noise, strict=True):
        assert got & ~(0xFF << 8 * byte) == 0xAAAABBBB & ~(0xFF << 8 * byte)
        code, wanted = got >> 8 * byte & 0xFF, down(name, F32, word, 0, False, number)
        if arch == "gfx942":
            # There is no -0, and one NaN.
            wanted = 0 if wanted == 0x80 and abs(F32.order(word)) < F32.bias << F32.mantissa else wanted
            assert code == wanted, (hex(word), hex(number))
        assert same(name, code, wanted), (hex(word), hex(number))


@covers("v_cvt_sr_f16_f32@gfx950 v_cvt_sr_bf16_f32@gfx950")
@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("high", [0, 1])
def test_16_bits_rounded_at_random(name, high):
    f, some = WIDE[name], random.Random(name)
    words = [convert(f, F32, some.randrange(f.inf)) + some.randrange(1 << 12) for _ in range(80)]
    words += [0, 1, F32.nan, F32.inf, F32.inf - 1, F32.round(Fraction(2) ** -25), F32.round(Fraction(65519))] * 4
    words += [w | F32.sign for w in words]
    words += words[: -len(words) % 64]
    noise = [NOISE[i % len(NOISE)] for i in range(len(words))]
    v = {0: 0xAAAABBBB, 1: words, 2: noise}
    text = f"v_cvt_sr_{name}_f32 v0, v1, v2 op_sel:[0,0,0,{high}]"
    for got, word, number in zip(
        execute(text, v=v, arch="gfx950", waves=len(words) // 64).v(0), words, noise, strict=True
    ):
        kept, half = (got & 0xFFFF, got >> 16) if high else (got >> 16, got & 0xFFFF)
        assert kept == (0xBBBB if high else 0xAAAA)
        wanted = at_random(f, word, number)
        assert half == wanted or (f.is_nan(half) and f.is_nan(wanted)), (hex(word), hex(number), hex(half), hex(wanted))


def at_random(f: Format, word: int, noise: int) -> int:
    sign = f.sign if F32.negative(word) else 0
    if F32.is_nan(word) or F32.is_inf(word):
        return convert(F32, f, word)
    value = abs(F32.value(word))
    below = f.round(value, toward_zero=True)
    unit = f.value(1) if below < 1 << f.mantissa else f.value((below >> f.mantissa) << f.mantissa) / (1 << f.mantissa)
    return sign | below + ((value - f.value(below)) / unit + Fraction(noise, 1 << 32) >= 1)


# -- 32 of six bits ----------------------------------------------------------------------------------------------------

SIX = ("fp6", "bf6")


@covers(*(f"v_cvt_scalef32_pk32_{wide}_{name}@gfx950" for wide in WIDE for name in SIX))
@pytest.mark.parametrize("name", SIX)
@pytest.mark.parametrize("wide", WIDE)
def test_32_of_six_bits_up(wide, name):
    some = random.Random(name + wide)
    codes = [[some.randrange(64) for _ in range(32)] for _ in range(64)]
    packed = [sum(code << 6 * i for i, code in enumerate(row)) for row in codes]
    v = {40 + n: [word >> 32 * n & 0xFFFFFFFF for word in packed] for n in range(6)}
    last = 31 if wide == "f32" else 15
    text = f"v_cvt_scalef32_pk32_{wide}_{name} v[0:{last}], v[40:45], v50"
    result = execute(text, v={50: scale_word(3), **v}, arch="gfx950")
    columns = [result.v(n) for n in range(last + 1)]
    for lane, row in enumerate(codes):
        for i, code in enumerate(row):
            got = columns[i][lane] if wide == "f32" else columns[i // 2][lane] >> 16 * (i % 2) & 0xFFFF
            assert got == up(name, code, 3, WIDE[wide])


@covers(*(f"v_cvt_scalef32_pk32_{name}_{wide}@gfx950" for wide in ("f16", "bf16") for name in SIX))
@covers(*(f"v_cvt_scalef32_sr_pk32_{name}_{wide}@gfx950" for wide in WIDE for name in SIX))
@covers(*(f"v_cvt_scalef32_2xpk16_{name}_f32@gfx950" for name in SIX))
@pytest.mark.parametrize("name", SIX)
@pytest.mark.parametrize(
    ("form", "wide"),
    [("pk32", "f16"), ("pk32", "bf16"), ("sr_pk32", "f32"), ("sr_pk32", "f16"), ("sr_pk32", "bf16"), ("2xpk16", "f32")],
)
def test_32_down_to_six_bits(name, form, wide):
    words = patterns(name, WIDE[wide], 1, 64 * 32)
    rows = [words[32 * i : 32 * i + 32] for i in range(64)]
    noise = [NOISE[i % len(NOISE)] for i in range(64)]
    if wide == "f32":
        v = {8 + i: [row[i] for row in rows] for i in range(32)}
        operands = "v[8:23], v[24:39]" if form == "2xpk16" else "v[8:39]"
    else:
        v = {8 + i: [row[2 * i] | row[2 * i + 1] << 16 for row in rows] for i in range(16)}
        operands = "v[8:23]"
    text = f"v_cvt_scalef32_{form}_{name}_{wide} v[0:5], {operands}, {'v50, ' * (form == 'sr_pk32')}v51"
    result = execute(text, v={50: noise, 51: scale_word(1), **v}, arch="gfx950")
    columns = [result.v(n) for n in range(6)]
    for lane, row in enumerate(rows):
        packed, number = sum(columns[n][lane] << 32 * n for n in range(6)), noise[lane]
        # The elements alternate between the two sources of 16 values.
        order = [row[i // 2 + 16 * (i % 2)] for i in range(32)] if form == "2xpk16" else row
        for i, word in enumerate(order):
            wanted = down(name, WIDE[wide], word, 1, False, number if form == "sr_pk32" else None)
            assert packed >> 6 * i & 63 == wanted, (i, hex(word))
            number = prng(number)


def test_lanes_that_are_off_keep_their_registers():
    v = {0: 7, 1: 0x3F800000, 2: 5, 5: scale_word(0)}
    for text in (
        "v_cvt_sr_fp8_f32 v0, v1, v2",
        "v_cvt_scalef32_pk_fp4_f32 v0, v1, v1, v5",
        "v_cvt_scalef32_pk32_fp6_f16 v[0:5], v[8:23], v5",
        "v_cvt_scalef32_pk32_f16_fp6 v[0:15], v[8:13], v5",
    ):
        result = execute(text, v=v, exec=1 << 3, arch="gfx950").v(0)
        assert result[:3] + result[4:] == [7] * 63
        assert result[3] != 7
