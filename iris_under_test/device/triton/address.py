"""Re-basing a pointer from one rank's heap onto another's, for Triton kernels."""

import triton
import triton.language as tl

__all__ = ["translate"]


@triton.jit
def translate(pointer, heap_bases, from_rank, to_rank, ALIGNMENT: tl.constexpr = 1):
    """Returns the scalar ``pointer`` (in ``from_rank``'s heap) moved to the same offset of ``to_rank``'s heap.

    ``ALIGNMENT``: bytes that the caller knows ``pointer`` to be a multiple of; heap bases are page aligned, so that the
    moved pointer is one too. Accesses are wide only if it is 16.

    By way of an integer, unlike ``device.gluon.address``: of a pointer argument to a tensor of less than 2 GiB Triton's
    AMD compiler assumes that whatever is added to it fits 32 bits, and it cuts the distance between two heaps short.

    Example: bases 0x1000 and 0x9000: pointer 0x1040 becomes 0x9040.
    """
    from_base = tl.load(heap_bases + from_rank)
    to_base = tl.load(heap_bases + to_rank)
    moved = (pointer.to(tl.int64) + (to_base - from_base)).to(pointer.dtype)
    return tl.multiple_of(moved, ALIGNMENT)
