"""Inline constants: what each kind of operand reads for each of them, in every encoding, and as LLVM emits them.

An expected value is the 32-bit word that the constant puts in place of a register, by the rules of LLVM AMDGPUBaseInfo,
``getInlineEncodingV216`` and ``getInlineEncodingV2BF16``, and of LLVM pull request 84106 and issue 58167.
"""

import itertools
import struct

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from harness import emulator
from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.operations import TABLE
from harness.emulator.operations.table import Op
from harness.emulator.program import build
from harness.emulator.wavefront import operands
from harness.emulator.wavefront.state import DTYPES
from tests.emulator.assembler import available, encoding
from tests.emulator.single import execute

FLOATS = ("0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0", "0.15915494")
CONSTANTS = (*map(str, range(-16, 65)), *FLOATS)
SINGLE = dict(zip(FLOATS, (0x3F000000, 0xBF000000, 0x3F800000, 0xBF800000, 0x40000000, 0xC0000000, 0x40800000,
                           0xC0800000, 0x3E22F983), strict=True))  # fmt: skip
HALF = dict(zip(FLOATS, (0x3800, 0xB800, 0x3C00, 0xBC00, 0x4000, 0xC000, 0x4400, 0xC400, 0x3118), strict=True))
BFLOAT = dict(zip(FLOATS, (0x3F00, 0xBF00, 0x3F80, 0xBF80, 0x4000, 0xC000, 0x4080, 0xC080, 0x3E22), strict=True))


EDGES = ("-16", "-1", "0", "1", "64", *FLOATS)
"""Constants that every template executes in native code too, which has a function of its own for each constant: the
interpreter's step yields the word for both."""

KEPT = 8
"""The first register that no template of this file names: a program keeps its results from there on."""


def word(constant, floats):
    return floats[constant] if constant in floats else int(constant) & 0xFFFFFFFF


def half(bits, high):
    return bits >> 16 * high & 0xFFFF


def as_f16(bits):
    return struct.unpack("<e", struct.pack("<H", bits))[0]


def value(*lines, arch="gfx942", **registers):
    return execute(*lines, exec=1, arch=arch, **registers).v(0)[0]


def results(template, arch="gfx942", **registers):
    """Return the result of ``template``, an instruction that writes v0, for each of the constants."""
    values = {}
    inner = [c for c in CONSTANTS if c not in EDGES]
    for some, native in ((EDGES, True), (inner[:45], False), (inner[45:], False)):
        if not some:
            continue
        copied = [(template.format(c), f"v_mov_b32_e32 v{KEPT + n}, v0") for n, c in enumerate(some)]
        after = execute(*itertools.chain(*copied), exec=1, arch=arch, native=native, **registers)
        values |= {c: after.v(KEPT + n)[0] for n, c in enumerate(some)}
    return [values[c] for c in CONSTANTS]


# -- packed operations -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("select", list(itertools.product((0, 1), repeat=2)))
def test_packed_16_bit_integers(select, arch):
    low, high = select
    modifiers = f"op_sel:[0,{low}] op_sel_hi:[1,{high}]"
    wanted = [half(word(c, SINGLE), low) | half(word(c, SINGLE), high) << 16 for c in CONSTANTS]
    for name in ("v_pk_add_u16", "v_pk_add_i16", "v_pk_max_u16"):
        assert results(f"{name} v0, v1, {{}} {modifiers}", arch) == wanted
    modifiers = f"op_sel:[0,0,{low}] op_sel_hi:[1,1,{high}]"
    assert results(f"v_pk_mad_u16 v0, v1, v2, {{}} {modifiers}", arch) == wanted
    first = f"op_sel:[{low},0] op_sel_hi:[{high},1]"
    assert results(f"v_pk_sub_i16 v0, {{}}, v1 {first}", arch) == wanted
    shifted = results(f"v_pk_lshlrev_b16 v0, {{}}, v1 {first}", arch, v={1: 0x00010001})
    assert shifted == [1 << (w & 15) | 1 << (w >> 16 & 15) << 16 for w in wanted]


