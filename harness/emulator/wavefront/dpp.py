"""Data-parallel primitives: the lane moves that DPP encodings apply to source 0.

Source: AMD "CDNA3 ISA", section on DPP; LLVM AMDGPU modifier syntax. A row is 16 lanes, a bank 4. A lane whose source
lane is outside the row, or disabled in EXEC, is invalid: with ``bound_ctrl`` it reads 0, without it the lane is not
written.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.wavefront.state import LANES

_LANE = np.arange(LANES)
MODIFIERS = {
    "quad_perm",
    "row_shl",
    "row_shr",
    "row_ror",
    "row_bcast",
    "row_newbcast",
    "row_mirror",
    "row_half_mirror",
    "wave_shl",
    "wave_shr",
    "wave_rol",
    "wave_ror",
    "row_mask",
    "bank_mask",
    "bound_ctrl",
}


@dataclass(frozen=True)
class Control:
    """A lane move: ``source[lane]`` is the lane that is read, ``inside[lane]`` is True if that lane exists.

    ``enabled[lane]`` combines row_mask and bank_mask.
    """

    source: np.ndarray
    inside: np.ndarray
    enabled: np.ndarray
    zero_invalid: bool

    def apply(self, value: np.ndarray, exec_mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the moved value, shape [W, 64], and the lanes to write."""
        valid = self.inside & exec_mask[:, self.source]
        moved = value[:, self.source]
        write = exec_mask & self.enabled
        if self.zero_invalid:
            return np.where(valid, moved, moved.dtype.type(0)), write
        return moved, write & valid


def control(modifiers: dict[str, str]) -> Control:
    """Return the control of an instruction's modifiers, for example ``row_shr:1 row_mask:0xf bank_mask:0xf``."""
    source, inside = _moves(modifiers)
    rows = int(modifiers.get("row_mask", "0xf"), 0)
    banks = int(modifiers.get("bank_mask", "0xf"), 0)
    enabled = (rows >> (_LANE // 16) & 1 & (banks >> (_LANE % 16 // 4))).astype(bool)
    return Control(np.where(inside, source, _LANE), inside, enabled, "bound_ctrl" in modifiers)


def _moves(modifiers: dict[str, str]) -> tuple[np.ndarray, np.ndarray]:
    row, column = _LANE // 16 * 16, _LANE % 16
    everywhere = np.ones(LANES, bool)
    for name, text in modifiers.items():
        if name == "quad_perm":
            picks = np.array([int(n) for n in re.findall(r"\d+", text)])
            return _LANE // 4 * 4 + picks[_LANE % 4], everywhere
        n = int(text, 0) if text.isdigit() else 0
        if name == "row_shl":
            return _LANE + n, column + n < 16
        if name == "row_shr":
            return _LANE - n, column >= n
        if name == "row_ror":
            return row + (column - n) % 16, everywhere
        if name == "wave_shl":
            return _LANE + 1, _LANE < LANES - 1
        if name == "wave_shr":
            return _LANE - 1, _LANE > 0
        if name == "wave_rol":
            return (_LANE + 1) % LANES, everywhere
        if name == "wave_ror":
            return (_LANE - 1) % LANES, everywhere
        if name == "row_mirror":
            return row + 15 - column, everywhere
        if name == "row_half_mirror":
            return _LANE // 8 * 8 + 7 - _LANE % 8, everywhere
        if name == "row_newbcast":
            return row + n, everywhere
        if name == "row_bcast" and n == 15:
            return row - 1, _LANE >= 16
        if name == "row_bcast" and n == 31:
            return np.full(LANES, 31), _LANE >= 32
    raise UnimplementedInstruction(f"the DPP control {modifiers} is not implemented")
