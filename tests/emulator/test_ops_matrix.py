"""Every MFMA opcode against ``matrix_reference``: positions of elements, rounding of results, modifiers."""

import random

import numpy as np
import pytest

from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.native import mfma
from harness.emulator.operations import TABLE
from tests.emulator import matrix_reference as reference
from tests.emulator.covering import covers
from tests.emulator.ieee import F32, F64
from tests.emulator.single import execute

NAMES = sorted(name for name in TABLE if name.startswith("v_mfma_"))
PLAIN = [name for name in NAMES if "f8f6f4" not in name]
F8F6F4 = ("fp8", "bf8", "fp6", "bf6", "fp4")
ARCHS = ("gfx942", "gfx950")
D, A, B, SCALES = 0, 32, 40, 48


def archs(name):
    return [name.partition("@")[2]] if "@" in name else ARCHS


def on_archs(names):
    return [pytest.param(name.partition("@")[0], arch, id=f"{name} {arch}") for name in names for arch in archs(name)]


def registers(first, words, file="v"):
    return f"{file}{first}" if words == 1 else f"{file}[{first}:{first + words - 1}]"


class Matrices:
    """Operands of some wavefronts: patterns of A by (block, i, k), of B by (block, j, k), of C by (block, i, j)."""

    def __init__(self, op, arch, waves, draw):
        """Fill the operands; ``draw(side, wave)`` returns a pattern for an element of side a, b or c."""
        self.op, self.arch, self.waves = op, arch, waves
        self.bits = {side: reference.width(kind, arch) for side, kind in (("a", op.a), ("b", op.b), ("c", op.d))}
        sizes = {"a": (op.m, op.k), "b": (op.n, op.k), "c": (op.m, op.n)}
        for side, (rows, columns) in sizes.items():
            places = [(x, y, z) for x in range(op.blocks) for y in range(rows) for z in range(columns)]
            setattr(self, side, [{place: draw(side, wave) for place in places} for wave in range(waves)])
        self.words = {side: self.elements(side) * self.bits[side] // 32 for side in "abc"}

    def elements(self, side):
        return len(getattr(self, side)[0]) // 64

    def place(self, side, lane, n):
        if side == "c":
            return reference.output_of(self.op, lane, n)
        return reference.input_of(self.op, side, lane, n, self.bits[side])

    def packed(self, side, first):
        """Return the registers of A, B or C, from ``first`` on."""
        columns = [[] for _ in range(self.words[side])]
        for values in getattr(self, side):
            for lane in range(64):
                word = 0
                for n in range(self.elements(side)):
                    word |= values[self.place(side, lane, n)] << n * self.bits[side]
                for i, column in enumerate(columns):
                    column.append(word >> 32 * i & 0xFFFFFFFF)
        return {first + i: column for i, column in enumerate(columns)}

    def unpacked(self, result, first=D):
        """Return D in the form of ``c``."""
        columns = [result.v(first + i) for i in range(self.words["c"])]
        per = self.bits["c"] // 32
        out = []
        for wave in range(self.waves):
            elements = {}
            for lane in range(64):
                for n in range(self.elements("c")):
                    word = sum(columns[n * per + i][64 * wave + lane] << 32 * i for i in range(per))
                    elements[self.place("c", lane, n)] = word
            out.append(elements)
        return out

    def dot(self, wave, block, i, j, scales=None, cbsz=0, abid=0):
        a = [self.a[wave][reference.a_block(block, cbsz, abid), i, k] for k in range(self.op.k)]
        b = [self.b[wave][block, j, k] for k in range(self.op.k)]
        return reference.dot(self.op, self.arch, a, b, self.c[wave][block, i, j], scales)

    def run(self, name, modifiers="", c=None, waves=None, v=None, **options):
        """Execute ``name`` with D and C in v0 on; ``c`` is another C operand as text."""
        d = registers(D, self.words["c"])
        text = f"{name} {d}, {registers(A, self.words['a'])}, {registers(B, self.words['b'])}, {c or d}{modifiers}"
        packed = {**self.packed("a", A), **self.packed("b", B), **self.packed("c", D), **(v or {})}
        return execute(text, v=packed, waves=self.waves, arch=self.arch, **options)


def same(op, got, wanted):
    """Compare bits; in a chain of fused multiply-adds all NaN are equal."""
    f = {"f32": F32, "f64": F64}.get(op.a)
    return got == wanted or (f is not None and f.is_nan(got) and f.is_nan(wanted))


# -- how products are added --------------------------------------------------------------------------------------------


def drawer(op, arch, seed):
    """Return random patterns by wave. 0: similar magnitudes. 1: any finite. 2: edges. 3: some NaN and infinities."""
    some = random.Random(seed)
    kinds = {"a": op.a, "b": op.b, "c": op.d}

    def float_of(bits, exponent, mantissa, bias, wave, rare):
        """Return a pattern, which is a special one with a chance of 1 in ``rare``."""
        ones = (1 << exponent) - 1
        sign = some.getrandbits(1) << (bits - 1)
        fraction = some.getrandbits(mantissa)
        if wave == 3 and some.randrange(rare) == 0:
            return sign | ones << mantissa | some.choice((0, (1 << mantissa) - 1))
        if wave == 2:
            top = max(ones - 1, 1)
            power = some.choice((0, 0, 0, 1, min(bias, top), top, some.randrange(top + 1)))
            return sign | power << mantissa | some.choice((0, 1, (1 << mantissa) - 1, fraction))
        power = some.randrange(ones) if wave == 1 else min(max(bias + some.randrange(-6, 7), 0), max(ones - 1, 0))
        return sign | power << mantissa | fraction

    def draw(side, wave):
        kind = kinds[side]
        rare = 3 * op.k if side != "c" else 8
        if kind in ("i8", "i32"):
            bits = 8 if kind == "i8" else 32
            return some.choice((0, 1, (1 << bits) - 1, 1 << bits - 1, (1 << bits - 1) - 1, some.getrandbits(bits)))
        if kind in ("f32", "f64"):
            f = F32 if kind == "f32" else F64
            return float_of(f.bits, f.bits - 1 - f.mantissa, f.mantissa, f.bias, wave, rare)
        f = reference.element(kind, arch)
        word = float_of(f.bits, f.exponent, f.mantissa, f.bias, wave, rare)
        if wave == 3 and f.top == "fnuz" and some.randrange(rare) == 0:
            return 0x80
        if wave < 3 and f.decode(word) == reference.NAN:
            return 0
        return word << 13 | some.getrandbits(13) if kind == "xf32" else word

    return draw


@pytest.mark.slow
@covers(*PLAIN)
@pytest.mark.parametrize(("name", "arch"), on_archs(PLAIN))
def test_every_opcode_adds_as_the_model_says(name, arch):
    """A sample of the results of four wavefronts."""
    op = reference.parse(name)
    matrices = Matrices(op, arch, 4, drawer(op, arch, name))
    after = matrices.unpacked(matrices.run(name))
    some = random.Random(arch)
    for wave in range(4):
        places = sorted(matrices.c[wave])
        for place in some.sample(places, min(len(places), 48)):
            wanted, got = matrices.dot(wave, *place), after[wave][place]
            assert same(op, got, wanted), f"{name} {arch}, wave {wave}, {place}: {got:#x}, not {wanted:#x}"


def one_sum(name, products, c):
    """Return the bits of D[0][0] of a bf16 MFMA: C plus ``products`` of two powers of two each, and of zeros."""
    op = reference.parse(name)
    matrices = Matrices(op, "gfx942", 1, lambda side, wave: 0)
    matrices.c[0][0, 0, 0] = c
    for k, (a, b) in enumerate(products):
        matrices.a[0][0, 0, k], matrices.b[0][0, 0, k] = a + 127 << 7, b + 127 << 7
    got = matrices.unpacked(matrices.run(name))[0][0, 0, 0]
    assert got == matrices.dot(0, 0, 0, 0)
    return got


def test_sums_keep_31_bits_below_the_leading_one():
    """1 + 2**-24 lies between two numbers: a term of 2**-31 decides the rounding, a term of 2**-32 is dropped."""
    name, one = "v_mfma_f32_32x32x8_bf16", F32.bias << F32.mantissa
    assert one_sum(name, [(-12, -12)], one) == one
    assert one_sum(name, [(-12, -12), (-15, -16)], one) == one + 1
    assert one_sum(name, [(-12, -12), (-16, -16)], one) == one


def test_a_product_of_zero_hides_what_is_far_below_the_range_of_f32():
    """2**-150 + 2**-155 is nearer to the least denormal than to 0, unless it is truncated at 2**-150 first."""
    name = "v_mfma_f32_32x32x8_bf16"
    tiny = [(-75, -75), (-75, -80)]
    assert one_sum(name, tiny, 0) == 0
    assert one_sum(name, tiny + [(-90, -90)] * 6, 0) == 1


# -- positions of elements, and modifiers ------------------------------------------------------------------------------


def small(op, arch, seed):
    """Draw small whole numbers, as patterns of each type: every sum is exact."""
    some = random.Random(seed)
    kinds = {"a": op.a, "b": op.b, "c": op.d}

    def draw(side, wave):
        return pattern(kinds[side], arch, some.randrange(-4, 5))

    return draw


def pattern(kind, arch, value):
    """Return the bits of a small whole number."""
    if kind in ("i8", "i32"):
        return value & ((1 << (8 if kind == "i8" else 32)) - 1)
    if kind in ("f32", "f64", "xf32"):
        return int(np.array(value, np.float64 if kind == "f64" else np.float32).view(f"u{8 if kind == 'f64' else 4}"))
    f = reference.element(kind, arch)
    if value == 0:
        return 0
    power = abs(value).bit_length() - 1
    fraction = (abs(value) << f.mantissa >> power) - (1 << f.mantissa)
    return (value < 0) << (f.bits - 1) | (power + f.bias) << f.mantissa | fraction


def product_of(matrices, wave, cbsz=0, abid=0):
    """Return D as a dictionary of numbers, by NumPy; cbsz and abid select the block of the rows of ``a``."""
    op, arch = matrices.op, matrices.arch

    def numbers(side, shape, kind):
        values = getattr(matrices, side)[wave]
        table = {pattern(kind, arch, n): n for n in range(-4, 5)}
        out = np.zeros(shape, np.int64)
        for place, word in values.items():
            out[place] = table[word]
        return out

    a = numbers("a", (op.blocks, op.m, op.k), op.a)
    a = a[[reference.a_block(block, cbsz, abid) for block in range(op.blocks)]]
    b = numbers("b", (op.blocks, op.n, op.k), op.b)
    return a @ b.transpose(0, 2, 1) + numbers("c", (op.blocks, op.m, op.n), op.d)


def number(kind, word):
    if kind == "i32":
        return word - (word >> 31 << 32)
    return float(
        np.array(word, np.uint64 if kind == "f64" else np.uint32).view(np.float64 if kind == "f64" else np.float32)
    )


def check_product(matrices, after, **broadcast):
    for wave, elements in enumerate(after):
        wanted = product_of(matrices, wave, **broadcast)
        for place, word in elements.items():
            assert number(matrices.op.d, word) == wanted[place], f"{matrices.op}, wave {wave}, {place}"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "arch"), on_archs(PLAIN))