@pytest.mark.parametrize("select", list(itertools.product((0, 1), repeat=2)))
def test_packed_halves(select):
    low, high = select
    modifiers = f"op_sel:[0,{low}] op_sel_hi:[1,{high}]"
    wanted = [half(word(c, HALF), low) | half(word(c, HALF), high) << 16 for c in CONSTANTS]
    after = results(f"v_pk_mul_f16 v0, v1, {{}} {modifiers}", v={1: 0x3C003C00})
    nan = [np.isnan(as_f16(half(w, h))) for w in wanted for h in (0, 1)]
    got = [half(w, h) for w in after for h in (0, 1)]
    expected = [half(w, h) for w in wanted for h in (0, 1)]
    assert [g for g, n in zip(got, nan, strict=True) if not n] == [
        e for e, n in zip(expected, nan, strict=True) if not n
    ]
    assert all(np.isnan(as_f16(g)) for g, n in zip(got, nan, strict=True) if n)
    negated = value(f"v_pk_mul_f16 v0, v1, 1.0 {modifiers} neg_lo:[0,1] neg_hi:[0,1]", v={1: 0x3C003C00})
    assert negated == value(f"v_pk_mul_f16 v0, v1, 1.0 {modifiers}", v={1: 0x3C003C00}) ^ 0x80008000


def test_packed_single_precision():
    """LLVM takes the lower register of a constant for both results; the emulator refuses the upper one."""
    for c in CONSTANTS:
        text = f"v_pk_add_f32 v[0:1], v[2:3], {c} op_sel_hi:[1,0]"
        if c not in SINGLE:
            continue
        after = execute(text, exec=1)
        assert (after.v(0)[0], after.v(1)[0]) == (SINGLE[c], SINGLE[c])
    with pytest.raises(UnimplementedInstruction, match=r"op_sel_hi on the constant 1\.0"):
        execute("v_pk_add_f32 v[0:1], v[2:3], 1.0")


# -- the plain encodings, op_sel and SDWA ------------------------------------------------------------------------------


def test_16_bit_integers():
    wanted = [word(c, SINGLE) & 0xFFFF for c in CONSTANTS]
    for name in ("v_add_u16_e32 v0, {}, v1", "v_add_u16_e64 v0, v1, {}", "v_max_u16_e32 v0, {}, v1",
                 "v_mad_u16 v0, v1, v2, {}", "v_sub_u16_e64 v0, {}, v1"):  # fmt: skip
        assert results(name) == wanted, name
    upper = [word(c, SINGLE) >> 16 for c in CONSTANTS]
    assert results("v_mad_u16 v0, v1, v2, {} op_sel:[0,0,1,0]") == upper
    assert results("v_bitop3_b16 v0, v1, v2, {} bitop3:0xaa", "gfx950") == wanted


def test_halves():
    wanted = [word(c, HALF) & 0xFFFF for c in CONSTANTS if c in HALF]
    for name in ("v_add_f16_e32 v0, {}, v1", "v_add_f16_e64 v0, v1, {}", "v_fma_f16 v0, v1, v2, {}"):
        assert [value(name.format(c)) for c in HALF] == wanted, name
    assert {value(f"v_add_f16_e64 v0, v1, {c} op_sel:[0,1,0]") for c in HALF} == {0}


def test_integer_sources_that_read_half_precision():
    """v_ldexp_f16 and v_cmp_class_f16 (LLVM issue 58167), v_pack_b32_f16 (its sources are float16 for LLVM)."""
    assert results("v_pack_b32_f16 v0, {}, v1") == [word(c, HALF) & 0xFFFF for c in CONSTANTS]
    assert results("v_pack_b32_f16 v0, v1, {}") == [(word(c, HALF) & 0xFFFF) << 16 for c in CONSTANTS]
    assert value("v_ldexp_f16_e64 v0, v1, 1.0", v={1: 0x3C00}) == 0x7C00  # 2 ** 0x3C00
    assert value("v_ldexp_f16_e64 v0, v1, -1.0", v={1: 0x3C00}) == 0  # 2 ** (0xBC00 - 65536)
    # 0x3800 has bit 11 but not bit 6, positive zero; 0x3118 has bit 8, positive normal.
    for source, constant, classes in ((0x3C00, "0.15915494", 0x3118), (0x3C00, "0.5", 0x3800), (0xFC00, "4", 4)):
        number = {0x3C00: 8, 0xFC00: 2}[source]
        after = execute(f"v_cmp_class_f16_e64 s[0:1], v1, {constant}", v={1: source}, exec=1)
        assert after.s(0)[0] == classes >> number & 1


