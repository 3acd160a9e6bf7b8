"""Re-basing a pointer from one rank's heap onto another's, for Triton kernels."""

import triton
import triton.language as tl

__all__ = ["translate"]


@triton.constexpr_function
def _twin(element_ty):
    """Another element type of the same size. 1-bit elements occupy one byte."""
    if element_ty.is_int():
        floats = {8: tl.float8e5, 16: tl.float16, 32: tl.float32, 64: tl.float64}
        return floats[max(8, element_ty.primitive_bitwidth)]
    return {8: tl.int8, 16: tl.int16, 32: tl.int32, 64: tl.int64}[element_ty.primitive_bitwidth]


@triton.constexpr_function
def _entry(hint, dimension):
    return hint[dimension]


@triton.jit
def translate(pointer, heap_bases, from_rank, to_rank, hint: tl.constexpr = None):
    """Returns ``pointer`` (scalar or block, in ``from_rank``'s heap) moved to the same offset of ``to_rank``'s heap.

    What Triton knows of the pointers' contiguity and alignment survives, so that accesses are 16 bytes wide where they
    were. The usual form, pointer -> integer -> pointer, makes Triton forget both. Moving the pointer itself will not do
    either: of an argument that is a tensor of less than 2 GiB, Triton's AMD compiler assumes that whatever is added to
    it fits 32 bits, and it cuts the distance between two heaps short. So the pointer is moved as one to elements of the
    same size but another type: there the compiler loses sight of the argument, and of nothing else. Heap bases are page
    aligned, so their difference divides by 16; writing the step as a multiple of 16 bytes says so.

    ``hint``, for what Triton cannot know: an int for a 1-D block, a tuple with one per dimension for others. Along each
    dimension, runs of ``hint`` elements are contiguous and start at multiples of ``hint`` bytes. A wrong hint is
    undefined behaviour; of a scalar only the alignment counts.

    Example: fp16, bases 0x1000 and 0x9000: pointer 0x1040 moves by (0x8000 >> 4) * (16 // 2) = 0x4000 elements, to
    0x9040.
    """
    from_base = tl.load(heap_bases + from_rank)
    to_base = tl.load(heap_bases + to_rank)
    bytes_per_element: tl.constexpr = (pointer.dtype.element_ty.primitive_bitwidth + 7) // 8
    step = ((to_base - from_base) >> 4) * (16 // bytes_per_element)
    twin = pointer.to(tl.pointer_type(_twin(pointer.dtype.element_ty)), bitcast=True)
    moved = (twin + step).to(pointer.dtype, bitcast=True)
    if hint is not None:
        # Entries one by one: Triton 3.6 refuses a tuple that is one constexpr, as a kernel's parameter is.
        if len(moved.shape) == 3:
            moved = tl.multiple_of(moved, (_entry(hint, 0), _entry(hint, 1), _entry(hint, 2)))
            moved = tl.max_contiguous(moved, (_entry(hint, 0), _entry(hint, 1), _entry(hint, 2)))
        elif len(moved.shape) == 2:
            moved = tl.multiple_of(moved, (_entry(hint, 0), _entry(hint, 1)))
            moved = tl.max_contiguous(moved, (_entry(hint, 0), _entry(hint, 1)))
        else:
            moved = tl.multiple_of(moved, hint)
            if moved.type.is_block():
                moved = tl.max_contiguous(moved, hint)
    return moved
