"""Translation of a pointer from one rank's heap to another's that keeps accesses wide."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

__all__ = ["translate"]


@gluon.jit
def translate(pointer, heap_bases, from_rank, to_rank):
    """Return ``pointer`` (scalar or block, in ``from_rank``'s heap) moved to the same offset of ``to_rank``'s heap.

    The usual form, pointer -> integer -> pointer, makes Triton forget that the pointers of a block are contiguous and
    aligned, and a 16-byte store becomes eight 2-byte ones. Here the pointer itself moves, by a whole number of
    elements. Heap bases are page aligned, so their difference divides by 16 and the shift is exact; the step is written
    as a multiple of 16 bytes, which shows Triton that the alignment survives.

    Example: int32, bases 0x1000 and 0x9000: (0x8000 >> 4) * (16 // 4) = 0x2000 elements = 0x8000 bytes.
    """
    from_base = gl.load(heap_bases + from_rank)
    to_base = gl.load(heap_bases + to_rank)
    # 1-bit elements occupy one byte.
    bytes_per_element: gl.constexpr = (pointer.dtype.element_ty.primitive_bitwidth + 7) // 8
    elements_per_16_bytes: gl.constexpr = 16 // bytes_per_element
    return pointer + ((to_base - from_base) >> 4) * elements_per_16_bytes
