"""The text reader on small listings written by hand, where a compiler cannot be made to produce the form."""

import textwrap

import pytest

from harness.errors import HarnessError
from harness.isa import access_form, fingerprint
from harness.isa.sources import Frame, parse_frames

HEAD = '\t.amdgcn_target "amdgcn-amd-amdhsa-unknown-gfx950"\nkernel:\n'
TAIL = """
\ts_endpgm
\t.amdgpu_metadata
---
amdhsa.kernels:
  - .agpr_count:     4
    .group_segment_fixed_size: 512
    .private_segment_fixed_size: 16
    .sgpr_count:     30
    .sgpr_spill_count: 1
    .vgpr_count:     70
    .vgpr_spill_count: 3
"""


def listing(code):
    return HEAD + textwrap.indent(textwrap.dedent(code), "\t") + TAIL


@pytest.mark.parametrize(
    ("mnemonic", "space", "kind", "width"),
    [
        ("global_load_ubyte", "global", "load", 1),
        ("global_load_sbyte_d16", "global", "load", 1),
        ("global_store_byte_d16_hi", "global", "store", 1),
        ("global_load_short_d16_hi", "global", "load", 2),
        ("buffer_store_short", "buffer", "store", 2),
        ("flat_load_dword", "flat", "load", 4),
        ("global_store_dwordx2", "global", "store", 8),
        ("buffer_load_dwordx3", "buffer", "load", 12),
        ("buffer_load_dwordx4", "buffer", "load", 16),
        ("global_load_lds_dwordx4", "global", "load", 16),
        ("global_atomic_add", "global", "atomic", 4),
        ("global_atomic_add_x2", "global", "atomic", 8),
        ("global_atomic_add_f64", "global", "atomic", 8),
        ("global_atomic_pk_add_bf16", "global", "atomic", 4),
        ("buffer_atomic_cmpswap_x2", "buffer", "atomic", 8),
        ("flat_atomic_smax", "flat", "atomic", 4),
        ("global_atomic_max_f64", "global", "atomic", 8),
        ("s_load_dwordx8", "scalar", "load", 32),
    ],
)
def test_widths(mnemonic, space, kind, width):
    form = access_form(mnemonic)
    assert (form.space, form.kind, form.width) == (space, kind, width)


@pytest.mark.parametrize("mnemonic", ["buffer_wbl2", "buffer_inv", "ds_read_b128", "v_add_f32_e32", "s_waitcnt"])
def test_what_is_no_access(mnemonic):
    assert access_form(mnemonic) is None


@pytest.mark.parametrize("mnemonic", ["global_load_dwordx5", "global_atomic_frob", "buffer_store_format_xyz"])
def test_an_unknown_width_is_an_error_not_a_guess(mnemonic):
    with pytest.raises(HarnessError, match=mnemonic):
        access_form(mnemonic)


KERNEL = """
\t.amdgcn_target "amdgcn-amd-amdhsa-unknown-gfx942"
\t.type kernel,@function
kernel:
\ts_load_dwordx4 s[4:7], s[0:1], 0x0
\ts_load_dwordx2 s[8:9], s[4:5], 0x8
\ts_load_dwordx2 s[10:11], s[4:5], 0x0
\ts_sub_u32 s8, s8, s10
\ts_subb_u32 s9, s9, s11
\tv_mov_b32_e32 v0, s6
\tv_mov_b32_e32 v1, s7
\tv_lshl_add_u64 v[2:3], s[8:9], 0, v[0:1]
CODE
\ts_endpgm
.Lfunc_end0:
\t.amdhsa_kernel kernel
\t\t.amdhsa_user_sgpr_kernarg_segment_ptr 1
\t.end_amdhsa_kernel
\t.amdgpu_metadata
---
amdhsa.kernels:
  - .args:
      - .address_space:  global
        .offset:         0
        .size:           8
        .value_kind:     global_buffer
      - .address_space:  global
        .offset:         8
        .size:           8
        .value_kind:     global_buffer
"""
FAR, NEAR = "v[2:3]", "v[0:1]"


