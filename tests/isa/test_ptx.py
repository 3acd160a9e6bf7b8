"""PTX: forms and positions written by hand, and Triton's code for sm_90."""

import inspect
import textwrap

import pytest

from harness.errors import HarnessError
from harness.isa import fingerprint, ptx_code, remote_mismatch, remote_widths
from tests.isa import kernels


@pytest.mark.parametrize(
    ("opcode", "space", "kind", "width", "words"),
    [
        ("ld.global.b8", "global", "load", 1, ()),
        ("st.global.b16", "global", "store", 2, ()),
        ("ld.global.v4.b32", "global", "load", 16, ()),
        ("ld.global.v2.b64", "global", "load", 16, ()),
        ("ld.global.b128", "global", "load", 16, ()),
        ("ld.global.v8.b32", "global", "load", 32, ()),
        ("st.global.v2.b32", "global", "store", 8, ()),
        ("ld.volatile.global.v4.b32", "global", "load", 16, ("volatile",)),
        ("ld.global.sys.acquire.b32", "global", "load", 4, ("sys", "acquire")),
        ("ld.relaxed.sys.global.u64", "global", "load", 8, ("relaxed", "sys")),
        ("ld.global.L1::evict_last.L2::cache_hint.v4.b32", "global", "load", 16, ("L1::evict_last", "L2::cache_hint")),
        ("ld.global.nc.L2::128B.f32", "global", "load", 4, ("nc", "L2::128B")),
        ("st.global.wt.v4.b32", "global", "store", 16, ("wt",)),
        ("st.b32", "flat", "store", 4, ()),
        ("atom.global.gpu.acq_rel.add.u32", "global", "atomic", 4, ("gpu", "acq_rel")),
        ("atom.global.sys.acq_rel.add.noftz.bf16", "global", "atomic", 2, ("sys", "acq_rel")),
        ("atom.global.gpu.relaxed.add.noftz.f16x2", "global", "atomic", 4, ("gpu", "relaxed")),
        ("atom.global.release.sys.cas.b64", "global", "atomic", 8, ("release", "sys")),
        ("atom.global.acq_rel.gpu.cas.b128", "global", "atomic", 16, ("acq_rel", "gpu")),
        ("red.global.sys.release.add.u32", "global", "atomic", 4, ("sys", "release")),
        ("red.relaxed.gpu.global.add.v4.f32", "global", "atomic", 16, ("relaxed", "gpu")),
        ("multimem.st.relaxed.sys.global.v4.f32", "global", "store", 16, ("relaxed", "sys")),
    ],
)
def test_forms(opcode, space, kind, width, words):
    form = ptx_code.access_form(opcode)
    assert (form.space, form.kind, form.width, ptx_code.qualifiers(opcode)) == (space, kind, width, words)


def test_an_asynchronous_copy_is_as_wide_as_its_operand_says():
    for size in ("0x10", "16"):
        form = ptx_code.access_form("cp.async.cg.shared.global", f"[ %r1 + 0 ], [ %rd1 + 0 ], {size}, %r2")
        assert (form.kind, form.width) == ("load", 16)
    with pytest.raises(HarnessError, match="is not known"):
        ptx_code.access_form("cp.async.cg.shared.global", "[ %r1 + 0 ], [ %rd1 + 0 ], %r3")


@pytest.mark.parametrize(
    "opcode",
    [
        "ld.param.b64", "ld.shared.v4.b32", "st.shared::cta.b16", "ld.local.b32", "atom.shared.add.u32", "mov.b64",
        "cp.async.commit_group", "cp.async.wait_group", "fence.acq_rel.gpu", "bar.sync", "mbarrier.init.shared.b64",
        "cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes",
    ],
)  # fmt: skip
def test_what_is_no_access_to_global_memory(opcode):
    assert ptx_code.access_form(opcode) is None


@pytest.mark.parametrize(
    "opcode",
    [
        "ld.global.v3.b32",
        "st.global",
        "atom.global.frob.u32",
        "cp.async.bulk.shared::cluster.global",
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group",
    ],
)
def test_an_unknown_width_is_an_error_not_a_guess(opcode):
    with pytest.raises(HarnessError, match=opcode):
        ptx_code.access_form(opcode)


def text_of(code, files=()):
    listed = "".join(f'\t.file\t{number} "{path}"\n' for number, path in files)
    body = textwrap.indent(textwrap.dedent(code), "\t")
    return (
        f".version 8.7\n.target sm_90a\n.visible .entry kernel(\n)\n{{\n{body}\n}}\n{listed}\t.section\t.debug_info\n"
    )


