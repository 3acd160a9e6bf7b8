"""Second spellings of opcodes that LLVM's assembler accepts for gfx942 and gfx950; its disassembler prints the first.

Source: LLVM VOP3PInstructions.td, aliases of the matrix products of gfx90a, whose names have no underscore before the
type and no number of blocks; ``tests/emulator/test_every_opcode.py`` compares the encodings.
"""

from __future__ import annotations

import functools
import re

_PRODUCT = re.compile(r"v_mfma_([fi]\d+)_(\d+x\d+x\d+)(f16|bf16|f32|xf32|f64|i8)(?:_1k)?")
# Number of blocks by shape, where it is not 1.
_BLOCKS = {"32x32x1": 2, "16x16x1": 4, "4x4x1": 16, "32x32x4": 2, "16x16x4": 4, "4x4x4": 16}


@functools.lru_cache(maxsize=4096)
def canonical(mnemonic: str) -> str:
    """Return the name by which the emulator knows the opcode of a mnemonic."""
    if mnemonic.startswith("v_mul_lo_i32"):
        return mnemonic.replace("_i32", "_u32")
    match = _PRODUCT.fullmatch(mnemonic)
    if match is None:
        return mnemonic
    result, shape, source = match.groups()
    blocks = _BLOCKS.get(shape, 1)
    if source == "xf32" or (source, shape) in (("f32", "16x16x4"), ("f64", "16x16x4")):
        blocks = 1
    if source == "f64":
        blocks = {"4x4x4": 4}.get(shape, 1)
    return f"v_mfma_{result}_{shape}_{f'{blocks}b_' if blocks > 1 else ''}{source}"
