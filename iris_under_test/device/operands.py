"""Conversions of the operands and results of atomics, for Triton and Gluon kernels alike."""

import triton
import triton.language as tl

from .targets import intrinsics

__all__ = ["negated", "used"]


@triton.jit
def negated(val, element_ty: tl.constexpr, positive):
    """Return ``-val`` as ``element_ty``. ``positive``: an integer above 0 whose sign the compiler does not know.

    Example: 3 as int32 gives -3; 0.0 gives -0.0; -2^31 as int32 gives itself.
    """
    # Converted first: the negative of a narrower or unsigned value need not fit its own type.
    value = tl.cast(val, element_ty)
    if element_ty.is_floating():  # noqa: SIM108
        # Not -value: Triton 3.6 makes it 0 - value, which loses the sign of a zero.
        result = value * -1.0
    else:
        # Not -value: LLVM would turn the addition of it into an atomic subtraction, which AMD GPUs run as a
        # compare-and-swap loop at system scope.
        result = value * tl.where(positive > 0, -1, 1).to(element_ty)
    return result


@triton.jit
def used(old):
    """Return ``old``, and make the compiler treat it as read.

    On AMD GPUs, if the old values of a block are unused, Triton 3.6 to 3.9 first combine the lanes of a wavefront that
    address the same element (triton PR #5631), and combine signed minima and maxima as unsigned ones: atomic_max of -1
    and 5 on one element stores -1. The harness found this; its requirements ATOMIC-MAX and ATOMIC-MIN fail without this
    function.
    """
    return intrinsics().used(old)
