"""The text reader on small listings written by hand, where a compiler cannot be made to produce the form."""

import textwrap

import pytest

from harness.errors import HarnessError
from harness.isa import access_form, fingerprint
from harness.isa.sources import Frame, SourceFiles, parse_frames

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


@pytest.fixture
def sources(tmp_path):
    (tmp_path / "device.py").write_text("a\nstore(pointer)  # remote\nload(pointer)  # remotely\nc\n")
    (tmp_path / "kernel.py").write_text("\n" * 20)
    return tmp_path


def chain_listing(folder, location):
    return listing(f"""
        .file\t1 "{folder}" "kernel.py"
        .loc\t1 3 1                          ; kernel.py:3:1
        .file\t2 "{folder}" "device.py"
        {location}
        global_store_dwordx4 v[0:1], v[2:5], off sc0 sc1
        """)


@pytest.mark.parametrize(
    ("location", "where"),
    [
        (".loc 2 2 9 is_stmt 1  ; device.py:2:9 @[ kernel.py:9:1 ]", "remote"),
        (".loc 2 4 9  ; device.py:4:9 @[ device.py:2:5 @[ kernel.py:9:1 ] ]", "remote"),
        (".loc 2 0 0  ; device.py:0:0 @[ device.py:2:5 @[ kernel.py:9:1 ] ]", "remote"),
        (".loc 2 4 9  ; device.py:4:9 @[ kernel.py:9:1 ]", "local"),
        (".loc 2 3 9  ; device.py:3:9 @[ kernel.py:9:1 ]", "local"),
        (".loc 1 0 1  ; kernel.py:0:1", "unattributed"),
        (".loc 2 4 9  ; device.py:4:9 @[ elsewhere.py:9:1 ]", "unattributed"),
        (".loc 2 99 9  ; device.py:99:9", "unattributed"),
        ("", "local"),
    ],
)
def test_where_an_access_belongs(sources, location, where):
    [access] = fingerprint(chain_listing(sources, location)).accesses
    assert (access.where, access.width, access.bits) == (where, 16, ("sc0", "sc1"))


def test_an_instruction_before_any_location_is_unattributed():
    [access] = fingerprint(listing("global_load_dword v0, v[0:1], off")).accesses
    assert (access.where, access.source) == ("unattributed", "")


def test_files_of_one_name_must_agree(sources, tmp_path_factory):
    other = tmp_path_factory.mktemp("other") / "device.py"
    other.write_text("x\n" * 4)
    files = SourceFiles.of([str(sources / "device.py"), str(other)])
    assert files.where([Frame("device.py", 2, 1)]) == "unattributed"
    assert files.where([Frame("device.py", 1, 1)]) == "local"
    assert files.where([Frame(str(sources / "device.py"), 2, 1)]) == "remote"


def test_a_marker_holds_for_every_line_of_its_statement(tmp_path):
    source = tmp_path / "device.py"
    source.write_text("if x:\n    store(\n        pointer,\n    )  # remote\n    load(\n    )\n")
    files = SourceFiles.of([str(source)])
    where = [files.where([Frame(str(source), line, 1)]) for line in range(1, 7)]
    assert where == ["local", "remote", "remote", "remote", "local", "local"]


@pytest.mark.parametrize("text", ["a.py:1:2 @[ b.py:3:4 @[ c d.py:5:6 ] ]", "a.py:1:2 @ b.py:3:4 @ c d.py:5:6"])
def test_both_spellings_of_a_chain(text):
    assert parse_frames(text) == (Frame("a.py", 1, 2), Frame("b.py", 3, 4), Frame("c d.py", 5, 6))


def test_numbers_of_the_metadata_and_of_ordering():
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
