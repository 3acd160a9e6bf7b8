"""Fused multiply-add: a * b + c with one rounding, by LLVM's ``llvm.fma`` (the host's instruction, or the C library's
exact routine).

NumPy has no fused multiply-add, and multiplying in a wider format rounds twice for float32. Compiled on first use,
about 0.3 s once per machine; numba keeps the code in its cache on disk.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from harness.emulator import compilation


def _fma_of(kind: Any, llvm_type: ir.Type) -> Callable[..., Any]:
    @intrinsic
    def fma(typing: Any, a: Any, b: Any, c: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.fma(*args)

        return kind(kind, kind, kind), codegen

    return fma


fma32 = _fma_of(types.float32, ir.FloatType())
fma64 = _fma_of(types.float64, ir.DoubleType())


@njit(cache=True, nogil=True)
def _each32(a: np.ndarray, b: np.ndarray, c: np.ndarray, out: np.ndarray) -> None:
    for i in range(out.size):
        out[i] = fma32(a[i], b[i], c[i])


@njit(cache=True, nogil=True)
def _each64(a: np.ndarray, b: np.ndarray, c: np.ndarray, out: np.ndarray) -> None:
    for i in range(out.size):
        out[i] = fma64(a[i], b[i], c[i])


_COMPILED = {
    np.dtype(np.float32): (_each32, (types.float32[::1],) * 4),
    np.dtype(np.float64): (_each64, (types.float64[::1],) * 4),
}


def fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return a * b + c rounded once; float16, float32 or float64, any shapes that broadcast."""
    dtype = np.result_type(a, b, c)
    if dtype == np.float16:
        # In float64 the product is exact, and where the sum is not, it is far from halfway between two float16 values.
        rounded: np.ndarray = (np.multiply(a, b, dtype=np.float64) + c).astype(np.float16)
        return rounded
    for operand in (a, b, c):
        if hasattr(operand, "fused_multiply_add"):  # symbolic: see harness.emulator.program.compiled
            fused: np.ndarray = operand.fused_multiply_add(a, b, c)
            return fused
    function, signature = _COMPILED[dtype]
    if not function.signatures:
        compilation.compile_now({function: signature})
    shape = np.broadcast_shapes(np.shape(a), np.shape(b), np.shape(c))
    values: np.ndarray = np.empty((4, *shape), dtype)
    for row, source in zip(values, (a, b, c), strict=False):
        row[...] = source
    flat = values.reshape(4, -1)
    function(flat[0], flat[1], flat[2], flat[3])
    result: np.ndarray = values[3]
    return result


def narrow_once(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return a * b + c of float32 values, rounded once to float16.

    The product is exact in float64; the sum is rounded to odd there (its error decides), so rounding it again has the
    effect of a single rounding.
    """
    a, b, c = (x.astype(np.float64) for x in np.broadcast_arrays(a, b, c))
    product = a * b
    total = product + c
    # Knuth's two-sum: the exact error of the addition.
    part = total - product
    error = (product - (total - part)) + (c - part)
    even = total.view(np.uint64) & np.uint64(1) == 0
    inexact = np.isfinite(total) & (error != 0) & even
    toward = np.where(error > 0, np.inf, -np.inf)
    odd: np.ndarray = np.where(inexact, np.nextafter(total, toward), total)
    return odd.astype(np.float16)
