"""Propagation of undefined bits: no rule may miss a bit that can change; exact rules flag no bit that cannot."""

from __future__ import annotations

import random

import numpy as np
import pytest

from harness.emulator.faults import UndefinedValue
from harness.emulator.operations.table import TABLE, Op
from harness.emulator.wavefront.state import DTYPES, EXEC, VCC
from tests.emulator.watch.checking import ALL, Probe, vector

OPS = {name: entry for name, entry in TABLE.items() if isinstance(entry, Op)}
_RESULT_V, _RESULT_S = 40, 60
_FILLINGS = 6


def line_of(op: Op) -> tuple[str, str]:
    """Return an instruction with registers for all operands, and its arch: sources from v2 or s2, results v40, s60."""
    name, _, arch = op.name.partition("@")
    texts, modifiers, at_v, at_s = [], [], _RESULT_V, _RESULT_S
    scalar = op.klass == "salu"
    for i, kind in enumerate((*op.results, *op.sources)):
        if i == len(op.results):
            at_v = at_s = 2
        if kind in ("scc", "exec", "vcc", "mode") or kind[0] == "@":
            continue
        if kind[0] == "%":
            modifiers.append(f" {kind[1:]}:0x6c")
            continue
        if kind in ("imm", "uimm"):
            texts.append("0x123")
        elif kind == "mask" or (scalar and DTYPES[kind].itemsize == 8):
            texts.append(f"s[{at_s}:{at_s + 1}]")
            at_s += 2
        elif scalar:
            texts.append(f"s{at_s}")
            at_s += 2
        else:
            pair = DTYPES[kind].itemsize == 8 or (op.packed and DTYPES[kind].itemsize == 4)
            texts.append(f"v[{at_v}:{at_v + 1}]" if pair else f"v{at_v}")
            at_v += 2
    return f"{name} {', '.join(texts)}{''.join(modifiers)}", arch or "gfx942"


def fill(op: Op, chance: random.Random) -> Probe:
    """Return a probe of the op with random values, a few bits of them undefined."""
    line, arch = line_of(op)
    probe = Probe(line, arch=arch)
    rng = np.random.default_rng(chance.randrange(2**32))
    special = np.array([0, 1, 31, 0x3F800000, 0x7F800000, 0xFFFFFFFF, 0x80000000], np.uint32)
    for values in (probe.v, probe.s):
        values[...] = rng.integers(0, 2**32, values.shape, np.uint32)
        picks = rng.random(values.shape) < 0.3
        values[picks] = rng.choice(special, int(picks.sum()))
    for masks in (probe.undefined_v, probe.undefined_s):
        masks[...] = rng.integers(0, 2**32, masks.shape, np.uint32)
        for _ in range(3):
            masks &= rng.integers(0, 2**32, masks.shape, np.uint32)
        masks[rng.random(masks.shape) < 0.4] = 0
    probe.undefined_s[EXEC : EXEC + 2] = 0
    probe.undefined_scc = bool(rng.random() < 0.3)
    return probe


def changed(probe: Probe, op: Op, chance: random.Random) -> tuple[dict, dict]:
    """Return by result the flagged bits, and the bits that differ between fillings of the undefined bits."""
    rng = np.random.default_rng(chance.randrange(2**32))
    v, s, scc = probe.v.copy(), probe.s.copy(), probe.scc
    flags: dict[str, np.ndarray] = {}
    differ: dict[str, np.ndarray] = {}
    first = None
    for filling in range(_FILLINGS):
        for values, masks, original in ((probe.v, probe.undefined_v, v), (probe.s, probe.undefined_s, s)):
            noise = rng.integers(0, 2**32, values.shape, np.uint32)
            noise[...] = 0 if filling == 0 else 0xFFFFFFFF if filling == 1 else noise
            values[...] = original & ~masks | noise & masks
        probe.scc = bool(filling & 1) if probe.undefined_scc else scc
        wf = probe.run()
        results = {f"v{r}": vector(wf, r).copy() for r in range(_RESULT_V, _RESULT_V + 6)}
        results |= {"s": wf.s[0].copy(), "scc": wf.scc.astype(np.uint32).copy()}
        bits = wf.shadow.bits
        flagged = {f"v{r}": vector(bits, r) for r in range(_RESULT_V, _RESULT_V + 6)}
        flagged |= {"s": bits.s[0], "scc": bits.scc.astype(np.uint32)}
        first = first or results
        for name in results:
            # A rule may be more precise with some fillings than with others: a bit flagged with any of them counts.
            flags[name] = flags.get(name, 0) | flagged[name]
            differ[name] = differ.get(name, 0) | (results[name] ^ first[name])
    return flags, differ