def test_every_element_lies_where_the_manual_says(name, arch):
    op = reference.parse(name)
    matrices = Matrices(op, arch, 2, small(op, arch, name))
    check_product(matrices, matrices.unpacked(matrices.run(name)))


def test_exec_is_ignored():
    op = reference.parse("v_mfma_f32_32x32x8_f16")
    matrices = Matrices(op, "gfx942", 1, small(op, "gfx942", 1))
    check_product(matrices, matrices.unpacked(matrices.run("v_mfma_f32_32x32x8_f16", exec=0)))


@pytest.mark.parametrize("name", ["v_mfma_f32_4x4x1_16b_f32", "v_mfma_f32_16x16x4_4b_f16", "v_mfma_i32_32x32x4_2b_i8"])
def test_a_block_is_broadcast(name):
    op = reference.parse(name)
    matrices = Matrices(op, "gfx942", 1, small(op, "gfx942", name))
    for cbsz in range(1, op.blocks.bit_length()):
        for abid in (0, 2**cbsz - 1):
            result = matrices.run(name, f" cbsz:{cbsz} abid:{abid}")
            check_product(matrices, matrices.unpacked(result), cbsz=cbsz, abid=abid)


@pytest.mark.parametrize("blgp", range(8))
def test_lanes_of_b_are_rearranged(blgp):
    name = "v_mfma_f32_16x16x1_4b_f32"
    op = reference.parse(name)
    matrices = Matrices(op, "gfx942", 1, small(op, "gfx942", name))
    result = matrices.run(name, f" blgp:{blgp}" if blgp else "")
    moved = Matrices(op, "gfx942", 1, small(op, "gfx942", name))
    for lane in range(64):
        moved.b[0][moved.place("b", lane, 0)] = matrices.b[0][matrices.place("b", reference.b_lane(lane, blgp), 0)]
    check_product(moved, moved.unpacked(result))


