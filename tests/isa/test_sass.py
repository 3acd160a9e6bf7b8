"""SASS: forms written by hand, and the machine code that ptxas makes of Triton's PTX for sm_90."""

import pytest

from harness.devices.cuda import tool
from harness.devices.launches import GpuCode
from harness.errors import HarnessError
from harness.isa import remote_mismatch, remote_widths, sass
from tests.isa import kernels

disassembles = pytest.mark.skipif(
    not (tool("nvdisasm") and tool("cuobjdump")), reason="needs nvdisasm and cuobjdump, of Triton's package or the PATH"
)


@pytest.mark.parametrize(
    ("opcode", "space", "kind", "width", "words"),
    [
        ("LDG.E.U8", "global", "load", 1, ()),
        ("STG.E.U16", "global", "store", 2, ()),
        ("LDG.E", "global", "load", 4, ()),
        ("LDG.E.64.CONSTANT", "global", "load", 8, ("CONSTANT",)),
        ("LDG.E.128.STRONG.GPU", "global", "load", 16, ("STRONG", "GPU")),
        ("STG.E.EF.128", "global", "store", 16, ("EF",)),
        ("LDGSTS.E.BYPASS.LTC128B.128", "global", "load", 16, ("BYPASS", "LTC128B")),
        ("LD.E.128", "flat", "load", 16, ()),
        ("ATOMG.E.ADD.F32.FTZ.RN.STRONG.SYS", "global", "atomic", 4, ("STRONG", "SYS")),
        ("ATOMG.E.MIN.S64.STRONG.SM", "global", "atomic", 8, ("STRONG", "SM")),
        ("ATOMG.E.ADD.F16x2.RN.STRONG.GPU", "global", "atomic", 4, ("STRONG", "GPU")),
        ("ATOMG.E.CAS.64.STRONG.GPU", "global", "atomic", 8, ("STRONG", "GPU")),
        ("REDG.E.ADD.F16x8.RN.STRONG.SYS", "global", "atomic", 16, ("STRONG", "SYS")),
        ("REDG.E.XOR.STRONG.GPU", "global", "atomic", 4, ("STRONG", "GPU")),
    ],
)
def test_forms(opcode, space, kind, width, words):
    form = sass.access_form(opcode)
    assert (form.space, form.kind, form.width, sass.qualifiers(opcode)) == (space, kind, width, words)


@pytest.mark.parametrize(
    "opcode", ["LDC.64", "LDS.128", "STS", "STL.64", "LDL", "MEMBAR.ALL.SYS", "CCTL.IVALL", "REDUX"]
)
def test_what_is_no_access_to_global_memory(opcode):
    assert sass.access_form(opcode) is None


@pytest.mark.parametrize("opcode", ["LDG.E.256", "STG.E.FROB", "ATOMG.E.ADD.F64.64"])
def test_an_unknown_width_is_an_error_not_a_guess(opcode):
    with pytest.raises(HarnessError, match=opcode):
        sass.access_form(opcode)


@pytest.mark.parametrize("text", ["", "no code", '\t.elftype\t@"ET_EXEC"\n\t.target\tsm_90a\n'])
def test_a_text_that_is_no_disassembly(text):
    with pytest.raises(HarnessError):
        sass.read(text)


def code_of(tmp_path, compiled):
    """A GpuCode over files with what Triton compiled."""
    files = {f"{compiled.name}.{kind}": str(tmp_path / f"{compiled.name}.{kind}") for kind in ("ptx", "cubin")}
    (tmp_path / f"{compiled.name}.ptx").write_text(compiled.asm["ptx"])
    (tmp_path / f"{compiled.name}.cubin").write_bytes(compiled.asm["cubin"])
    return GpuCode(compiled.hash, compiled.name, files)


@disassembles
def test_the_stores_of_ptx_are_those_of_the_machine_code(tmp_path):
    code = code_of(tmp_path, kernels.compiled("put", "cuda", "fp16", True, kernels.shift))
    machine_code = sass.read(code.sass, code.listing)
    assert (machine_code.language, machine_code.arch[:5], machine_code.barriers, machine_code.fences) == (
        "sass",
        "sm_90",
        0,
        {},
    )
    assert {(a.mnemonic, a.where, a.count) for a in machine_code.accesses if a.kind == "store"} == {
        ("STG.E.128", "remote", 2)
    }
    assert machine_code.widths("local", "load") == {8: 2, 16: 2}
    assert remote_mismatch(machine_code, "store", 16) is None
    assert 0 < machine_code.registers < 64
    assert (machine_code.scratch, machine_code.lds, machine_code.vgprs, machine_code.vgpr_spills) == (0, 0, None, None)