@pytest.mark.parametrize("name", sorted(OPS))
def test_no_bit_that_can_change_is_called_defined(name):
    op, chance = OPS[name], random.Random(name)
    probe = fill(op, chance)
    if "exec" in op.results:
        probe.undefined_v[...] = 0
        probe.undefined_s[...] = 0
    flags, differ = changed(probe, op, chance)
    for result, bits in differ.items():
        missed = bits & ~flags[result]
        assert not missed.any(), f"{line_of(op)[0]}: {result} {[hex(m) for m in np.unique(missed)]}"


EXACT = [
    ("v_and_b32", "v40 = v2 v4"), ("v_or_b32", "v40 = v2 v4"), ("v_xor_b32", "v40 = v2 v4"), ("v_not_b32", "v40 = v2"),
    ("v_bfi_b32", "v40 = v2 v4 v6"), ("v_and_or_b32", "v40 = v2 v4 v6"), ("v_or3_b32", "v40 = v2 v4 v6"),
    ("v_mov_b32", "v40 = v2"), ("v_pack_b32_f16", "v40 = v2 v4"), ("v_bfrev_b32", "v40 = v2"),
    ("v_lshlrev_b32", "v40 = 7 v4"), ("v_lshrrev_b32", "v40 = 7 v4"), ("v_ashrrev_i32", "v40 = 7 v4"),
    ("v_lshl_or_b32", "v40 = v2 7 v6"), ("v_alignbit_b32", "v40 = v2 v4 7"), ("v_alignbyte_b32", "v40 = v2 v4 3"),
    ("v_bfe_u32", "v40 = v2 5 9"), ("v_bfe_i32", "v40 = v2 5 9"), ("v_perm_b32", "v40 = v2 v4 0x0c070103"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "form"), EXACT, ids=[name for name, _ in EXACT])
def test_exact_rules_flag_only_bits_that_can_change(name, form):
    """One bit is undefined at a time; both of its values are tried."""
    result, _, sources = form.partition(" = ")
    probe = Probe(f"{name} {result}, {', '.join(sources.split())}")
    rng = np.random.default_rng(3)
    for _ in range(12):
        probe.v[...] = rng.integers(0, 2**32, probe.v.shape, np.uint32)
        probe.undefined_v[...] = 0
        for lane in range(64):
            register = rng.choice([int(t[1:]) for t in sources.split() if t[0] == "v"])
            probe.undefined_v[register, lane] = 1 << rng.integers(32)
        clear = probe.run()
        probe.v ^= probe.undefined_v
        flipped = probe.run()
        differ = vector(clear, 40) ^ vector(flipped, 40)
        assert np.array_equal(vector(clear.shadow.bits, 40), differ)


def undefined_after(line: str, undefined_v=None, v=None, exec_=ALL, undefined_s=None, s=None, arch="gfx942"):
    probe = Probe(line, exec_, arch)
    for target, given in (
        (probe.v, v),
        (probe.undefined_v, undefined_v),
        (probe.s, s),
        (probe.undefined_s, undefined_s),
    ):
        for register, value in (given or {}).items():
            target[register] = value
    return probe.run().shadow.bits


LANES = np.arange(64)


