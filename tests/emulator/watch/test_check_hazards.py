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
from tests.emulator.assembler import available, compiled
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
    ("v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], 0",
     "v_mfma_f32_16x16x16_f16 v[2:5], v[6:7], v[8:9], v[2:5]", 5),
    ("v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[10:11], 0",
     "v_mfma_f64_16x16x4_f64 v[2:9], v[10:11], v[12:13], v[2:9]", 9),
    ("v_mfma_f64_4x4x4_4b_f64 v[0:1], v[8:9], v[10:11], 0",
     "v_mfma_f64_4x4x4_4b_f64 v[0:1], v[8:9], v[10:11], v[0:1]", 4),
    ("v_smfmac_f32_16x16x32_f16 v[0:3], v[4:5], v[6:9], v10", "v_mov_b32_e32 v8, v2", 7),
    ("v_smfmac_f32_32x32x16_f16 v[0:15], v[16:17], v[18:21], v22", "v_mov_b32_e32 v24, v2", 11),
    ("v_smfmac_f32_16x16x32_f16 v[0:3], v[4:5], v[6:9], v10",
     "v_smfmac_f32_16x16x32_f16 v[0:3], v[4:5], v[6:9], v10", 0),
    ("v_smfmac_f32_16x16x32_f16 v[0:3], v[4:5], v[6:9], v10",
     "v_smfmac_f32_16x16x32_f16 v[12:15], v[4:5], v[6:9], v3", 7),
    ("v_mov_b32_e32 v10, v8", "v_smfmac_f32_16x16x32_f16 v[0:3], v[4:5], v[6:9], v10", 2),
]  # fmt: skip
# gfx950: the same recogniser, and AMD "CDNA4 ISA", "Required Independent Instructions".
PAIRS_950 = [
    ("v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], 0", "v_mov_b32_e32 v8, v2", 8),
    ("v_mfma_f32_4x4x4_16b_f16 v[0:3], v[4:5], v[6:7], 0", "v_mov_b32_e32 v8, v2", 5),
    ("v_mfma_f32_32x32x16_f16 v[0:15], v[16:19], v[20:23], 0", "v_mov_b32_e32 v24, v2", 12),
    ("v_mfma_f32_32x32x4_2b_f16 v[0:31], v[32:33], v[34:35], 0", "v_mov_b32_e32 v40, v2", 20),
    ("v_mfma_f32_16x16x4_f32 v[0:3], v4, v5, 0", "v_mov_b32_e32 v8, v2", 10),
    ("v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[10:11], 0", "v_mov_b32_e32 v12, v2", 19),
    ("v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[10:11], 0", "global_store_dword v[12:13], v2, off", 18),
    ("v_mfma_f64_16x16x4_f64 v[0:7], v[8:9], v[10:11], 0",
     "v_mfma_f64_16x16x4_f64 v[2:9], v[10:11], v[12:13], v[2:9]", 17),
    ("v_mfma_f32_16x16x32_f16 v[0:3], v[4:7], v[8:11], 0",
     "v_mfma_f32_16x16x32_f16 v[2:5], v[6:9], v[10:13], v[2:5]", 6),
    ("v_mfma_f32_4x4x4_16b_f16 v[0:3], v[4:5], v[6:7], 0",
     "v_mfma_f32_4x4x4_16b_f16 v[2:5], v[6:7], v[8:9], v[2:5]", 4),
    ("v_mfma_f32_4x4x4_16b_f16 v[0:3], v[4:5], v[6:7], 0", "v_mfma_f32_4x4x1_16b_f32 v[2:5], v6, v7, v[2:5]", 3),
    ("v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], 0", "v_mov_b32_e32 v20, v2", 12),
    ("v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:7], v[12:19], 0 cbsz:4", "v_mov_b32_e32 v20, v2", 12),
    ("v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:7], v[8:11], 0 cbsz:4 blgp:4", "v_mov_b32_e32 v20, v2", 8),
    ("v_mfma_f32_32x32x64_f8f6f4 v[0:15], v[16:23], v[24:31], 0", "v_mov_b32_e32 v32, v2", 20),
    ("v_mfma_f32_32x32x64_f8f6f4 v[0:15], v[16:21], v[24:29], 0 cbsz:2 blgp:3", "v_mov_b32_e32 v32, v2", 12),
    ("v_mfma_f32_16x16x16_f16 v[20:23], v[24:25], v[26:27], 0",
     "v_mfma_scale_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], 0, v21, v24", 8),
    ("v_smfmac_f32_16x16x64_f16 v[0:3], v[4:7], v[8:15], v16", "v_mov_b32_e32 v17, v2", 8),
    ("v_smfmac_f32_32x32x64_fp8_fp8 v[0:15], v[16:19], v[20:27], v28", "v_mov_b32_e32 v29, v2", 12),
    ("v_xor_b32_e32 v0, v1, v2", "v_permlane32_swap_b32_e32 v3, v0", 2),
    ("v_xor_b32_e32 v3, v1, v2", "v_permlane16_swap_b32_e32 v3, v0", 2),
    ("v_cmpx_eq_u32_e32 vcc, v0, v1", "v_permlane32_swap_b32_e32 v3, v2", 4),
    ("v_cvt_scalef32_pk_fp4_f32 v1, v2, v2, 1.0 op_sel:[0,0,1,0]", "v_xor_b32_e32 v3, v1, v1", 1),
    ("v_cvt_scalef32_pk_fp4_f32 v1, v2, v2, 1.0 op_sel:[0,0,1,0]",
     "v_cvt_scalef32_pk_fp4_f32 v1, v3, v3, 1.0 op_sel:[0,0,0,1]", 1),
    ("v_cvt_scalef32_pk_fp4_f32 v1, v2, v2, 1.0", "v_xor_b32_e32 v3, v1, v1", 0),
    ("v_cvt_scalef32_sr_pk_fp4_f32 v1, v[2:3], v4, 1.0", "v_xor_b32_e32 v3, v1, v1", 1),
    ("v_cvt_sr_fp8_f32 v1, v2, v3 op_sel:[0,0,1,0]", "v_xor_b32_e32 v3, v1, v1", 1),
    ("v_cvt_scalef32_pk_fp8_f32 v1, v2, v2, 1.0 op_sel:[0,0,0,1]", "v_xor_b32_e32 v3, v1, v1", 1),
]  # fmt: skip


