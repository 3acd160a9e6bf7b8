"""Wait states between instructions: too few are reported, as many as LLVM inserts are enough."""

import re

import pytest
import torch
import triton
import triton.language as tl

from harness import emulator
from harness.emulator.faults import MissingWaitStates
from harness.emulator.program.decode import decode
from harness.emulator.watch.check import Check
from tests.emulator.single import listing

# Two instructions, and the wait states that the second needs: GCNHazardRecognizer, for gfx942.
PAIRS = [
    ("v_exp_f32_e32 v0, v1", "v_add_f32_e32 v2, v0, v0", 1),
    ("v_exp_f32_e32 v0, v1", "v_log_f32_e32 v2, v0", 0),
    ("v_add_f16_sdwa v0, v1, v2 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD src1_sel:DWORD",
     "v_mov_b32_e32 v2, v0", 1),
    ("v_cmp_eq_u32_e64 s[0:1], v0, v1", "v_cndmask_b32_e64 v2, v0, v1, s[0:1]", 2),
    ("v_cmp_eq_u32_e32 vcc, v0, v1", "v_cndmask_b32_e32 v2, v0, v1, vcc", 2),
    ("v_cmp_eq_u32_e32 vcc, v0, v1", "s_mov_b64 s[0:1], vcc", 0),
    ("v_readfirstlane_b32 s0, v1", "v_add_u32_e32 v2, s0, v0", 2),
    ("v_mov_b32_e32 v0, v1", "v_readlane_b32 s0, v0, 0", 1),
    ("v_mov_b32_e32 v0, v1", "v_add_u32_e32 v1, v0, v0", 0),
    ("v_readfirstlane_b32 s0, v1", "v_readlane_b32 s1, v2, s0", 4),
    ("v_cmpx_eq_u32_e32 vcc, v0, v1", "v_readlane_b32 s0, v2, 0", 4),
    ("v_cmp_eq_u32_e32 vcc, v0, v1", "v_div_fmas_f32 v2, v0, v1, v1", 4),
    ("v_mov_b32_e32 v0, v1", "v_mov_b32_dpp v2, v0 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf", 2),
    ("v_cmpx_eq_u32_e32 vcc, v0, v1", "v_mov_b32_dpp v2, v0 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf", 5),
    ("v_readfirstlane_b32 s0, v1", "buffer_load_dword v2, v3, s[4:7], s0 offen", 5),
    ("s_mov_b32 s0, 1", "buffer_load_dword v2, v3, s[4:7], s0 offen", 0),
    ("s_mov_b32 m0, 1", "global_load_lds_dword v[2:3], off", 1),
    ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 1", "s_getreg_b32 s0, hwreg(HW_REG_MODE)", 2),
    ("global_store_dwordx4 v[0:1], v[4:7], off", "v_mov_b32_e32 v6, 0", 2),
    ("global_store_dwordx2 v[0:1], v[4:5], off", "v_mov_b32_e32 v5, 0", 0),
    ("v_mov_b32_e32 v0, v8", "v_mfma_f32_16x16x16_f16 a[0:3], v[0:1], v[2:3], a[0:3]", 2),
    ("v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], 0", "v_mov_b32_e32 v8, v2", 7),
    ("v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], 0", "global_store_dword v[8:9], v2, off", 7),
    ("v_mfma_f32_32x32x8_f16 v[0:15], v[16:17], v[18:19], 0", "v_mov_b32_e32 v20, v2", 11),
    ("v_mfma_f32_16x16x4_f32 v[0:3], v4, v5, 0", "v_mov_b32_e32 v8, v2", 10),
    ("v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[10:11], 0", "global_store_dword v[12:13], v2, off", 18),
    ("v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], 0", "v_mov_b32_e32 v2, 0", 7),
    ("v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], v[8:11]", "v_mov_b32_e32 v8, 0", 3),
    ("v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], 0",
     "v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], v[0:3]", 0),
    ("v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], 0",
     "v_mfma_f32_16x16x16_f16 v[8:11], v[2:3], v[6:7], v[8:11]", 7),
    ("v_dot2_f32_f16 v0, v1, v2, v3", "v_add_f32_e32 v4, v0, v0", 3),
]  # fmt: skip


def check(*lines):
    decode(listing(*lines, "s_endpgm"), watch=Check())


@pytest.mark.parametrize(("first", "second", "states"), PAIRS)
def test_pairs(first, second, states):
    check(first, *["s_nop 0"] * states, second)
    if states:
        few = re.escape(f"{second!r} (at (no source line)) needs {states} wait states after {first!r}")
        with pytest.raises(MissingWaitStates, match=few) as caught:
            check(first, *["s_nop 0"] * (states - 1), second)
        assert f"and has {states - 1}: insert s_nop 0" in str(caught.value)
        check(first, f"s_nop {states - 1}", second)
        # Others count too, whatever they do.
        check(first, *["s_mov_b32 s20, 0"] * states, second)


def test_over_branches():
    """The wait states are those of the shortest path, around a loop too."""
    first, second = "v_cmp_eq_u32_e64 s[0:1], v0, v1", "v_cndmask_b32_e64 v2, v0, v1, s[0:1]"
    loop = (".LBB0_1:", second, "s_nop 7", first, "{}", "s_cbranch_scc1 .LBB0_1")
    skip = (first, "s_cbranch_scc1 .LBB0_2", "s_nop 7", ".LBB0_2:", "{}", second)
    for code in (loop, skip):  # the branch is a wait state itself
        check(*[line.format("s_nop 0") for line in code])
        with pytest.raises(MissingWaitStates, match=r"needs 2 wait states .* and has 1"):
            check(*[line for line in code if line != "{}"])


@triton.jit
def total(x, y, N: tl.constexpr):
    tl.store(y, tl.sum(tl.exp(tl.load(x + tl.arange(0, N))), 0))


def test_what_llvm_inserts_is_enough_and_needed():
    """Without an s_nop that LLVM inserted, code is reported. Left out: those that break clauses, next to loads."""
    x, y = torch.ones(256), torch.zeros(1)
    emulator.activate("gfx942", mode="check")
    try:
        text = total[(1,)](x, y, 256, num_warps=1).asm["amdgcn"]
    finally:
        emulator.deactivate()
    pauses = re.findall(r"^\tv_\w+ .*\n(?:\t\.loc.*\n|\..*\n)*\ts_nop \d+\n", text, re.MULTILINE)
    assert pauses
    for lines in pauses:
        with pytest.raises(MissingWaitStates):
            decode(text.replace(lines, re.sub(r"\ts_nop \d+\n$", "", lines)), watch=Check())


@triton.jit
def selected(x, y, WAIT: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    value = tl.load(x + i)
    code: tl.constexpr = "v_cmp_lt_i32_e64 s[30:31], 0, $1\n" + WAIT + "v_cndmask_b32_e64 $0, 7, 9, s[30:31]"
    tl.store(y + i, tl.inline_asm_elementwise(code, "=v,v,~{s30},~{s31}", [value], tl.int32, True, 1))


def test_inline_assembly():
    """LLVM inserts nothing there; the launch is refused with both lines of the program."""
    x, y = torch.arange(-32, 32, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    emulator.activate("gfx942", mode="check")
    try:
        with pytest.raises(MissingWaitStates, match=r"v_cndmask.*test_check_hazards\.py.*insert s_nop 1"):
            selected[(1,)](x, y, "", 64, num_warps=1)
        selected[(1,)](x, y, "s_nop 1\n", 64, num_warps=1)
        assert y.tolist() == [7] * 33 + [9] * 31
    finally:
        emulator.deactivate()