def test_bfloat16_sources():
    wanted = [(word(c, BFLOAT) & 0xFFFF) << 16 for c in CONSTANTS]
    assert results("v_cvt_f32_bf16_e32 v0, {}", "gfx950") == wanted


@pytest.mark.parametrize(("kind", "floats"), [("f16", HALF), ("bf16", BFLOAT)])
def test_sources_that_are_pairs_of_halves(kind, floats):
    """v_cvt_scalef32_pk_fp8_f16 and its like read a pair: the constant, and 0 above it."""
    for c in FLOATS:
        for text in ("v_cvt_scalef32_pk_fp8_{0} v0, {1}, v2", "v_cvt_scalef32_pk_fp4_{0} v0, {1}, v2",
                     "v_cvt_scalef32_sr_fp8_{0} v0, {1}, v3, v2"):  # fmt: skip
            registers = {1: floats[c], 2: 0x3F800000}
            got = value(text.format(kind, c), arch="gfx950", v=registers)
            assert got == value(text.format(kind, "v1"), arch="gfx950", v=registers), (text, c)


@pytest.mark.parametrize("select", ["DWORD", "WORD_0", "WORD_1", *(f"BYTE_{n}" for n in range(4))])
def test_sdwa(select):
    """A constant in an SDWA form, which LLVM's assembler accepts, is selected from like a register."""
    shift, mask = {"D": (0, 0xFFFF), "W": (16, 0xFFFF), "B": (8, 0xFF)}[select[0]]
    shift *= int(select[-1]) if select != "DWORD" else 0
    modifiers = f"dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:{select} src1_sel:DWORD"
    wanted = [word(c, SINGLE) >> shift & mask for c in CONSTANTS]
    assert results(f"v_add_u16_sdwa v0, {{}}, v1 {modifiers}") == wanted
    assert results(f"v_max_u16_sdwa v0, {{}}, v1 {modifiers}") == wanted
    wanted = [HALF[c] >> shift & mask for c in FLOATS]
    assert [value(f"v_add_f16_sdwa v0, {c}, v1 {modifiers}") for c in FLOATS] == wanted


def test_wider_operands():
    assert results("v_add_u32_e32 v0, {}, v1") == [word(c, SINGLE) for c in CONSTANTS]
    assert results("v_or_b32_e32 v0, {}, v1") == [word(c, SINGLE) for c in CONSTANTS]
    for c in FLOATS[:-1]:
        bits = struct.unpack("<Q", struct.pack("<d", float(c)))[0]
        assert execute(f"v_add_f64 v[0:1], v[2:3], {c}", exec=1).v64(0)[0] == bits
        assert execute(f"v_lshlrev_b64 v[0:1], 0, {c}", exec=1).v64(0)[0] == bits
    assert execute("v_add_f64 v[0:1], v[2:3], 0.15915494309189532", exec=1).v64(0)[0] == 0x3FC45F306DC9C882


@pytest.mark.nightly
@pytest.mark.parametrize(
    "template", ["v_pk_add_u16 v0, v1, {}", "v_mad_u16 v0, v1, v2, {}", "v_add_u32_e32 v0, {}, v1"]
)
def test_every_constant_in_native_code(template, monkeypatch):
    fewer = results(template)
    monkeypatch.setattr(f"{__name__}.EDGES", CONSTANTS[:45])
    assert results(template) == fewer
    monkeypatch.setattr(f"{__name__}.EDGES", CONSTANTS[45:])
    assert results(template) == fewer


# -- as LLVM's assembler encodes them ----------------------------------------------------------------------------------

