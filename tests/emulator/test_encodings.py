"""Features of the encodings: input and output modifiers, op_sel, SDWA, DPP, constants of each operand type."""

import random
import re
import struct

import pytest

from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.program import decode
from tests.emulator.ieee import F16, F32, add, mul
from tests.emulator.single import ALL, execute, listing

LANES = list(range(64))
WORDS = [random.Random(0).getrandbits(32) for _ in range(64)]


def f32(value: float) -> int:
    return struct.unpack("<I", struct.pack("<f", value))[0]


def f64(value: float) -> int:
    return struct.unpack("<Q", struct.pack("<d", value))[0]


# -- input and output modifiers ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("-v1", -1.5), ("|v2|", 2.5), ("-|v2|", -2.5), ("-v2", 2.5), ("abs(v2)", 2.5), ("neg(v1)", -1.5)],
)
def test_neg_and_abs(text, wanted):
    result = execute(f"v_add_f32_e64 v0, {text}, 0", v={1: f32(1.5), 2: f32(-2.5)})
    assert result.v(0) == [f32(wanted)] * 64
    wide = execute(
        f"v_add_f64 v[0:1], {text.replace('v1', 'v[2:3]').replace('v2', 'v[4:5]')}, 0",
        v={3: f64(1.5) >> 32, 5: f64(-2.5) >> 32},
    )
    assert wide.v64(0) == [f64(wanted)] * 64


def test_neg_works_on_the_sign_bit_of_a_nan_and_of_zero():
    assert execute("v_max_f32_e64 v0, -v1, -v1", v={1: 0x7FC00001}).v(0)[0] == 0xFFC00001
    assert execute("v_mul_f32_e64 v0, -v1, 1.0", v={1: 0}).v(0)[0] == 0x80000000


@pytest.mark.parametrize(("modifier", "scale"), [("mul:2", 2.0), ("mul:4", 4.0), ("div:2", 0.5)])
def test_output_scale_then_clamp(modifier, scale):
    """The scale applies only if denormal results are flushed and MODE.IEEE is clear."""
    inputs = [0.1, -3.0, 0.3, 100.0]
    v = {1: [f32(x) for x in inputs] * 16}
    flush, loose = (f"s_setreg_imm32_b32 hwreg(HW_REG_MODE, {field}), 0" for field in ("4, 2", "9, 1"))
    plain = [f32(x) for x in inputs]
    scaled = [f32(struct.unpack("<f", struct.pack("<f", x))[0] * scale) for x in inputs]
    for modes, wanted in (((), plain), ((flush,), plain), ((loose,), plain), ((flush, loose), scaled)):
        assert execute(*modes, f"v_add_f32_e64 v0, v1, 0 {modifier}", v=v).v(0)[:4] == wanted
    clamped = execute(flush, loose, f"v_add_f32_e64 v0, v1, 0 {modifier} clamp", v=v)
    assert clamped.v(0)[1:4:2] == [0, f32(1.0)]


@pytest.mark.parametrize(
    ("word", "wanted"),
    [(0x7FC00000, 0), (f32(2.0), f32(1.0)), (f32(-1.0), 0), (f32(0.25), f32(0.25)), (0x7F800000, f32(1.0))],
)
def test_clamp_limits_to_the_unit_interval_and_takes_nan_for_zero(word, wanted):
    assert execute("v_max_f32_e64 v0, v1, v1 clamp", v={1: word}).v(0)[0] == wanted


@pytest.mark.parametrize(
    ("text", "a", "b", "wanted"),
    [
        ("v_add_u32_e64", 0xFFFFFFFF, 2, 0xFFFFFFFF),
        ("v_sub_u32_e64", 1, 2, 0),
        ("v_add_i32", 0x7FFFFFFF, 1, 0x7FFFFFFF),
        ("v_sub_i32", 0x80000000, 1, 0x80000000),
        ("v_add_u16_e64", 0xFFFF, 1, 0xFFFF),
        ("v_add_i16", 0x7FFF, 1, 0x7FFF),
        ("v_add_u32_e64", 5, 2, 7),
        ("v_subrev_u32_e64", 2, 1, 0),
    ],
)
def test_integer_clamp_saturates(text, a, b, wanted):
    assert execute(f"{text} v0, v1, v2 clamp", v={1: a, 2: b}).v(0)[0] == wanted