@pytest.mark.parametrize("name", ["v_mfma_f64_16x16x4_f64", "v_mfma_f64_4x4x4_4b_f64"])
def test_signs_of_f64_operands_are_flipped(name):
    op = reference.parse(name)
    for flips in ((1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1)):
        matrices = Matrices(op, "gfx942", 1, small(op, "gfx942", name))
        result = matrices.run(name, f" neg:[{flips[0]},{flips[1]},{flips[2]}]")
        for side, flip in zip("abc", flips, strict=True):
            for place, word in getattr(matrices, side)[0].items():
                negative = word ^ (1 << 63 if flip else 0)
                getattr(matrices, side)[0][place] = 0 if negative == 1 << 63 else negative
        check_product(matrices, matrices.unpacked(result))


@pytest.mark.parametrize(
    ("name", "constant", "value"),
    [
        ("v_mfma_f32_32x32x2_f32", "1.0", 1),
        ("v_mfma_f32_16x16x16_f16", "0", 0),
        ("v_mfma_f32_16x16x16_bf16", "-4.0", -4),
        ("v_mfma_f64_16x16x4_f64", "2.0", 2),
        ("v_mfma_i32_16x16x32_i8", "-3", -3),
    ],
)
def test_c_may_be_a_constant(name, constant, value):
    op = reference.parse(name)
    draw = small(op, "gfx942", name)
    matrices = Matrices(op, "gfx942", 1, lambda side, w: pattern(op.d, "", value) if side == "c" else draw(side, w))
    check_product(matrices, matrices.unpacked(matrices.run(name, c=constant)))


