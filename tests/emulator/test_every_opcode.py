"""Every opcode that LLVM's assembler has for an arch is implemented, or absent with a reason."""

import pytest

from harness.emulator.driver.coverage import implemented, opcode
from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.listing.spellings import canonical
from harness.emulator.operations import absent
from tests.emulator.assembler import available, encoding, mnemonics
from tests.emulator.single import execute
from tests.emulator.test_ops_matrix import registers

pytestmark = pytest.mark.skipif(not available(), reason="this Triton has no assembler that Python can call")


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_llvm_has_no_other_opcodes(arch):
    names = mnemonics(arch)
    assert len(names) > 1300
    assert {"v_add_u32", "s_endpgm", "buffer_load_dword", "v_smfmac_i32_16x16x64_i8", "ds_gws_init"} <= set(names)
    assert not {"image_load", "v_wmma_f32_16x16x16_f16", "v_add_nc_u32"} & set(names)
    lacking = {name for name in names if opcode(canonical(name), arch) is None}
    unexplained = sorted(name for name in lacking if not absent.reason(name))
    assert not unexplained, f"{arch}: {unexplained}"
    assert not implemented(arch) - set(names), "opcodes that the arch does not have"
    # A reason for an opcode that is implemented, or that does not exist on any arch, would be wrong.
    assert not [name for name in implemented(arch) if absent.reason(name)]


def test_every_reason_is_used():
    names = {*mnemonics("gfx942"), *mnemonics("gfx950")}
    for pattern in absent.ABSENT:
        one = {pattern: absent.ABSENT[pattern]}
        assert any(absent.re.fullmatch(p, name) for p in one for name in names), pattern


def test_the_error_has_the_reason():
    with pytest.raises(UnimplementedInstruction, match="not implemented: the global wave synchronization unit"):
        execute("ds_gws_init v0 offset:4 gds")


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
def test_second_spellings_have_the_same_encoding(arch):
    others = [name for name in mnemonics(arch) if canonical(name) != name]
    assert len(others) > 25
    for name in others:
        if name == "v_mul_lo_i32":
            lines = [f"{each} v0, v1, v2" for each in (name, canonical(name))]
        else:
            lines = [_product(each, canonical(name)) for each in (name, canonical(name))]
        assert encoding(lines[0], arch) is not None, lines[0]
        assert encoding(lines[0], arch) == encoding(lines[1], arch), lines


def _product(name, known):
    from tests.emulator.matrix_reference import parse, width

    op = parse(known)
    words = [
        op.blocks * rows * columns * width(kind, "gfx942") // 2048
        for rows, columns, kind in ((op.m, op.n, op.d), (op.m, op.k, op.a), (op.k, op.n, op.b))
    ]
    d, a, b = registers(0, words[0]), registers(64, words[1]), registers(72, words[2])
    return f"{name} {d}, {a}, {b}, {d}"


def test_a_second_spelling_is_executed():
    v = {4: 0x3C003C00, 5: 0x3C003C00, 6: 0x40004000, 7: 0x40004000}
    text = "v_mfma_f32_16x16x16f16 v[0:3], v[4:5], v[6:7], 0"
    assert execute(text, v=v).v(0) == execute(text.replace("16f16", "16_f16"), v=v).v(0) == [0x42000000] * 64