@disassembles
def test_a_narrow_store_is_named_in_the_machine_code_too(tmp_path):
    code = code_of(tmp_path, kernels.compiled("put", "cuda", "fp16", True, kernels.rebase))
    machine_code = sass.read(code.sass, code.listing)
    assert remote_widths(machine_code, "store") == {2: 16}
    assert "kernels.py:34" in remote_mismatch(machine_code, "store", 16)


@disassembles
def test_an_atomic_of_system_scope(tmp_path):
    code = code_of(tmp_path, kernels.compiled("add", "cuda"))
    machine_code = sass.read(code.sass, code.listing)
    assert {(a.where, a.bits) for a in machine_code.accesses if a.kind == "atomic"} == {("remote", ("STRONG", "SYS"))}
    assert set(machine_code.fences) == {"MEMBAR.ALL.SYS", "CCTL.IVALL"}


@disassembles
def test_the_hash_is_of_the_code_alone(tmp_path):
    text = code_of(tmp_path, kernels.compiled("put", "cuda", "fp16", True, kernels.shift)).sass
    moved = text.replace("kernels.py", "moved.py").replace(".L_x_", ".L_x_9")
    assert sass.read(moved).sha256 == sass.read(text).sha256
    assert sass.read(text.replace("STG.E.128", "STG.E.64")).sha256 != sass.read(text).sha256


PTX = """
.version 9.4
.target sm_90a
.visible .entry kernel(
	.param .u64 .ptr .global .align 1 kernel_param_0,
	.param .u64 .ptr .global .align 1 kernel_param_1
)
{
	.loc 1 1 9
	ld.param.b64 %rd4, [kernel_param_0];
	ld.param.b64 %rd2, [kernel_param_1];
	ld.global.b64 %rd1, [%rd4];
	.loc 1 2 9
	// begin inline asm
	.loc 1 2 9
	mov.u32 %r1, 0x0;
	.loc 1 3 9
	@%p1 ld.global.b32 { %r1 }, [ %rd1 + 0 ];
	// end inline asm
	.loc 1 5 9
	st.global.b32 [%rd2], %r1;
	.loc 1 2 9
	atom.global.sys.relaxed.add.noftz.bf16 %rs1, [%rd1], %rs2;
	ret;
}
	.file	1 "FILE"
"""
SASS = """
	.target	sm_90a
	.elftype	@"ET_EXEC"
	//## File "FILE", line {line}
        /*0010*/              @!P0 {opcode} R10, desc[UR6][R4.64] ;
"""


@pytest.mark.parametrize(
    ("line", "opcode", "where"),
    [
        (3, "LDG.E", "remote"),  # the second line of the inline assembly that stands for line 2
        (5, "STG.E", "local"),
        (2, "ATOMG.E.CAS.STRONG.SYS", "remote"),
        (5, "LDG.E", "local"),  # of another kind than the PTX has there
        (4, "LDG.E", "unattributed"),  # the PTX has nothing there
    ],
)
def test_places_are_looked_up_in_the_ptx(tmp_path, line, opcode, where):
    source = tmp_path / "device.py"
    source.touch()
    text = SASS.format(line=line, opcode=opcode).replace("FILE", str(source))
    [access] = sass.read(text, PTX.replace("FILE", str(source))).accesses
    assert access.where == where


@pytest.mark.parametrize(
    ("opcode", "mismatch"),
    [("STG.E.128", None), ("STG.E", "1 x 4 bytes wide")],
)
def test_an_unrolled_loop_stores_locally_and_remotely_at_one_line(tmp_path, opcode, mismatch):
    """The code of the local and of the remote store cannot be distinguished by its position: both must be wide."""
    source = tmp_path / "device.py"
    source.touch()
    listing = PTX.replace(
        "st.global.b32 [%rd2], %r1;", "st.global.v4.b32 [%rd2], {%r1,%r1,%r1,%r1};\n\tst.global.v4.b32 [%rd1], {%r1};"
    )
    text = SASS.format(line=5, opcode=opcode) + "        /*0020*/              STG.E.128 desc[UR6][R8.64], R4 ;\n"
    code = sass.read(text.replace("FILE", str(source)), listing.replace("FILE", str(source)))
    assert {access.where for access in code.accesses} == {"remote"}
    shown = remote_mismatch(code, "store", 16)
    assert shown is None if mismatch is None else mismatch in str(shown)


def test_an_inline_chain_of_the_disassembler(tmp_path):
    source = tmp_path / "device.py"
    source.touch()
    text = SASS.format(line=4, opcode="LDG.E").replace(
        '", line 4\n', f'", line 4 inlined at "{source}", line 2\n\t//## File "{source}", line 2\n'
    )
    [access] = sass.read(text.replace("FILE", str(source))).accesses
    assert (access.where, access.source) == ("unattributed", f"{source}:4:0 @ {source}:2:0")
