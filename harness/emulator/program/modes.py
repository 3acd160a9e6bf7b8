"""The float modes of the MODE register, which change what an instruction computes.

Source: CDNA3 ISA, "Wave State" (MODE) and VOP3 output modifiers; LLVM AMDGPUUsage, "Kernel Descriptor"
(FLOAT_DENORM_MODE, ENABLE_DX10_CLAMP, ENABLE_IEEE_MODE, FP16_OVFL). Denormal numbers: 0 flushes sources and results,
1 results, 2 sources, 3 nothing. IEEE quiets signalling NaN in minima and maxima, and switches output modifiers off.
DX10_CLAMP makes a clamped NaN 0. FP16_OVFL makes a float16 overflow the largest number; an infinity among the sources
stays one. The rounding mode is handled in ``rounding``.

Triton sets denormals, IEEE and DX10_CLAMP, which is ``USUAL`` and costs nothing. ``allow_flush_denorm`` and casts to
8-bit floats change MODE: the instructions that depend on it then have a step for each value of MODE that occurs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.operations import rounding
from harness.emulator.operations.floating import WITHOUT_IEEE
from harness.emulator.operations.table import Op
from harness.emulator.wavefront.state import (
    DENORMALS_16_64,
    DENORMALS_32,
    DTYPES,
    DX10_CLAMP,
    FP16_OVFL,
    IEEE,
    MODE,
    ROUNDING,
    Wavefronts,
)

USUAL = DENORMALS_32 | DENORMALS_16_64 | DX10_CLAMP | IEEE
_SHIFT = {"f16": 6, "f32": 4, "f64": 6}


def initial(directives: dict[str, int]) -> int:
    """Return MODE at entry, from the kernel descriptor, with defaults for missing directives."""
    return (
        directives.get("float_round_mode_32", 0)
        | directives.get("float_round_mode_16_64", 0) << 2
        | directives.get("float_denorm_mode_32", 0) << 4
        | directives.get("float_denorm_mode_16_64", 3) << 6
        | directives.get("dx10_clamp", 1) << 8
        | directives.get("ieee_mode", 1) << 9
        | directives.get("fp16_overflow", 0) << 23
    )


def current(wf: Wavefronts) -> int:
    """Return MODE of these wavefronts. A compiler writes it where all wavefronts pass, so they agree."""
    mode = wf.s[:, MODE]
    if (mode != mode[0]).any():
        raise UnimplementedInstruction("wavefronts at one instruction with different float modes")
    return int(mode[0])


def matters(op: Op, modifiers: dict[str, str]) -> int:
    """Return the bits of MODE that an instruction depends on."""
    kinds = {kind.lstrip("@") for kind in op.results + op.sources}
    bits = ROUNDING if rounding.applies(op) else 0
    bits |= DENORMALS_32 if "f32" in kinds else 0
    bits |= DENORMALS_16_64 if kinds & {"f16", "f64"} else 0
    bits |= FP16_OVFL if "f16" in op.results else 0
    bits |= IEEE if op.function in WITHOUT_IEEE or modifiers.keys() & {"mul", "div"} else 0
    return bits | (DX10_CLAMP if "clamp" in modifiers else 0)


def flushes_results(mode: int, kind: str) -> bool:
    """Return True if denormal results of ``f16``, ``f32`` or ``f64`` become zeros."""
    return not mode >> _SHIFT[kind] & 2


def flushes_sources(mode: int, kind: str) -> bool:
    return not mode >> _SHIFT[kind] & 1


def applied(op: Op, mode: int) -> Op:
    """Return the op as it works in a mode other than ``USUAL``."""
    inner: Callable[..., Any] = op.function if mode & IEEE else WITHOUT_IEEE.get(op.function, op.function)
    if rounding.applies(op) and (to := rounding.direction(op, mode)):
        inner = rounding.rounded(op, inner, to)
    stay = op.keeps_denormals
    kinds = ["" if stay else kind.lstrip("@") for kind in op.sources]

    def function(*sources: np.ndarray) -> Any:
        flushed = [_flush(x) if _is(k, mode, flushes_sources) else x for k, x in zip(kinds, sources, strict=True)]
        result = inner(*flushed)
        parts = result if len(op.results) > 1 else (result,)
        parts = tuple(_finish(k, x, flushed, mode) for k, x in zip(op.results, parts, strict=True))
        return parts if len(op.results) > 1 else parts[0]

    return replace(op, function=function)


def _is(kind: str, mode: int, flushes: Callable[[int, str], bool]) -> bool:
    return kind in _SHIFT and flushes(mode, kind)


def _finish(kind: str, x: np.ndarray, sources: list[np.ndarray], mode: int) -> np.ndarray:
    if kind == "f16" and mode & FP16_OVFL:
        overflow = np.isinf(x)
        for source in sources:
            if source.dtype.kind == "f":
                overflow = overflow & np.isfinite(source)
        x = np.where(overflow, np.copysign(np.finfo(np.float16).max, x), x)
    return _flush(x) if _is(kind, mode, flushes_results) else x


def _flush(x: np.ndarray) -> np.ndarray:
    """Replace denormal numbers by zeros of their sign."""
    kind = x.dtype.type
    assert x.dtype in (DTYPES["f16"], DTYPES["f32"], DTYPES["f64"])  # sanity check
    return np.where(np.abs(x) < np.finfo(kind).tiny, np.copysign(kind(0), x), x)
