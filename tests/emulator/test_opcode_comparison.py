"""The comparison of opcodes with a GPU: the emulator agrees with itself, and a planted difference is reported."""

import pytest

from harness import emulator
from tests.emulator.assembler import available
from tests.gpu import opcodes


@pytest.mark.slow
@pytest.mark.skipif(not available(), reason="this Triton has no assembler that Python can call")
def test_differences_are_reported_with_their_size():
    emulator.activate("gfx942")
    try:
        one = opcodes.run("gfx942", "cpu")
    finally:
        emulator.deactivate()
    assert len(one) > 200
    assert {"v_add_f32", "v_exp_f32", "v_pk_add_u16", "v_fma_f64", "v_cvt_f16_f32"} <= set(one)
    assert not list(opcodes.differences("gfx942", one, one))
    other = {name: values.copy() for name, values in one.items()}
    other["v_add3_u32"][7] ^= 1 << 20
    other["v_mul_lo_u16"][0] ^= 1
    other["v_exp_f32"][other["v_exp_f32"] == 0x3F800000] += 1
    seen = {name: (grade, count, largest) for name, grade, count, largest in opcodes.differences("gfx942", one, other)}
    assert seen.pop("v_exp_f32")[::2] == ("approximate", 1)
    assert seen == {"v_add3_u32": ("exact", 1, 1 << 20), "v_mul_lo_u16": ("exact", 1, 1)}