@pytest.mark.parametrize("name", ["v_mfma_f32_32x32x4_2b_f16", "v_mfma_f64_16x16x4_f64", "v_mfma_i32_16x16x32_i8"])
def test_operands_in_accumulation_registers(name):
    """a0 follows the vector registers: it is at 64 in these listings."""
    op = reference.parse(name)
    matrices = Matrices(op, "gfx942", 1, small(op, "gfx942", name))
    c = registers(0, matrices.words["c"], "a")
    a, b = registers(40, matrices.words["a"], "a"), registers(B, matrices.words["b"])
    v = {**matrices.packed("a", 64 + 40), **matrices.packed("b", B), **matrices.packed("c", 64)}
    check_product(matrices, matrices.unpacked(execute(f"{name} {c}, {a}, {b}, {c}", v=v), 64))
    into_v = execute(f"{name} {registers(0, matrices.words['c'])}, {a}, {b}, {c}", v=v)
    check_product(matrices, matrices.unpacked(into_v, 0))


def test_the_result_may_overwrite_its_sources():
    name = "v_mfma_f32_16x16x1_4b_f32"
    op = reference.parse(name)
    matrices = Matrices(op, "gfx942", 1, small(op, "gfx942", name))
    v = {**matrices.packed("a", 0), **matrices.packed("b", 1), **matrices.packed("c", 16)}
    check_product(matrices, matrices.unpacked(execute(f"{name} v[0:15], v0, v1, v[16:31]", v=v)))


def test_wavefronts_do_not_depend_on_each_other():
    """The bits are the same whether a wavefront is executed alone or with others."""
    name = "v_mfma_f32_32x32x8_bf16"
    op = reference.parse(name)
    four = Matrices(op, "gfx942", 4, drawer(op, "gfx942", "four"))
    after = four.unpacked(four.run(name))
    for wave in range(4):
        alone = Matrices(op, "gfx942", 1, lambda side, w: 0)
        alone.a, alone.b, alone.c = [four.a[wave]], [four.b[wave]], [four.c[wave]]
        assert alone.unpacked(alone.run(name)) == [after[wave]]


@pytest.mark.parametrize(
    ("text", "arch", "why"),
    [
        ("v_mfma_f32_16x16x8_xf32 v[0:3], v[4:5], v[6:7], 0", "gfx950", "not implemented"),
        ("v_mfma_f32_16x16x32_f16 v[0:3], v[4:7], v[8:11], 0", "gfx942", "not implemented"),
        ("v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], 0 neg:[1,0,0]", "gfx942", "neg"),
        ("v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[10:11], 0 blgp:1", "gfx942", "blgp"),
        ("v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], 0 cbsz:1 abid:1", "gfx942", "with 1 blocks"),
        ("v_mfma_f32_16x16x4_4b_f16 v[0:15], v[16:17], v[18:19], 0 cbsz:1 abid:2", "gfx942", "abid:2"),
        ("v_mfma_f32_16x16x16_f16 v[0:3], v4, v[6:7], 0", "gfx942", "not a range of 2 vector registers"),
        ("v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:7], v[8:15], 0", "gfx950", "not a range of 8 vector registers"),
        ("v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], 0 cbsz:5", "gfx950", "format number 5"),
    ],
)
def test_what_does_not_exist_is_refused(text, arch, why):
    with pytest.raises(UnimplementedInstruction, match=why):
        execute(text, arch=arch)