@pytest.fixture
def sources(tmp_path):
    return [(1, tmp_path / "kernel.py"), (2, tmp_path / "device.py")]


KERNEL = """
.version 8.7
.target sm_90a
.func (.param .b64 func_retval0) shift(.param .b64 shift_param_0)
{
	ld.param.b64 %rd1, [shift_param_0];
	add.s64 %rd2, %rd1, 16;
	st.param.b64 [func_retval0], %rd2;
	ret;
}
.visible .entry kernel(
	.param .u64 .ptr .global .align 1 kernel_param_0,
	.param .u64 .ptr .global .align 1 kernel_param_1,
	.param .u32 kernel_param_2
)
{
	ld.param.b64 %rd8, [kernel_param_0];
	ld.param.b64 %rd1, [kernel_param_1];
	ld.param.b32 %r1, [kernel_param_2];
	ld.global.v2.b64 {%rd6, %rd7}, [%rd8];
	sub.s64 %rd7, %rd7, %rd6;
	add.s64 %rd2, %rd1, %rd7;
	CODE
	st.global.b32 [ %rd4 + 0 ], { %r9 };
	ret;
}
	.section	.debug_info
"""


@pytest.mark.parametrize(
    ("code", "where"),
    [
        ("mov.b64 %rd4, %rd2;", "remote"),
        ("mov.b64 %rd4, %rd1;", "local"),
        ("selp.b64 %rd4, %rd1, %rd2, %p1;", "remote"),
        ("mov.b64 %rd4, %rd1; @%p1 mov.b64 %rd4, %rd2;", "remote"),
        ("mov.b64 %rd4, %rd2; mov.b64 %rd4, %rd1;", "local"),
        ("mov.b64 {%r3, %r4}, %rd2; shfl.sync.bfly.b32 %r5, %r3, 1, 31, -1; mov.b64 %rd4, {%r5, %r4};", "remote"),
        ("shr.u64 %rd5, %rd7, 4; shl.b64 %rd5, %rd5, 4; add.s64 %rd4, %rd1, %rd5;", "remote"),
        ("mad.lo.s64 %rd4, %rd7, %rd9, %rd1;", "local"),
        ("max.s64 %rd4, %rd1, %rd2;", "remote"),
        ("st.shared.b64 [%r7], %rd2; ld.shared.b64 %rd4, [%r8];", "remote"),
        (("mov.b64 %SPL, __local_depot0; st.local.b64 [%SPL+8], %rd2; st.local.b64 [%SPL], %rd1;"
         "ld.local.b64 %rd4, [%SPL+8];"), "remote"),
        (("mov.b64 %SPL, __local_depot0; st.local.b64 [%SPL+8], %rd2; st.local.b64 [%SPL], %rd1;"
         "ld.local.b64 %rd4, [%SPL];"), "local"),
        (("{ .param .b64 param0; .param .b64 retval0; st.param.b64 [param0], %rd2; call.uni (retval0), shift, (param0);"
         "ld.param.b64 %rd4, [retval0]; }"), "remote"),
        (("{ .param .b64 param0; .param .b64 retval0; st.param.b64 [param0], %rd1; call.uni (retval0), shift, (param0);"
         "ld.param.b64 %rd4, [retval0]; }"), "local"),
        ("mov.b64 %rd4, %rd1; $L__BB0_1: st.global.b32 [%rd4], %r9; mov.b64 %rd4, %rd2; @%p1 bra $L__BB0_1;", "remote"),
        # Two inline assemblies with labels of one name.
        (("mov.b64 %rd4, %rd1; { @%p1 bra done; add.s32 %r2, %r2, 1; done: }"
          "{ @%p2 bra done; mov.b64 %rd4, %rd2; done: }"), "remote"),
        ("brev.b64 %rd4, %rd2;", "unattributed"),
        ("mov.b64 %rd4, 0;", "unattributed"),
    ],
)  # fmt: skip
def test_where_the_address_of_a_store_comes_from(code, where):
    accesses = fingerprint(KERNEL.replace("CODE", code)).accesses
    assert {access.where for access in accesses if access.kind == "store"} == ({where})
    assert {access.where for access in accesses if access.kind == "load"} == {"local"}


def test_an_inline_chain_of_three(sources):
    [access] = fingerprint(
        text_of(
            """
            .loc 1 9 1
            .loc 2 2 5, function_name $L__info_string0, inlined_at 1 9 1
            .loc 2 4 9, function_name $L__info_string1, inlined_at 2 2 5
            st.global.b32 [ %rd1 + 0 ], %r1;
            """,
            sources,
        )
    ).accesses
    assert [frame.rpartition("/")[2] for frame in access.source.split(" @ ")] == [
        "device.py:4:9",
        "device.py:2:5",
        "kernel.py:9:1",
    ]