# The assembler writes a number as an inline constant if the operand then reads that number: so it states the rule.
REGISTERS = {"f64": "v[2:3]", "u64": "v[2:3]", "i64": "v[2:3]"}
CLASSES = ("v_cmp_class_f16", "v_cmpx_class_f16")  # a half on the hardware, see LLVM issue 58167; 32 bits for LLVM
LITERALS = ("v_madmk_f16", "v_madak_f16")  # the assembler takes 32 bits for a negative integer, but not in hexadecimal
CRASHES = ("v_cvt_scalef32_sr_pk_fp4_f32@gfx950",)  # the assembler, on a literal


def instructions(op, base):
    """Yield (source, its type, template) for each source of an op, in an encoding that takes constants there."""
    sources = [(i, kind) for i, kind in enumerate(op.sources) if kind not in build._IMPLICIT and kind[0] not in "@%"]
    results = [kind for kind in op.results if kind not in build._IMPLICIT]
    scalar = op.klass == "salu"
    if {"mask", "imm", "uimm"} & {*(kind for _, kind in sources)}:
        return
    registers = [REGISTERS.get(kind, "v2") for _, kind in sources]
    targets = [
        "s[8:9]" if kind == "mask" else REGISTERS.get(kind, "v2").replace("2", "6").replace("3", "7")
        for kind in results
    ]
    if scalar:
        registers, targets = ([text.replace("v", "s") for text in texts] for texts in (registers, targets))
    for at, (i, kind) in enumerate(sources):
        texts = [*targets, *registers]
        texts[len(targets) + at] = "{}"
        high = ",".join("0" if n == at else "1" for n in range(len(sources)))
        ending = f" op_sel_hi:[{high}]" if op.packed and kind == "f32" else ""
        for suffix in ("",) if scalar or op.packed else ("_e64", "", "_e32"):
            yield i, kind, f"{base}{suffix} {', '.join(texts)}{ending}"


def double(constant):
    return struct.unpack("<Q", struct.pack("<d", float(constant)))[0]


def disagreements(read, names):
    """Return the sources that ``read`` (op, source, type, constant) reads as other bits than LLVM, and two counts."""
    wrong, agree, open_ = [], 0, set()
    for name in names:
        op, (base, _, arch) = TABLE[name], name.partition("@")
        done = set()
        for i, kind, template in instructions(op, base):
            arch = arch or "gfx942"
            if i in done or kind not in DTYPES or encoding(template.format("0.5"), arch) is None:
                continue
            done.add(i)
            for c in ("0.5", "-4.0", "0.15915494", "-16"):
                wanted = encoding(template.format(c), arch)
                if DTYPES[kind].itemsize == 8 and c == "0.15915494":
                    continue  # LLVM writes it with more digits: see test_wider_operands
                words = (
                    [SINGLE[c], HALF[c], BFLOAT[c], double(c)]
                    if c in SINGLE
                    else [-16 % 2**b for b in (16, 32, 64)[: 3 if DTYPES[kind].itemsize == 8 else 2]]
                )
                ruled = [word for word in words if encoding(template.format(hex(word)), arch) == wanted]
                if not ruled:
                    open_.add(kind)
                elif read(op, i, kind, c) & (0xFFFF if min(ruled) < 1 << 16 else -1) in ruled:
                    agree += 1
                else:
                    wrong.append((name, i, c))
    return wrong, agree, open_


def as_executed(op, i, kind, constant):
    operand, forms = operands.parse(constant), op.constants.split()
    if i < len(forms) and forms[i] != "-":
        operand = operands.with_format(operand, forms[i])
    if DTYPES[kind].itemsize == 8:
        return int(operands.constant(operand, kind).view("u8"))
    return operands.constant_word(operand, kind)


def as_half(op, i, kind, constant):
    """The planted fault: what packed 16-bit integers read before they followed LLVM's rule."""
    return (
        HALF[constant]
        if op.packed and kind in ("u16", "i16") and constant in HALF
        else as_executed(op, i, kind, constant)
    )