# -- f8f6f4, scaled and not --------------------------------------------------------------------------------------------


def mixed(name, a, b, seed, draw=drawer):
    op = reference.parse(name, a, b)
    return op, Matrices(op, "gfx950", 4 if draw is drawer else 1, draw(op, "gfx950", f"{name}{a}{b}{seed}"))


def formats(a, b):
    numbers = (("cbsz", F8F6F4.index(a)), ("blgp", F8F6F4.index(b)))
    return "".join(f" {modifier}:{n}" for modifier, n in numbers if n)


def check_sample(op, matrices, after, scales=None):
    some = random.Random(0)
    for wave in range(matrices.waves):
        for place in some.sample(sorted(matrices.c[wave]), 24):
            wanted = matrices.dot(wave, *place, scales=scales(wave, *place) if scales else None)
            got = after[wave][place]
            assert same(op, got, wanted), f"{op}, wave {wave}, {place}: {got:#x}, not {wanted:#x}"


@pytest.mark.slow
@covers("v_mfma_f32_16x16x128_f8f6f4@gfx950 v_mfma_f32_32x32x64_f8f6f4@gfx950")
@pytest.mark.parametrize("name", ["v_mfma_f32_16x16x128_f8f6f4", "v_mfma_f32_32x32x64_f8f6f4"])
@pytest.mark.parametrize(("a", "b"), [(a, b) for i, a in enumerate(F8F6F4) for b in (a, F8F6F4[(i + 2) % 5])])
def test_formats_of_f8f6f4(name, a, b):
    _, exact = mixed(name, a, b, 0, small)
    check_product(exact, exact.unpacked(exact.run(name, formats(a, b))))
    op, matrices = mixed(name, a, b, 1)
    check_sample(op, matrices, matrices.unpacked(matrices.run(name, formats(a, b))))


@covers("v_mfma_scale_f32_16x16x128_f8f6f4@gfx950 v_mfma_scale_f32_32x32x64_f8f6f4@gfx950")
@pytest.mark.parametrize("name", ["v_mfma_scale_f32_16x16x128_f8f6f4", "v_mfma_scale_f32_32x32x64_f8f6f4"])
@pytest.mark.parametrize(("a", "b", "bytes_"), [("fp8", "fp8", (0, 0)), ("fp4", "fp4", (1, 2)), ("bf8", "fp6", (3, 1))])
def test_scales(name, a, b, bytes_):
    """Row i uses the scale of its 32 k from lane i + M s, in the byte that op_sel (low bit) and op_sel_hi select."""
    op, matrices = mixed(name, a, b, 2)
    some = random.Random(name)
    octets = [[some.choice((127, 128, 125, some.randrange(255))) for _ in range(4 * 256)] for _ in "ab"]
    words = [np.array(side, np.uint8).view(np.uint32).tolist() for side in octets]
    words[0][70] |= 0xFF << 8 * bytes_[0]  # a NaN
    low, high = [n & 1 for n in bytes_], [n >> 1 for n in bytes_]
    select = f" op_sel:[{low[0]},{low[1]},0] op_sel_hi:[{high[0]},{high[1]},0]"
    result = matrices.run(
        name, f", v{SCALES}, v{SCALES + 1}{select}{formats(a, b)}", v={SCALES: words[0], SCALES + 1: words[1]}
    )

    def scales(wave, block, i, j):
        sums = []
        for s in range(op.k // 32):
            lanes = 64 * wave + i + op.m * s, 64 * wave + j + op.n * s
            octets = [words[side][lane] >> 8 * bytes_[side] & 0xFF for side, lane in enumerate(lanes)]
            sums.append(None if 255 in octets else sum(octets) - 254)
        return sums

    check_sample(op, matrices, matrices.unpacked(result), scales)
    after = matrices.unpacked(result)[1]
    row = 70 % 64 % op.m
    assert all(F32.is_nan(after[0, row, j]) for j in range(op.n))


@pytest.mark.parametrize("name", ["v_mfma_f32_16x16x16_f16", "v_mfma_f64_16x16x4_f64", "v_mfma_i32_16x16x32_i8"])
def test_nothing_is_compiled_at_a_call(name):
    """Otherwise each rank would compile in the middle of a case; one process compiles in advance for all."""
    test_every_element_lies_where_the_manual_says(name, "gfx942")
    assert [len(function.signatures) for function in mfma._SIGNATURES] == [1] * len(mfma._SIGNATURES)