def test_an_output_modifier_that_the_op_lacks_is_refused():
    with pytest.raises(UnimplementedInstruction, match="v_and_b32"):
        execute("v_and_b32_e64 v0, v1, v2 clamp")


@pytest.mark.parametrize("select", range(16))
def test_op_sel_picks_halves_and_the_half_written(select):
    bits = [select >> i & 1 for i in range(4)]
    result = execute(
        f"v_mad_u16 v0, v1, v2, v3 op_sel:[{','.join(map(str, bits))}]",
        v={0: 0xAAAABBBB, 1: 0x00070003, 2: 0x000B0005, 3: 0x00110013},
    )
    total = (7 if bits[0] else 3) * (11 if bits[1] else 5) + (0x11 if bits[2] else 0x13)
    assert result.v(0)[0] == (total << 16 | 0xBBBB if bits[3] else 0xAAAA0000 | total)


def test_a_16_bit_result_clears_the_upper_half_unless_op_sel_puts_it_there():
    v = {0: 0xAAAABBBB, 1: 0x00010002, 2: 0x00030004}
    assert execute("v_add_u16_e32 v0, v1, v2", v=v).v(0)[0] == 6
    assert execute("v_add_i16 v0, v1, v2 op_sel:[0,0,1]", v=v).v(0)[0] == 0x0006BBBB
    assert execute("v_fma_f16 v0, v1, v2, v2", v=v).v(0)[0] >> 16 == 0xAAAA


# -- constants ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("v_mov_b32_e32 v0, -16", 0xFFFFFFF0),
        ("v_mov_b32_e32 v0, 64", 64),
        ("v_mov_b32_e32 v0, 1.0", 0x3F800000),
        ("v_mov_b32_e32 v0, 0x80000001", 0x80000001),
        ("v_mov_b32_e32 v0, 0.15915494", 0x3E22F983),
        ("v_add_f16_e32 v0, 1.0, v1", 0x3C00),
        ("v_add_f16_e32 v0, 0x4000, v1", 0x4000),
        ("v_bfrev_b32_e32 v0, 1", 0x80000000),
        ("v_cvt_f32_i32_e32 v0, -1", 0xBF800000),
        ("v_cvt_f32_u32_e32 v0, -1", 0x4F800000),
        ("v_bfrev_b32_e32 v0, 0.5", 0xFC),
        ("v_add_f32_e32 v0, 1, v1", 1),
    ],
)
def test_constants_of_32_and_16_bits(text, wanted):
    assert execute(text).v(0) == [wanted] * 64


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("v_mov_b64_e32 v[0:1], -1", ALL),
        ("v_mov_b64_e32 v[0:1], 1.0", f64(1.0)),
        ("v_add_f64 v[0:1], v[2:3], 0.5", f64(0.5)),
        ("v_add_f64 v[0:1], v[2:3], 0x40080000", f64(3.0)),
        ("v_lshl_add_u64 v[0:1], v[2:3], 0, -4", ALL - 3),
        ("v_ashrrev_i64 v[0:1], 4, -16", ALL),
        ("v_mul_f64 v[0:1], 4.0, 0.5", f64(2.0)),
    ],
)
def test_constants_of_64_bits(text, wanted):
    assert execute(text).v64(0) == [wanted] * 64


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("s_mov_b64 s[0:1], -1", ALL),
        ("s_mov_b64 s[0:1], 0x80000000", 0x80000000),
        ("s_ashr_i64 s[0:1], 0x80000000, 4", 0xFFFFFFFFF8000000),
        ("s_and_b64 s[0:1], exec, 0xff", 0xFF),
    ],
)
def test_scalar_constants(text, wanted):
    assert execute(text).s64(0) == [wanted]


