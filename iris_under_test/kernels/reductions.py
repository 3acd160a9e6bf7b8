"""Operations of ``ReduceOp`` on elements, for Triton and Gluon kernels alike."""

import triton
import triton.language as tl

from iris_under_test.device.operands import used

__all__ = ["atomically_combine", "combined", "widened"]


@triton.jit
def widened(value):
    """Return float16 and bfloat16 as float32, in which they are reduced; other types unchanged."""
    if value.dtype.is_floating() and value.dtype.primitive_bitwidth == 16:
        value = value.to(tl.float32)
    return value


@triton.jit
def combined(left, right, OP: tl.constexpr):
    """Return the reduction of ``left`` and ``right``, of one type. OP: a code of ``ReduceOp``.

    Example, OP 6 (BXOR): 6 and 3 give 5.
    """
    if OP == 0:
        result = left + right
    elif OP == 1:
        result = left * right
    elif OP == 2:
        result = tl.minimum(left, right)
    elif OP == 3:
        result = tl.maximum(left, right)
    elif OP == 4:
        result = left & right
    elif OP == 5:
        result = left | right
    else:
        result = left ^ right
    return result


@triton.jit
def atomically_combine(pointers, value, mask, OP: tl.constexpr):
    """Reduce ``value`` into the elements at ``pointers`` by atomics, concurrently with other devices. PRODUCT has no
    atomic.
    """
    if OP == 0:
        tl.atomic_add(pointers, value, mask=mask, sem="relaxed", scope="sys")
    elif OP == 2:
        used(tl.atomic_min(pointers, value, mask=mask, sem="relaxed", scope="sys"))
    elif OP == 3:
        used(tl.atomic_max(pointers, value, mask=mask, sem="relaxed", scope="sys"))
    elif OP == 4:
        tl.atomic_and(pointers, value, mask=mask, sem="relaxed", scope="sys")
    elif OP == 5:
        tl.atomic_or(pointers, value, mask=mask, sem="relaxed", scope="sys")
    else:
        tl.atomic_xor(pointers, value, mask=mask, sem="relaxed", scope="sys")