@pytest.mark.parametrize(
    ("line", "undefined", "expected"),
    [
        ("v_add_u32_e32 v9, v1, v2", 0x00100000, 0xFFF00000),
        ("v_mul_lo_u32 v9, v1, v2", 0x00010000, 0xFFFF0000),
        ("v_mad_u64_u32 v[8:9], s[2:3], v2, v2, v[0:1]", 0x00010000, 0xFFFF0000),
        ("v_add_f32_e32 v9, v1, v2", 0x1, 0xFFFFFFFF),
        ("v_add_u16_e32 v9, v1, v2", 0xFFFF0000, 0),
        ("v_mov_b32_sdwa v9, v1 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:BYTE_2", 0x00FF0000, 0x00FF0000),
        ("v_mov_b32_sdwa v9, v1 dst_sel:BYTE_0 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_3", 0x00FF0000, 0),
        ("v_cvt_f32_ubyte1_e32 v9, v1", 0xFFFF00FF, 0),
        ("v_cvt_f32_ubyte1_e32 v9, v1", 0x00000100, 0xFFFFFFFF),
        ("v_cvt_pkrtz_f16_f32 v9, v2, v1", 0x1, 0xFFFF0000),
        ("v_pk_add_u16 v9, v1, v2", 0x00800000, 0xFF800000),
        ("v_pk_add_u16 v9, v1, v2 op_sel_hi:[0,0]", 0x00800000, 0),
        ("v_cndmask_b32_e64 v9, v1, v2, -1", 0xFFFFFFFF, 0),
        ("v_cndmask_b32_e64 v9, v1, v2, 0", 0xFF, 0xFF),
        ("v_accvgpr_write_b32 a1, v1", 0xF0, None),
    ],
)  # fmt: skip
def test_a_register_with_undefined_bits(line, undefined, expected):
    bits = undefined_after(line, {1: undefined})
    if expected is None:
        assert (vector(bits, 65) == undefined).all()
    else:
        assert (vector(bits, 9) == expected).all(), [hex(b) for b in np.unique(vector(bits, 9))]


def test_lanes_are_told_apart():
    lane3 = np.where(LANES == 3, np.uint32(0xFF), np.uint32(0))
    assert (
        vector(undefined_after("v_mov_b32_dpp v9, v1 row_shl:1 row_mask:0xf bank_mask:0xf", {1: lane3}), 9)[2] == 0xFF
    )
    assert vector(undefined_after("v_mov_b32_dpp v9, v1 row_shl:1 row_mask:0xf bank_mask:0xf", {1: lane3}), 9)[3] == 0
    turned = undefined_after("ds_bpermute_b32 v9, v2, v1", {1: lane3}, {2: (LANES + 1) % 64 * 4})
    assert (vector(turned, 9) == np.where(LANES == 2, 0xFF, 0)).all()
    chosen = (
        undefined_after("v_readlane_b32 s9, v1, 3", {1: lane3}),
        undefined_after("v_readlane_b32 s9, v1, 4", {1: lane3}),
    )
    assert [int(b.s[0, 9]) for b in chosen] == [0xFF, 0]
    assert undefined_after("v_readfirstlane_b32 s9, v1", {1: lane3}, exec_=1 << 3).s[0, 9] == 0xFF
    written = undefined_after("v_writelane_b32 v9, 5, 3", {9: 0xFFFFFFFF})
    assert (vector(written, 9) == np.where(LANES == 3, 0, 0xFFFFFFFF)).all(), "a constant is defined"
    unknown = undefined_after("v_readlane_b32 s9, v1, s2", {}, undefined_s={2: 1})
    assert unknown.s[0, 9] == 0xFFFFFFFF, "an unknown lane"
    compared = undefined_after("v_cmp_lt_u32_e32 vcc, v1, v2", {1: lane3})
    assert compared.s[0, VCC] == 1 << 3