def store_after(code, address="v[4:5]"):
    """Return where a store goes: the code finds a local address in v[0:1], its twin in a peer's heap in v[2:3]."""
    lines = "\n".join("\t" + line.strip() for line in code.strip().splitlines())
    text = KERNEL.replace("CODE", f"{lines}\n\tglobal_store_dword {address}, v9, off".replace("\t.L", ".L"))
    numbers = TAIL.partition("amdhsa.kernels:")[2].replace("  - ", "    ")
    return [access.where for access in fingerprint(text + numbers).accesses if access.kind == "store"]


@pytest.mark.parametrize(
    ("code", "where"),
    [
        ("v_mov_b64_e32 v[4:5], v[2:3]", "remote"),
        ("v_mov_b64_e32 v[4:5], v[0:1]", "local"),
        ("v_pk_mov_b32 v[4:5], v[2:3], v[2:3] op_sel:[0,1]", "remote"),
        ("v_accvgpr_write_b32 a0, v2\nv_accvgpr_write_b32 a1, v3\nv_accvgpr_read_b32 v4, a0\nv_accvgpr_read_b32 v5, a1",
         "remote"),
        ("v_add_co_u32_e32 v4, vcc, 16, v2\nv_addc_co_u32_e32 v5, vcc, 0, v3, vcc", "remote"),
        ("v_lshlrev_b64 v[6:7], 4, v[0:1]\nv_lshrrev_b64 v[4:5], 4, v[6:7]", "local"),
        ("v_readfirstlane_b32 s20, v2\nv_readfirstlane_b32 s21, v3\nv_mov_b32_e32 v4, s20\nv_mov_b32_e32 v5, s21",
         "remote"),
        ("v_writelane_b32 v40, s8, 3\nv_writelane_b32 v40, s6, 4\nv_readlane_b32 s20, v40, 4\nv_mov_b32_e32 v4, s20",
         "local"),
        (("v_readfirstlane_b32 s20, v2\nv_writelane_b32 v40, s20, 3\nv_writelane_b32 v40, s6, 4\n"
         "v_readlane_b32 s20, v40, 3\nv_mov_b32_e32 v4, s20"), "remote"),
        ("ds_bpermute_b32 v4, v8, v2\nds_bpermute_b32 v5, v8, v3", "remote"),
        ("v_mov_b32_dpp v4, v2 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf", "remote"),
        ("ds_write_b64 v8, v[2:3]\nds_read_b64 v[4:5], v8", "remote"),
        ("ds_write_b64 v8, v[0:1]\nds_read_b64 v[4:5], v8", "local"),
        (("scratch_store_dwordx2 off, v[2:3], off offset:16\nscratch_store_dwordx2 off, v[0:1], off offset:24\n"
         "scratch_load_dwordx2 v[4:5], off, off offset:16"), "remote"),
        (("scratch_store_dwordx2 off, v[2:3], off offset:16\nscratch_store_dwordx2 off, v[0:1], off offset:24\n"
         "scratch_load_dwordx2 v[4:5], off, off offset:24"), "local"),
        (("s_mov_b32 s32, 16\nscratch_store_dwordx2 off, v[2:3], s32 offset:8\n"
          "scratch_load_dwordx2 v[4:5], off, off offset:24"), "remote"),
        # An index: multiplied by a stride, or a part of an address.
        ("v_mul_lo_u32 v6, s8, s20\nv_add_u32_e32 v4, v0, v6", "local"),
        ("v_and_b32_e32 v6, 15, v2\nv_add_u32_e32 v4, v0, v6", "local"),
        ("v_and_b32_e32 v4, -16, v2", "remote"),
        # Lanes that do not take a branch keep what they had.
        (("v_mov_b64_e32 v[4:5], v[2:3]\ns_and_saveexec_b64 s[20:21], vcc\nv_mov_b64_e32 v[4:5], v[0:1]\n"
         "s_or_b64 exec, exec, s[20:21]"), "remote"),
        (("v_mov_b64_e32 v[4:5], v[2:3]\ns_and_saveexec_b64 s[20:21], vcc\nv_mov_b32_e32 v8, 1\n"
         "s_or_b64 exec, exec, s[20:21]\nv_mov_b64_e32 v[4:5], v[0:1]"), "local"),
        (("s_and_saveexec_b64 s[20:21], vcc\ns_xor_b64 s[20:21], exec, s[20:21]\nv_mov_b64_e32 v[4:5], v[2:3]\n"
         "s_andn2_saveexec_b64 s[20:21], s[20:21]\nv_mov_b64_e32 v[4:5], v[0:1]\ns_or_b64 exec, exec, s[20:21]"),
         "remote"),
        # Both ways of a branch, and round a loop.
        ("v_mov_b64_e32 v[4:5], v[0:1]\ns_cbranch_scc1 .LBB0_1\nv_mov_b64_e32 v[4:5], v[2:3]\n.LBB0_1:", "remote"),
        (("v_mov_b64_e32 v[4:5], v[0:1]\nv_mov_b64_e32 v[6:7], v[0:1]\n.LBB0_1:\nglobal_store_dword v[4:5], v9, off\n"
         "v_mov_b64_e32 v[4:5], v[6:7]\nv_mov_b64_e32 v[6:7], v[2:3]\ns_cbranch_scc1 .LBB0_1"), "remote"),
        # An argument: by an offset in two parts; and any of them.
        ("s_add_u32 s20, s0, 8\ns_load_dwordx2 s[22:23], s[20:21], 0x0\nv_mov_b32_e32 v4, s22", "local"),
        ("s_add_u32 s20, s0, s7\ns_load_dwordx2 s[22:23], s[20:21], 0x0\nv_mov_b32_e32 v4, s22", "unattributed"),
        # Nothing passes because it is not followed.
        ("v_bfrev_b32_e32 v4, v2", "unattributed"),
        ("v_perm_b32 v4, v2, v0, s20", "unattributed"),
        ("v_mov_b32_e32 v4, 0", "unattributed"),
    ],
)  # fmt: skip
def test_where_the_address_of_a_store_comes_from(code, where):
    assert set(store_after(code)) == {where}