@pytest.mark.skipif(not available(), reason="this Triton has no assembler that Python can call")
def test_all_sources_read_what_llvm_encodes():
    """Each source of each opcode; 16-bit integers that are not packed have no rule here, nor have SDWA forms."""
    names = [
        name
        for name, op in TABLE.items()
        if isinstance(op, Op) and not op.mixed and name not in (*CLASSES, *CRASHES, *LITERALS)
    ]
    wrong, agree, undecided = disagreements(as_executed, names)
    assert not wrong
    assert agree > 3000 and undecided <= {"u16", "i16"}
    planted, _, _ = disagreements(
        as_half, [name for name in names if name.startswith("v_pk_") and name[-3:] in ("u16", "i16")]
    )
    assert {name for name, _, _ in planted} >= {"v_pk_add_u16", "v_pk_mad_i16", "v_pk_max_i16"}


def test_mixed_precision_has_no_rule():
    with pytest.raises(UnimplementedInstruction, match=r"inline constant 1\.0 as a float32"):
        execute("v_fma_mix_f32 v0, v1, v2, 1.0 op_sel_hi:[1,1,0]", exec=1)
    assert (
        execute("v_fma_mix_f32 v0, v1, 1.0, v2 op_sel_hi:[1,1,0]", exec=1, v={1: HALF["0.5"]}).v(0)[0] == SINGLE["0.5"]
    )


# -- as LLVM folds constants -------------------------------------------------------------------------------------------

SPLATS = (*range(-17, 66), *(w - (w >> 15 << 16) for floats in (BFLOAT, HALF) for w in floats.values()), -1661)


@triton.jit
def integers(x, y, C: tl.constexpr, COUNT: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    for n in tl.static_range(COUNT):
        c = tl.full((N,), C[n], tl.int16)
        base = y + n * 7 * N + i
        tl.store(base, a + c)
        tl.store(base + N, c - a)
        tl.store(base + 2 * N, a * c)
        tl.store(base + 3 * N, tl.minimum(a, c))
        tl.store(base + 4 * N, tl.maximum(a.to(tl.uint16), c.to(tl.uint16)).to(tl.int16))
        tl.store(base + 5 * N, a * a + c)
        tl.store(base + 6 * N, tl.where(a < c, c, a ^ c))


@triton.jit
def halves(x, y, C: tl.constexpr, COUNT: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i)
    for n in tl.static_range(COUNT):
        c = tl.full((N,), C[n], x.dtype.element_ty)
        tl.store(y + n * 3 * N + i, a + c)
        tl.store(y + n * 3 * N + N + i, a * c)
        tl.store(y + n * 3 * N + 2 * N + i, tl.maximum(a, c))


@pytest.fixture(params=["gfx942", "gfx950"])
def device(request):
    yield emulator.activate(request.param)
    emulator.deactivate()


def test_integer_kernels(device):
    """``x op C`` for every C that LLVM may write as an inline constant: packed operations among them."""
    x = torch.arange(-64, 64, dtype=torch.int16) * 509
    a = x.numpy()
    packed = 0
    for start in range(0, len(SPLATS), 26):
        some = SPLATS[start : start + 26]
        y = torch.zeros((len(some), 7, len(x)), dtype=torch.int16)
        text = integers[(1,)](x, y, some, len(some), len(x), num_warps=1).asm["amdgcn"]
        packed += sum("v_pk_" in line and any(f", {f}" in line for f in FLOATS) for line in text.splitlines())
        for n, number in enumerate(some):
            c = np.int16(number)
            unsigned = np.maximum(a.view(np.uint16), c.view(np.uint16)).view(np.int16)
            wanted = (a + c, c - a, a * c, np.minimum(a, c), unsigned, a * a + c, np.where(a < c, c, a ^ c))
            for result, expected in zip(y[n].numpy(), wanted, strict=True):
                np.testing.assert_array_equal(result, expected, err_msg=f"constant {number:#x}")
    assert packed >= 8, "LLVM wrote no packed operation with an inline float"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_kernels(device, dtype):
    some = tuple(float(f) for f in FLOATS[:-1]) + tuple(float(n) for n in (3, 64, -16))
    x = torch.linspace(-3, 3, 128).to(dtype)
    y = torch.zeros((len(some), 3, len(x)), dtype=dtype)
    halves[(1,)](x, y, some, len(some), len(x), num_warps=1)
    for n, c in enumerate(some):
        for result, expected in zip(y[n], (x + c, x * c, torch.clamp(x, min=c)), strict=True):
            assert torch.equal(result, expected), c
