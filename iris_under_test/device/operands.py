"""What atomics do to their operands and results, shared by Triton and Gluon kernels.

The functions use only builtins that both languages have under the same name; ``triton_*`` are for Triton kernels.
"""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.language.target_info import is_hip

__all__ = ["negated", "triton_negated", "triton_used", "used"]


def _negated(val, element_ty: tl.constexpr, positive):
    """Returns ``-val`` as ``element_ty``. ``positive``: any integer above 0 of which the compiler does not know that.

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


def _used(old):
    """Returns ``old`` and makes the compiler believe that it is read.

    On AMD GPUs, when nobody reads the old values of a block, Triton 3.6 to 3.9 first combine the lanes of a wavefront
    that address the same element (triton PR #5631), and combine signed minima and maxima as unsigned ones: atomic_max
    of -1 and 5 on one element stores -1. The harness found this; its requirements ATOMIC-MAX and ATOMIC-MIN fail
    without this.
    """
    # Only the AMD compiler combines them, and only it knows "v", its vector register: no instruction, only an operand.
    if is_hip() and old.type.is_block() and old.dtype.is_int_signed():
        old = tl.inline_asm_elementwise("; $0", "=v,0", [old], dtype=old.dtype, is_pure=False, pack=1)
    return old


negated, used = gluon.jit(_negated), gluon.jit(_used)
triton_negated, triton_used = triton.jit(_negated), triton.jit(_used)