def test_code_that_is_never_reached_is_unattributed():
    assert store_after("s_endpgm", FAR) == ["unattributed"]
    assert store_after("s_nop 0", FAR) == ["remote"]
    assert store_after("s_nop 0", NEAR) == ["local"]


def test_a_listing_without_a_kernel_has_no_known_address():
    [access] = fingerprint(listing("global_load_dword v0, v[0:1], off")).accesses
    assert (access.where, access.source) == ("unattributed", "")


@pytest.mark.parametrize("text", ["a.py:1:2 @[ b.py:3:4 @[ c d.py:5:6 ] ]", "a.py:1:2 @ b.py:3:4 @ c d.py:5:6"])
def test_both_spellings_of_a_chain(text):
    assert parse_frames(text) == (Frame("a.py", 1, 2), Frame("b.py", 3, 4), Frame("c d.py", 5, 6))


def test_numbers_of_the_metadata_and_of_fences():
    print_ = fingerprint(
        listing("""
        s_waitcnt vmcnt(0)
        s_barrier
        buffer_wbl2 sc1
        s_waitcnt vmcnt(0)
        buffer_inv sc0 sc1
        buffer_inv sc0 sc1  ; sc9 in a comment does not count: global_load_dword
        """)
    )
    assert (print_.arch, print_.vgprs, print_.agprs, print_.sgprs) == ("gfx950", 70, 4, 30)
    assert (print_.vgpr_spills, print_.sgpr_spills, print_.lds, print_.scratch) == (3, 1, 512, 16)
    assert (print_.waits, print_.barriers, print_.instructions) == (2, 1, 7)
    assert (print_.writebacks, print_.invalidates) == ({"sc1": 1}, {"sc0 sc1": 2})


@pytest.mark.parametrize("text", ["", "no listing", HEAD])
def test_a_text_that_is_no_listing(text):
    with pytest.raises(HarnessError):
        fingerprint(text)
