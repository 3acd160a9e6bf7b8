"""Widths of amdgcn vector memory instructions, derived from their mnemonics.

The suffixes are those of the gfx9 family (gfx942, gfx950), which LLVM prints for both targets alike.
"""

from __future__ import annotations

import functools
import re

from harness.errors import HarnessError
from harness.isa.record import AccessForm

_VECTOR = re.compile(r"^(global|buffer|flat)_(load|store|atomic)_(\w+)$")
_SCALAR = re.compile(r"^s_(?:buffer_)?load_(\w+)$")
_WIDTHS = {
    "ubyte": 1, "sbyte": 1, "byte": 1,
    "ushort": 2, "sshort": 2, "short": 2,
    "dword": 4, "dwordx2": 8, "dwordx3": 12, "dwordx4": 16, "dwordx8": 32, "dwordx16": 64,
}  # fmt: skip


@functools.cache
def access_form(mnemonic: str) -> AccessForm | None:
    """Return the form of a memory instruction, or None if ``mnemonic`` does not access global memory.

    Raises HarnessError for a global access of unknown width: a guess could cause a wrong verdict.
    """
    if scalar := _SCALAR.match(mnemonic):
        return AccessForm("scalar", "load", _width(mnemonic, scalar[1]))
    if not (vector := _VECTOR.match(mnemonic)):
        return None
    space, kind, rest = vector.groups()
    if kind == "atomic":
        return AccessForm(space, kind, _atomic_width(mnemonic, rest))  # type: ignore[arg-type]
    rest = rest.removeprefix("lds_").removesuffix("_d16_hi").removesuffix("_d16")
    return AccessForm(space, kind, _width(mnemonic, rest))  # type: ignore[arg-type]


def _width(mnemonic: str, suffix: str) -> int:
    try:
        return _WIDTHS[suffix]
    except KeyError:
        raise HarnessError(f"the width of {mnemonic!r} is not known: add it to harness/isa/mnemonics.py") from None


def _atomic_width(mnemonic: str, rest: str) -> int:
    if rest.endswith(("_x2", "_f64")):
        return 8
    if re.fullmatch(r"(add|sub|swap|cmpswap|[su](min|max)|and|or|xor|inc|dec)|(add|min|max)_f32|pk_add_b?f16", rest):
        return 4
    raise HarnessError(f"the width of {mnemonic!r} is not known: add it to harness/isa/mnemonics.py")