def test_lines_that_llvm_counts_on_within_inline_assembly_are_those_of_its_beginning(sources):
    code = """
        .loc 2 2 9
        // begin inline asm
        .loc 2 2 9
        mov.u32 %r1, 0x0;
        .loc 2 3 9
        @%p1 ld.global.b32 { %r1 }, [ %rd1 + 0 ];
        // end inline asm
        ld.global.b32 %r2, [%rd2];
        .loc 2 3 9
        ld.global.b64 %rd3, [%rd2];
        """
    accesses = fingerprint(text_of(code, sources)).accesses
    lines = [(access.source.split(":")[-2], access.width, access.count) for access in accesses]
    assert lines == [("2", 4, 2), ("3", 8, 1)]


def test_counts_and_fences():
    code = """
        { .reg .pred p; setp.eq.u32 p, %r1, 0; @p st.global.b32 [%rd1], %r1; }  // st.global.b64
        $L__BB0_1: bar.sync 0;
        fence.acq_rel.sys; membar.gl;
        fence.acq_rel.sys;
        bra.uni $L__BB0_1;
        """
    code_read = fingerprint(text_of(code))
    assert (code_read.language, code_read.arch, code_read.instructions, code_read.barriers) == ("ptx", "sm_90a", 7, 1)
    assert code_read.fences == {"fence.acq_rel.sys": 2, "membar.gl": 1}
    assert code_read.widths("unattributed", "store") == {4: 1}


def test_what_ptx_does_not_have_is_none_and_not_zero():
    plain = fingerprint(text_of("ret;")).to_json()
    for name in ("vgprs", "agprs", "sgprs", "vgpr_spills", "sgpr_spills", "registers", "lds", "scratch", "waits"):
        assert plain[name] is None, name
    assert (plain["writebacks"], plain["invalidates"], plain["fences"]) == (None, None, {})


def test_what_ptxas_used():
    code_read = fingerprint(text_of("ret;"), "REG:40 STACK:16 SHARED:1024 LOCAL:8 CONSTANT[0]:584")
    assert (code_read.registers, code_read.scratch, code_read.lds) == (40, 24, 1024)


@pytest.mark.parametrize(("dtype", "remote"), [("fp16", {16: 2}), ("i32", {16: 4}), ("i64", {16: 8})])
def test_aligned_remote_stores_and_their_widths(dtype, remote):
    code_read = fingerprint(kernels.ptx("put", dtype))
    assert code_read.arch == "sm_90a"
    assert remote_widths(code_read, "store") == remote
    assert remote_mismatch(code_read, "store", 16) is None
    assert code_read.widths("local", "store") == {}
    assert code_read.widths("local", "load") == {8: 2, **remote}, "two heap bases, and the source"
    assert code_read.widths("remote", "load") == {}
    assert not any(access.where == "unattributed" for access in code_read.accesses)


@pytest.mark.parametrize(
    "fault",
    [{"aligned": False}, {"move": kernels.rebase}],
    ids=["a mask of unknown alignment", "an integer round trip"],
)
def test_what_narrows_the_stores_is_named(fault):
    code_read = fingerprint(kernels.ptx("put", "fp16", **fault))
    assert remote_widths(code_read, "store") == {2: 16}
    mismatch = remote_mismatch(code_read, "store", 16)
    assert "16 x 2 bytes wide, wanted 16 only" in mismatch
    line = inspect.getsourcelines(kernels.remote_store.fn)[1] + 2
    assert f"kernels.py:{line}" in mismatch


def test_system_scope_atomics():
    code_read = fingerprint(kernels.ptx("add"))
    assert remote_widths(code_read, "atomic") == {4: 16}
    assert {access.bits for access in code_read.accesses if access.kind == "atomic"} == {("sys", "acq_rel")}


def test_the_hash_is_of_the_code_alone():
    text = kernels.ptx("put", "fp16")
    renamed = (
        text.replace("kernels.py", "moved.py").replace("put_param_", "other_param_").replace("$L__BB0_", "$L__BB7_")
    )
    assert renamed != text
    assert fingerprint(renamed).sha256 == fingerprint(text).sha256
    changed = text.replace("st.global.v4.b32", "st.global.wt.v4.b32")
    assert fingerprint(changed).sha256 != fingerprint(text).sha256
