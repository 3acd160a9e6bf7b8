"""Hardware registers."""

import pytest
import torch
import triton
import triton.language as tl

from harness import emulator
from harness.emulator.faults import UnimplementedInstruction
from tests.emulator.covering import covers
from tests.emulator.single import execute

DEFAULT = 0xF0 | 1 << 8 | 1 << 9


# -- registers ---------------------------------------------------------------------------------------------------------


@covers("s_getreg_b32 s_setreg_b32 s_setreg_imm32_b32")
def test_mode_is_read_and_written_by_field():
    read = "s_getreg_b32 s4, hwreg(HW_REG_MODE)"
    assert execute(read).s(4) == [DEFAULT]
    assert execute("s_getreg_b32 s4, hwreg(HW_REG_MODE, 4, 4)").s(4) == [15]
    assert execute("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1", read).s(4) == [DEFAULT | 1 << 23]
    assert execute("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 8, 2), 0", read).s(4) == [DEFAULT & ~0x300]
    assert execute("s_setreg_b32 hwreg(HW_REG_MODE, 23, 1), s5", read, s={5: 0xFFFFFFFF}).s(4) == [DEFAULT | 1 << 23]
    # The number: register in bits 5..0, offset in 10..6, width less 1 in 15..11.
    assert execute(f"s_setreg_imm32_b32 {1 | 23 << 6}, 1", read).s(4) == [DEFAULT | 1 << 23]


@pytest.mark.parametrize(
    "text",
    [
     "s_setreg_imm32_b32 hwreg(HW_REG_TRAPSTS, 0, 1), 1", "s_getreg_b32 s4, hwreg(HW_REG_TMA_LO)"],
)  # fmt: skip
def test_what_the_emulator_lacks_is_refused(text):
    with pytest.raises(UnimplementedInstruction):
        execute(text)


@triton.jit
def where_it_runs(out):
    xcc = tl.inline_asm_elementwise("s_getreg_b32 $0, hwreg(HW_REG_XCC_ID)", "=s", [], tl.int32, False, 1)
    unit = tl.inline_asm_elementwise("s_getreg_b32 $0, hwreg(HW_REG_HW_ID, 8, 8)", "=s", [], tl.int32, False, 1)
    tl.store(out + 2 * tl.program_id(0), xcc)
    tl.store(out + 2 * tl.program_id(0) + 1, unit)


def test_work_groups_go_round_the_dies_and_their_compute_units():
    emulator.activate()
    out = torch.full((304, 2), -1, dtype=torch.int32)
    where_it_runs[(304,)](out, num_warps=1)
    emulator.deactivate()
    assert out[:, 0].tolist() == [i % 8 for i in range(304)]
    assert len({tuple(row) for row in out.tolist()}) == 304