def test_a_scalar_source_is_the_same_for_all_lanes_of_its_wavefront():
    assert execute("v_add_u32_e32 v0, s3, v1", v={1: LANES * 2}, s={3: [100, 200]}, waves=2).v(0) == [
        *range(100, 164),
        *range(200, 264),
    ]
    assert execute("v_cmp_gt_i32_e64 s[4:5], s3, 5", s={3: [4, 6]}, waves=2).s64(4) == [0, ALL]
    assert execute("v_cndmask_b32_e64 v0, 0, -1, s[4:5]", s={4: 5, 5: 1}).v(0) == [
        0xFFFFFFFF if n in (0, 2, 32) else 0 for n in LANES
    ]


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 63])
def test_constant_and_register_shift_counts_agree(count):
    v = {1: WORDS, 2: WORDS[::-1], 4: count}
    for name, register in (
        ("v_lshlrev_b32_e32", "v0"),
        ("v_lshrrev_b32_e32", "v0"),
        ("v_ashrrev_i32_e32", "v0"),
        ("v_lshlrev_b64", "v[0:1]"),
    ):
        source = "v[2:3]" if register != "v0" else "v1"
        one, other = (execute(f"{name} {register}, {n}, {source}", v=v) for n in (count, "v4"))
        assert one.v64(0) == other.v64(0)
    for name in ("v_lshl_add_u32", "v_lshl_or_b32"):
        assert execute(f"{name} v0, v1, {count}, v2", v=v).v(0) == execute(f"{name} v0, v1, v4, v2", v=v).v(0)
    assert execute(f"v_add_lshl_u32 v0, v1, v2, {count}", v=v).v(0) == execute("v_add_lshl_u32 v0, v1, v2, v4", v=v).v(
        0
    )


@pytest.mark.parametrize("destination", [0, 1, 2])
@pytest.mark.parametrize("exec_mask", [ALL, 0x0F0F3C3C12345678])
def test_selection_into_its_own_source(destination, exec_mask):
    """v_cndmask copies in place: either source, or neither, may be the destination."""
    v = {0: 5, 1: WORDS, 2: WORDS[::-1]}
    picked = 0x123456789ABCDEF0
    result = execute(
        f"v_cndmask_b32_e64 v{destination}, v1, v2, s[4:5]",
        v=v,
        s={4: picked & 0xFFFFFFFF, 5: picked >> 32},
        exec=exec_mask,
    )
    before = ([5] * 64, WORDS, WORDS[::-1])[destination]
    wanted = [(WORDS[63 - n] if picked >> n & 1 else WORDS[n]) if exec_mask >> n & 1 else before[n] for n in LANES]
    assert result.v(destination) == wanted


# -- SDWA --------------------------------------------------------------------------------------------------------------

SELECTS = {
    "DWORD": (0, 32),
    "WORD_0": (0, 16),
    "WORD_1": (16, 16),
    "BYTE_0": (0, 8),
    "BYTE_1": (8, 8),
    "BYTE_2": (16, 8),
    "BYTE_3": (24, 8),
}


def pick(word, select, sext=False):
    shift, bits = SELECTS[select]
    value = word >> shift & (1 << bits) - 1
    return value | (0xFFFFFFFF << bits & 0xFFFFFFFF if sext and value >> (bits - 1) else 0)


@pytest.mark.parametrize("sext", [False, True])
@pytest.mark.parametrize("select", SELECTS)
def test_sdwa_sources(select, sext):
    source = "sext(v1)" if sext else "v1"
    text = f"v_add_u32_sdwa v0, {source}, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:{select} src1_sel:WORD_1"
    result = execute(text, v={1: WORDS, 2: WORDS[::-1]})
    assert result.v(0) == [(pick(w, select, sext) + (WORDS[63 - n] >> 16)) & 0xFFFFFFFF for n, w in enumerate(WORDS)]


