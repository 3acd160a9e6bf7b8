"""VOP3P: packed halves and pairs, op_sel, op_sel_hi, neg_lo, neg_hi, and the mixed-precision fma."""

import itertools
import random

import pytest

from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.operations import TABLE
from tests.emulator import edges, semantics_float, semantics_vector  # noqa: F401 - they fill SEMANTICS
from tests.emulator.covering import covers
from tests.emulator.ieee import F16, F32, FORMATS, convert, fma
from tests.emulator.semantics import BITS, SEMANTICS
from tests.emulator.single import execute

# Ops of one arch, and the op that reads its destination, have tests of their own.
PACKED = sorted(n for n, op in TABLE.items() if getattr(op, "packed", False) and "@" not in n and "fmac" not in n)
# The same operation on one value; packed shifts and products are named like the plain ones.
PLAIN = {name: name.replace("v_pk_", "v_") for name in PACKED}
MASK = 0x00FF_F0F0_1234_8001


def same(kind, got, wanted):
    f = FORMATS.get(kind)
    return got == wanted or (f is not None and f.is_nan(got) and f.is_nan(wanted))


def flipped(kind, word, flip):
    return word ^ 1 << (BITS[kind] - 1) if flip else word


@pytest.mark.parametrize("name", PACKED)
@covers(*PACKED)
def test_packed(name):
    semantics = SEMANTICS[PLAIN[name]]
    (kind,), kinds, bits = semantics.results, semantics.sources, BITS[semantics.results[0]]
    cases = edges.combinations(list(kinds), name, limit=128)[:128]
    cases += cases[: 128 - len(cases)]
    highs = cases[::-1]
    some = random.Random(name)
    floats = kind in FORMATS
    for _ in range(6):
        low_half, high_half = ([some.getrandbits(1) for _ in kinds] for _ in "lh")
        neg_lo, neg_hi = ([some.getrandbits(1) if floats else 0 for _ in kinds] for _ in "lh")
        v = {0: 7, 1: 7}
        for i in range(len(kinds)):
            low, high = [c[i] for c in cases], [c[i] for c in highs]
            if bits == 16:
                v[2 + 2 * i] = [a | b << 16 for a, b in zip(low, high, strict=True)]
            else:
                v[2 + 2 * i], v[3 + 2 * i] = low, high
        pair = (lambda r: f"v{r}") if bits == 16 else (lambda r: f"v[{r}:{r + 1}]")
        text = f"{name} {', '.join(pair(2 * i) for i in range(len(kinds) + 1))} op_sel:{low_half} op_sel_hi:{high_half}"
        if floats:
            text += f" neg_lo:{neg_lo} neg_hi:{neg_hi}"
        result = execute(text.replace(", ", ",").replace(",v", ", v"), v=v, exec=MASK, waves=2)
        for lane in range(128):
            halves = cases[lane], highs[lane]
            for which, (pick, negate) in enumerate(((low_half, neg_lo), (high_half, neg_hi))):
                sources = [flipped(kind, halves[pick[i]][i], negate[i]) for i in range(len(kinds))]
                got = result.v(0)[lane] >> 16 * which & 0xFFFF if bits == 16 else result.v(which)[lane]
                if not MASK >> lane % 64 & 1:
                    assert got == (7 >> 16 * which if bits == 16 else 7)
                else:
                    wanted = semantics.function(*sources)
                    assert same(kind, got, wanted), f"{text}: {list(map(hex, sources))} gave {got:#x}, not {wanted:#x}"


@covers("v_pk_fmac_f16")
def test_packed_fmac_adds_to_its_destination():
    cases = edges.combinations(["f16"] * 3, "v_pk_fmac_f16", limit=128)[:128]
    cases += cases[: 128 - len(cases)]
    columns = [[c[i] | d[i] << 16 for c, d in zip(cases, cases[::-1], strict=True)] for i in range(3)]
    v = {0: columns[2], 1: columns[0], 2: columns[1]}
    result = execute("v_pk_fmac_f16 v0, v1, v2", v=v, exec=MASK, waves=2).v(0)
    for lane, (low, high) in enumerate(zip(cases, cases[::-1], strict=True)):
        if not MASK >> lane % 64 & 1:
            assert result[lane] == columns[2][lane]
            continue
        for got, (a, b, c) in ((result[lane] & 0xFFFF, low), (result[lane] >> 16, high)):
            assert same("f16", got, fma(F16, a, b, c)), (hex(a), hex(b), hex(c), hex(got))