def check(*lines, arch="gfx942"):
    decode(listing(*lines, "s_endpgm", arch=arch), watch=Check())


@pytest.mark.parametrize(
    ("first", "second", "states", "arch"), [(*p, "gfx942") for p in PAIRS] + [(*p, "gfx950") for p in PAIRS_950]
)
def test_pairs(first, second, states, arch):
    check(first, *["s_nop 0"] * states, second, arch=arch)
    if states:
        few = re.escape(f"{second!r} (at (no source line)) needs {states} wait states after {first!r}")
        with pytest.raises(MissingWaitStates, match=few) as caught:
            check(first, *["s_nop 0"] * (states - 1), second, arch=arch)
        assert f"and has {states - 1}: insert s_nop 0" in str(caught.value)
        check(first, f"s_nop {states - 1}", second, arch=arch)
        # Others count too, whatever they do.
        check(first, *["s_mov_b32 s20, 0"] * states, second, arch=arch)


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


PRODUCT = """
declare {d} @llvm.amdgcn.{name}({a}, {b}, {d}, i32, i32, i32)
define amdgpu_kernel void @probe(ptr addrspace(1) %p, {a} %a, {b} %b, {d} %c) {{
  %r = call {d} @llvm.amdgcn.{name}({a} %a, {b} %b, {d} %c, i32 0, i32 0, i32 0)
  store {d} %r, ptr addrspace(1) %p
  ret void
}}
"""
SWAP = """
declare {{i32, i32}} @llvm.amdgcn.permlane32.swap(i32, i32, i1, i1)
define amdgpu_kernel void @probe(ptr addrspace(1) %p, i32 %a) {{
  %v = load i32, ptr addrspace(1) %p
  %u = mul i32 %v, 77
  %w = xor i32 %v, %a
  %r = call {{i32, i32}} @llvm.amdgcn.permlane32.swap(i32 %u, i32 %w, i1 false, i1 false)
  %x = extractvalue {{i32, i32}} %r, 0
  store i32 %x, ptr addrspace(1) %p
  ret void
}}
"""


COMPILED = [
    ("mfma.f32.16x16x16f16", "<4 x float>", "<4 x half>", "gfx942"),
    ("mfma.f32.16x16x16f16", "<4 x float>", "<4 x half>", "gfx950"),
    ("mfma.f32.4x4x4f16", "<4 x float>", "<4 x half>", "gfx950"),
    ("mfma.f32.16x16x4f32", "<4 x float>", "float", "gfx950"),
    ("mfma.i32.16x16x64.i8", "<4 x i32>", "<4 x i32>", "gfx950"),
    ("permlane32.swap", "", "", "gfx950"),
]


@pytest.mark.skipif(not available(), reason="this Triton has no assembler that Python can call")
@pytest.mark.parametrize(("name", "d", "a", "arch"), COMPILED)
def test_the_compiler_inserts_as_many(name, d, a, arch):
    """LLVM's own code passes, and is reported with one wait state less."""
    text = compiled((PRODUCT if d else SWAP).format(name=name, d=d, a=a, b=a), arch)
    decode(text, watch=Check())
    ((pause, states),) = re.findall(r"(\ts_nop (\d+)\n)\t(?:global_store|v_permlane)", text)
    with pytest.raises(MissingWaitStates):
        decode(text.replace(pause, f"\ts_nop {int(states) - 1}\n" if int(states) else ""), watch=Check())


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