@pytest.mark.parametrize("unused", ["UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE"])
@pytest.mark.parametrize("select", SELECTS)
def test_sdwa_destination(select, unused):
    text = f"v_or_b32_sdwa v0, v1, v2 dst_sel:{select} dst_unused:{unused} src0_sel:DWORD src1_sel:DWORD"
    exec_mask, old = 0xFFFF0000FFFF1234, 0x12345678
    result = execute(text, v={0: old, 1: WORDS, 2: 0}, exec=exec_mask)
    shift, bits = SELECTS[select]
    for n, word in enumerate(WORDS):
        field = (1 << bits) - 1
        wanted = (word & field) << shift
        if unused == "UNUSED_PRESERVE":
            wanted |= old & ~(field << shift)
        elif unused == "UNUSED_SEXT" and word >> (bits - 1) & 1:
            wanted |= 0xFFFFFFFF << (shift + bits) & 0xFFFFFFFF
        assert result.v(0)[n] == (wanted if exec_mask >> n & 1 else old)


def test_sdwa_on_16_bit_floats_and_comparisons():
    a, b = [random.Random(1).getrandbits(32) for _ in LANES], [random.Random(2).getrandbits(32) for _ in LANES]
    text = "v_add_f16_sdwa v0, v1, -v2 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:WORD_1 src1_sel:WORD_0"
    for x, y, got in zip(a, b, execute(text, v={0: 0xABCD, 1: a, 2: b}).v(0), strict=True):
        wanted = add(F16, x >> 16, y & 0xFFFF ^ 0x8000)
        assert got & 0xFFFF == 0xABCD
        assert got >> 16 == wanted or (F16.is_nan(got >> 16) and F16.is_nan(wanted))
    got = execute(
        "v_cmp_gt_u32_sdwa s[4:5], v1, v2 src0_sel:BYTE_1 src1_sel:BYTE_3", v={1: a, 2: b}, exec=0xFFFFFFFF
    ).s64(4)[0]
    assert got == sum((x >> 8 & 255 > y >> 24) << n for n, (x, y) in enumerate(zip(a, b, strict=True)) if n < 32)


def test_sdwa_clamp():
    text = "v_add_f32_sdwa v0, v1, v2 clamp dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:DWORD src1_sel:DWORD"
    assert execute(text, v={1: f32(3.0), 2: f32(1.0)}).v(0)[0] == f32(1.0)


# -- DPP ---------------------------------------------------------------------------------------------------------------


def source_lane(control, lane):
    """Return the lane that a DPP control reads, or None; written lane by lane from the manual."""
    name, _, text = control.partition(":")
    n, row, column = int(text) if text.isdigit() else 0, lane // 16 * 16, lane % 16
    if name == "quad_perm":
        return lane - lane % 4 + [int(c) for c in text.strip("[]").split(",")][lane % 4]
    if name == "row_shl":
        return lane + n if column + n < 16 else None
    if name == "row_shr":
        return lane - n if column - n >= 0 else None
    if name == "row_ror":
        return row + (column - n) % 16
    if name == "wave_shl":
        return lane + 1 if lane < 63 else None
    if name == "wave_shr":
        return lane - 1 if lane else None
    if name == "wave_rol":
        return (lane + 1) % 64
    if name == "wave_ror":
        return (lane - 1) % 64
    if name == "row_mirror":
        return row + 15 - column
    if name == "row_half_mirror":
        return lane // 8 * 8 + 7 - lane % 8
    if name == "row_newbcast":
        return row + n
    if control == "row_bcast:15":
        return row - 1 if row else None
    assert control == "row_bcast:31"
    return 31 if lane >= 32 else None


CONTROLS = [
    "quad_perm:[3,0,2,1]",
    "row_shl:1",
    "row_shl:15",
    "row_shr:1",
    "row_shr:8",
    "row_ror:3",
    "wave_shl:1",
    "wave_shr:1",
    "wave_rol:1",
    "wave_ror:1",
    "row_mirror",
    "row_half_mirror",
    "row_bcast:15",
    "row_bcast:31",
    "row_newbcast:5",
]