def test_inactive_lanes_keep_what_they_had():
    bits = undefined_after("v_mov_b32_e32 v9, 0", {9: 0xFFFFFFFF}, exec_=0xF)
    assert (vector(bits, 9) == np.where(LANES < 4, 0, 0xFFFFFFFF)).all()


def test_equality_is_decided_by_a_defined_bit():
    different = undefined_after("v_cmp_eq_u32_e32 vcc, v1, v2", {1: 0xFF}, {1: 0x100, 2: 0x200})
    assert different.s[0, VCC] == 0
    open_ = undefined_after("v_cmp_eq_u32_e32 vcc, v1, v2", {1: 0xFF}, {1: 0x100, 2: 0x100})
    assert open_.s[0, VCC] == 0xFFFFFFFF


def test_a_matrix_product_spoils_its_row_or_column():
    one = np.where(LANES == 5, np.uint32(1), np.uint32(0))
    row = undefined_after("v_mfma_f32_32x32x8_f16 v[16:31], v[0:1], v[2:3], 0", {0: one})
    spoiled = np.stack([vector(row, r) != 0 for r in range(16, 32)])
    # Row 5 of 32: lanes 32 to 63 hold rows 4 to 7 in registers 0 to 3 (AMD "CDNA3 ISA", matrix instructions).
    assert spoiled.sum() == 32
    assert spoiled[1, 32:].all()
    column = undefined_after("v_mfma_f32_32x32x8_f16 v[16:31], v[0:1], v[2:3], 0", {2: one})
    spoiled = np.stack([vector(column, r) != 0 for r in range(16, 32)])
    assert spoiled.sum() == 32
    assert spoiled[:, [5, 37]].all()
    assert not undefined_after("v_mfma_f32_4x4x4_16b_f16 v[16:19], v[0:1], v[2:3], 0").v[8:10].any()


def test_a_sparse_product_spoils_the_rows_that_use_an_element():
    """Rows of even numbers select k 0 and 1 of each group of four, those of odd numbers k 2 and 3."""
    name = "v_smfmac_f32_16x16x32_f16 v[16:19], v[0:1], v[2:5], v6"
    index = {6: np.where(LANES % 2 == 0, np.uint32(0x44), np.uint32(0xEE))}
    one = np.where(LANES == 5, np.uint32(1), np.uint32(0))

    def spoiled(undefined):
        bits = undefined_after(name, undefined, index)
        # Row 4 * (lane / 16) + register, column lane % 16.
        return {
            (4 * (lane // 16) + r, lane % 16) for r in range(4) for lane in range(64) if vector(bits, 16 + r)[lane] != 0
        }

    assert spoiled({0: one}) == {(5, j) for j in range(16)}
    assert spoiled({2: one}) == {(i, 5) for i in range(0, 16, 2)}, "k 0 of column 5"
    assert spoiled({3: one}) == {(i, 5) for i in range(1, 16, 2)}, "k 2 of column 5"
    assert spoiled({6: one}) == {(5, j) for j in range(16)}
    assert spoiled({6: np.where(LANES == 5, np.uint32(0x100), np.uint32(0))}) == set(), "a bit of another set"
    assert spoiled({17: one}) == {(1, 5)}


def test_exec_may_not_be_undefined():
    # Equal instructions share their facts; a fault names its own instruction all the same.
    undefined_after("s_and_saveexec_b64 s[2:3], s[6:7]", s={6: 1})
    with pytest.raises(UndefinedValue, match="which lanes are active") as raised:
        undefined_after("s_and_saveexec_b64 s[2:3], s[6:7]", s={6: 1}, undefined_s={6: 1})
    assert "s_and_saveexec_b64 s[2:3], s[6:7]" in str(raised.value), raised.value
    undefined_after("s_and_saveexec_b64 s[2:3], s[6:7]", exec_=0xF0, undefined_s={6: 1})
    with pytest.raises(UndefinedValue, match="which lanes are active"):
        undefined_after("v_cmpx_lt_u32_e32 vcc, v1, v2", {1: 1})
