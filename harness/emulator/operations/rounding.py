"""Directed rounding: MODE.FP_ROUND other than to nearest even.

Source: CDNA3 ISA, "Wave State" (MODE, FP_ROUND: 0 nearest even, 1 toward +infinity, 2 toward -infinity, 3 toward zero;
bits 1..0 for 32-bit results, 3..2 for those of 16 and 64 bits). The host's own rounding mode is set around an op, and
NumPy's arithmetic and conversions of 32 and 64 bits follow it. float16 is computed in float64 and narrowed in the same
direction, which equals a single rounding.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.operations.table import Op

# C's FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO.
_HOST = {
    "x86_64": (0, 0x800, 0x400, 0xC00),
    "aarch64": (0, 0x400000, 0x800000, 0xC00000),
}.get(platform.machine())
_UP, _DOWN = 1, 2


def applies(op: Op) -> bool:
    """Return True if an op depends on the rounding mode."""
    return bool(op.rounds)


def direction(op: Op, mode: int) -> int:
    """Return FP_ROUND for the op's result."""
    return mode & 3 if op.results[0] == "f32" else mode >> 2 & 3


def rounded(op: Op, function: Callable[..., Any], to: int) -> Callable[..., Any]:
    """Return the op's function with its results rounded in direction ``to``."""
    if _HOST is None or op.rounds == "steps":
        raise UnimplementedInstruction(f"{op.name} with rounding mode {to} is not implemented")
    if op.results[0] != "f16":
        return _inside(function, to)
    if op.sources[0] != "f16":  # a conversion to float16
        return lambda a: narrow(a.astype(np.float64), to)
    wide = _inside(function, to)
    return lambda *sources: narrow(wide(*(x.astype(np.float64) for x in sources)), to)


def narrow(x: np.ndarray, to: int) -> np.ndarray:
    """Convert float64 to float16 in direction ``to``."""
    near = x.astype(np.float16)
    above = near.astype(np.float64) > x
    below = near.astype(np.float64) < x
    down = (to == _DOWN) | ((to not in (_UP, _DOWN)) & (x > 0))
    up = (to == _UP) | ((to not in (_UP, _DOWN)) & (x < 0))
    near = np.where(above & down, np.nextafter(near, np.float16(-np.inf)), near)
    return np.where(below & up, np.nextafter(near, np.float16(np.inf)), near)


def _inside(function: Callable[..., Any], to: int) -> Callable[..., Any]:
    def directed(*sources: np.ndarray) -> Any:
        with _host_rounds(to):
            return function(*sources)

    return directed


@contextmanager
def _host_rounds(to: int) -> Iterator[None]:
    """Set this thread's floating-point rounding mode inside a with block."""
    assert _HOST is not None  # sanity check
    library = ctypes.CDLL(None)
    library.fesetround(_HOST[to])
    try:
        yield
    finally:
        library.fesetround(_HOST[0])