@pytest.mark.parametrize("exec_mask", [ALL, 0xF0F0_1234_8001_7FFF])
@pytest.mark.parametrize("masks", [(0xF, 0xF), (0xA, 0xF), (0xF, 0xC), (0x3, 0x5)])
@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("destination", ["v0", "v1"], ids=["apart", "aliased"])
def test_dpp(control, bound, masks, exec_mask, destination):
    """Masked rows and banks keep their value; a missing or inactive source gives 0 with bound_ctrl, else no write."""
    rows, banks = masks
    text = f"v_add_u32_dpp {destination}, v1, v2 {control} row_mask:{rows:#x} bank_mask:{banks:#x}" + (
        " bound_ctrl:1" if bound else ""
    )
    result = execute(text, v={0: 0xDEAD, 1: WORDS, 2: LANES}, exec=exec_mask).v(int(destination[1]))
    for lane in LANES:
        old = 0xDEAD if destination == "v0" else WORDS[lane]
        source = source_lane(control, lane)
        if source is not None and not exec_mask >> source & 1:
            source = None
        enabled = exec_mask >> lane & 1 and rows >> lane // 16 & 1 and banks >> lane % 16 // 4 & 1
        if not enabled or (source is None and not bound):
            wanted = old
        else:
            wanted = ((WORDS[source] if source is not None else 0) + lane) & 0xFFFFFFFF
        assert result[lane] == wanted, f"{text}: lane {lane}"


def test_dpp_input_modifiers_and_three_operands():
    text = "v_fmac_f32_dpp v0, -v1, |v2| row_shr:1 row_mask:0xf bank_mask:0xf"
    v = {0: f32(1.0), 1: [f32(float(n)) for n in LANES], 2: f32(-2.0)}
    wanted = [f32(1.0) if n % 16 == 0 else add(F32, f32(1.0), mul(F32, f32(-float(n - 1)), f32(2.0))) for n in LANES]
    assert execute(text, v=v).v(0) == wanted


def test_dpp_on_64_bits():
    result = execute("v_mov_b64_dpp v[0:1], v[2:3] row_newbcast:2 row_mask:0xf bank_mask:0xf", v={2: WORDS, 3: LANES})
    assert result.v64(0) == [WORDS[n // 16 * 16 + 2] | (n // 16 * 16 + 2) << 32 for n in LANES]


def test_dpp_refuses_what_it_does_not_know():
    with pytest.raises(UnimplementedInstruction, match="fi"):
        execute("v_mov_b32_dpp v0, v1 quad_perm:[0,1,2,3] row_mask:0xf bank_mask:0xf fi:1")


def test_an_instruction_is_built_where_it_is_executed_and_checked_before(monkeypatch):
    """Of ten multiplications in ten registers one is built, in the lowest ones, to know that they can be."""
    built = []

    def build(op, encoding, instruction, *context):
        built.append(instruction.operands)
        return build_before(op, encoding, instruction, *context)

    build_before = decode.build
    monkeypatch.setattr(decode, "build", build)
    decode._alu.cache_clear()
    decode._check_alu.cache_clear()
    lines = [
        f"v_mul_f64 v[{2 * n}:{2 * n + 1}], |v[{2 * n + 2}:{2 * n + 3}]|, s[{n * 2}:{n * 2 + 1}]" for n in range(10)
    ]
    program = decode.decode(listing(*lines, "s_endpgm"))
    assert built == [("v[0:1]", "|v[0:1]|", "s[0:1]")]
    assert len(program.segments[0].steps) == 10


@pytest.mark.parametrize("wrong", ["v[5:6]", "v6", "-v[4:5]"])
def test_a_form_that_cannot_be_built_is_refused_in_any_registers(wrong):
    with pytest.raises(UnimplementedInstruction, match=re.escape(repr(wrong))):
        decode.decode(listing(f"v_mul_f64 {wrong}, v[8:9], v[10:11]", "s_endpgm"))
