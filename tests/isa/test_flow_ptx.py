"""Ways of an address in PTX that few kernels take: a planted one each, of which Triton's compiler writes no short
example."""

import pytest

from harness.isa import fingerprint, remote_mismatch

# Argument 0 is the table, 1 the tensor, 2 an index. %rd6 is the address in the peer's memory.
KERNEL = """
.version 8.6
.target sm_90a
.address_size 64
{function}
.visible .entry planted(
	.param .u64 .ptr .global .align 1 planted_param_0,
	.param .u64 .ptr .global .align 1 planted_param_1,
	.param .u32 planted_param_2
)
{{
	.local .align 8 .b8 	__local_depot1[32];
	.reg .b64 	%rd<20>;
	ld.param.b64 	%rd1, [planted_param_0];
	ld.param.b64 	%rd4, [planted_param_1];
	ld.param.b32 	%r1, [planted_param_2];
	ld.global.b64 	%rd2, [%rd1];
	ld.global.b64 	%rd3, [%rd1+8];
	sub.s64 	%rd5, %rd3, %rd2;
	add.s64 	%rd6, %rd4, %rd5;
	mov.b64 	%SPL, __local_depot1;
	mul.wide.u32 	%rd7, %r1, 8;
	add.s64 	%rd8, %SPL, %rd7;
{body}
	ret;
}}
"""
STORE = "	st.global.v4.b32 	[%rd9], {%r6, %r7, %r8, %r9};"
WAYS = {
    "loaded from any place of an array in local memory": """
	st.local.b64 	[%SPL], %rd4;
	st.local.b64 	[%SPL+8], %rd6;
	ld.local.b64 	%rd9, [%rd8];""",
    "stored to any place of an array in local memory": """
	st.local.b64 	[%SPL], %rd4;
	st.local.b64 	[%rd8], %rd6;
	ld.local.b64 	%rd9, [%SPL+8];""",
    "kept in local memory during a call": """
	st.local.b64 	[%SPL], %rd6;
	call.uni 	callee, ();
	ld.local.b64 	%rd9, [%SPL];""",
    "matrix stored to shared memory": """
	mov.b64 	{%r2, %r3}, %rd6;
	stmatrix.sync.aligned.m8n8.x2.shared.b16 	[%r1], {%r2, %r3};
	ld.shared.b64 	%rd9, [%r1];""",
    "matrix loaded from shared memory": """
	st.shared.b64 	[%r1], %rd6;
	ldmatrix.sync.aligned.m8n8.x2.shared.b16 	{%r2, %r3}, [%r1];
	mov.b64 	%rd9, {%r2, %r3};""",
    "exchanged in shared memory": """
	atom.shared.exch.b64 	%rd10, [%r1], %rd6;
	ld.shared.b64 	%rd9, [%r1];""",
    "table copied to shared memory": """
	cp.async.cg.shared.global 	[%r1], [%rd1], 16;
	cp.async.wait_all;
	ld.shared.v2.b64 	{%rd11, %rd12}, [%r1];
	sub.s64 	%rd13, %rd12, %rd11;
	add.s64 	%rd9, %rd4, %rd13;""",
    "in a pair": """
	mov.b128 	%rq1, {%rd4, %rd6};
	mov.b128 	{%rd10, %rd9}, %rq1;""",
    "one of several ways": """
	mov.b64 	%rd9, %rd4;
table:
	.branchtargets
		$L_near,
		$L_far;
	brx.idx 	%r1, table;
$L_near:
	ret;
$L_far:
	mov.b64 	%rd9, %rd6;""",
    "handed over to other warps": """
	setp.eq.u32 	%p1, %r1, 0;
	@%p1 bra 	$L_other;
	st.shared.b64 	[%r2], %rd5;
	ret;
$L_other:
	ld.shared.b64 	%rd10, [%r2];
	add.s64 	%rd9, %rd4, %rd10;""",
    "with an index of many parts, each of which may be missing": "".join(
        f"""
	mul.lo.s64 	%rd11, %rd{factor}, %rd7;
	selp.b64 	%rd12, %rd11, 0, %p1;
	{operation}.s64 	%rd13, %rd13, %rd12;"""
        for factor in (1, 2, 4)
        for operation in ("add", "sub")
    )
    + "\n\tadd.s64 	%rd9, %rd6, %rd13;",
    "with a remainder from the same table": """
	rem.s64 	%rd10, %rd3, 3;
	brev.b64 	%rd11, %rd2;
	add.s64 	%rd12, %rd10, %rd11;
	add.s64 	%rd9, %rd6, %rd12;""",
}
CALLEE = """
.func callee()
{
	.local .align 8 .b8 	__local_depot0[8];
	mov.b64 	%SPL, __local_depot0;
	st.local.b64 	[%SPL], 7;
	ret;
}
"""


def planted(way, store=STORE):
    return fingerprint(KERNEL.format(function=CALLEE, body=f"{way}\n{store}"))


@pytest.mark.parametrize("way", WAYS)
def test_a_remote_address_is_followed(way):
    code = planted(WAYS[way])
    assert code.widths("remote", "store") == {16: 1}
    assert remote_mismatch(code, "store", 16) is None


@pytest.mark.parametrize("way", WAYS)
def test_a_narrow_store_there_is_a_mismatch(way):
    narrow = planted(WAYS[way], "	st.global.b32 	[%rd9], %r6;")
    assert "1 x 4 bytes wide, wanted 16" in remote_mismatch(narrow, "store", 16)


def test_local_memory_of_a_function_is_its_own():
    code = planted(WAYS["kept in local memory during a call"].replace("%rd6", "%rd4"))
    assert code.widths("local", "store") == {16: 1}
