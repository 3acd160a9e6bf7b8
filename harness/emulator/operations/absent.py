"""Opcodes that LLVM's assembler accepts for gfx942 or gfx950 and that the emulator lacks, with the reason.

``tests/emulator/test_every_opcode.py`` compares this list with that of LLVM.
"""

from __future__ import annotations

import re

ABSENT = {
    r"ds_gws_\w+": "the global wave synchronization unit is not modelled",
    r"s_scratch_(load|store)_\w+": "the layout of the private segment in memory is not modelled",
    r"scratch_load_lds_\w+": "copies from the private segment to LDS are not modelled: no compiler emits them",
    r"s_set_gpr_idx_\w+": "relative addressing of vector registers is not modelled",
    r"s_cbranch_(g_fork|i_fork|join)": "the stack of branches is not modelled",
    r"s_cbranch_cdbg\w+": "the debugger's state is not modelled",
    r"s_rfe_\w+": "trap handlers are not modelled",
    r"s_setvskip": "skipping vector instructions is not modelled",
    r"s_(setkill|sendmsghalt|endpgm_saved|endpgm_ordered_ps_done)": "other ends of a wavefront are not modelled",
    r"v_screen_partition_4se_b32": "the graphics units are not modelled",
    r"v_mfma_ld_scale_b32": "it is a part of v_mfma_scale_*, which is written as one instruction",
}
_PATTERNS = {re.compile(pattern): reason for pattern, reason in ABSENT.items()}


def reason(mnemonic: str) -> str:
    """Return why the emulator lacks an opcode that exists, or nothing."""
    return next((why for pattern, why in _PATTERNS.items() if pattern.fullmatch(mnemonic)), "")