def test_packed_constants():
    """An inline constant is in the low half; its upper half is the sign extension, or 0 for a float."""
    assert execute("v_pk_add_u16 v0, v1, -1", v={1: 0x00050005}).v(0)[0] == 0x00040004
    assert execute("v_pk_add_u16 v0, v1, 3", v={1: 0x00050005}).v(0)[0] == 0x00050008
    assert execute("v_pk_add_u16 v0, v1, 3 op_sel_hi:[1,0]", v={1: 0x00050005}).v(0)[0] == 0x00080008
    assert execute("v_pk_add_f16 v0, v1, 1.0 op_sel_hi:[1,0]", v={1: 0x3C003C00}).v(0)[0] == 0x40004000
    assert execute("v_pk_add_f16 v0, v1, 1.0", v={1: 0x3C003C00}).v(0)[0] == 0x3C004000


def test_packed_saturation():
    assert execute("v_pk_add_u16 v0, v1, v2 clamp", v={1: 0xFFFF0001, 2: 0x00020002}).v(0)[0] == 0xFFFF0003
    assert execute("v_pk_sub_i16 v0, v1, v2 clamp", v={1: 0x80000001, 2: 0x00010002}).v(0)[0] == 0x8000FFFF
    assert execute("v_pk_add_f16 v0, v1, v2 clamp", v={1: 0x4000BC00, 2: 0}).v(0)[0] == 0x3C000000


def test_source_and_destination_may_overlap():
    assert (
        execute("v_pk_add_f32 v[0:1], v[0:1], v[0:1] op_sel:[1,1] op_sel_hi:[0,0]", v={0: 0x3F800000, 1: 0x40000000}).v(
            0
        )[0]
        == 0x40800000
    )


@covers("v_pk_mov_b32")
@pytest.mark.parametrize("op_sel", list(itertools.product((0, 1), repeat=2)))
def test_pk_mov(op_sel):
    text = f"v_pk_mov_b32 v[0:1], v[2:3], v[4:5] op_sel:[{op_sel[0]},{op_sel[1]}]"
    result = execute(text, v={2: 20, 3: 21, 4: 40, 5: 41}, exec=MASK)
    for lane in range(64):
        active = MASK >> lane & 1
        assert result.v(0)[lane] == (20 + op_sel[0] if active else 0)
        assert result.v(1)[lane] == (40 + op_sel[1] if active else 0)
    assert execute("v_pk_mov_b32 v[0:1], v[0:1], v[0:1] op_sel:[1,0]", v={0: 1, 1: 2}).v64(0)[0] == 1 << 32 | 2


@covers("v_fma_mix_f32 v_fma_mixlo_f16 v_fma_mixhi_f16")
@pytest.mark.parametrize("name", ["v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16"])
def test_mixed_fma(name):
    """op_sel_hi makes a source a float16, op_sel selects its half; the result is rounded once."""
    cases = edges.combinations(["f32", "f32", "f32"], name, limit=448)[:448]
    into = F32 if name.endswith("f32") else F16
    for narrow, high in ((0, 0), (0b111, 0b101), (0b010, 0b010), (0b101, 0b001)):
        bits = [[str(n >> i & 1) for i in range(3)] for n in (high, narrow)]
        text = f"{name} v0, v2, -v4, |v6| op_sel:[{','.join(bits[0])}] op_sel_hi:[{','.join(bits[1])}]"
        waves = len(cases) // 64
        v = {2 + 2 * i: [c[i] for c in cases] for i in range(3)}
        result = execute(text, v={0: 0xABCD1234, **v}, waves=waves)
        for case, after in zip(cases, result.v(0), strict=True):
            sources = []
            for i, word in enumerate(case):
                if narrow >> i & 1:
                    word = convert(F16, F32, word >> (16 if high >> i & 1 else 0) & 0xFFFF)
                sources.append(word)
            sources[1] ^= F32.sign
            sources[2] &= ~F32.sign
            wanted = fma(F32, *sources, into=into)
            got = after if into is F32 else after & 0xFFFF if name.endswith("lo_f16") else after >> 16
            assert same("f32" if into is F32 else "f16", got, wanted), (
                f"{text} {list(map(hex, case))}: {got:#x}, not {wanted:#x}"
            )
            if into is F16:
                assert (after >> 16 if name.endswith("lo_f16") else after & 0xFFFF) == (
                    0xABCD if name.endswith("lo_f16") else 0x1234
                )


def test_an_unknown_modifier_is_refused():
    with pytest.raises(UnimplementedInstruction, match="bound_ctrl"):
        execute("v_pk_add_f16 v0, v1, v2 bound_ctrl:1")
