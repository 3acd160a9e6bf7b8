"""Translation of a pointer from one rank's heap to another's, for Triton kernels."""

import triton
import triton.language as tl

__all__ = ["translate"]


@triton.constexpr_function
def _twin(element_ty):
    """Return another element type of the same size. 1-bit elements occupy one byte."""
    if element_ty.is_int():
        floats = {8: tl.float8e5, 16: tl.float16, 32: tl.float32, 64: tl.float64}
        return floats[max(8, element_ty.primitive_bitwidth)]
    return {8: tl.int8, 16: tl.int16, 32: tl.int32, 64: tl.int64}[element_ty.primitive_bitwidth]


@triton.constexpr_function
def _entry(hint, dimension):
    return hint[dimension]


@triton.constexpr_function
def _fits(hint, dimensions):
    """Return whether a hint has one entry for each dimension; a scalar takes an int, as a 1-D block does."""
    return (len(hint) if hasattr(hint, "__len__") else 1) == max(dimensions, 1)


@triton.jit
def translate(pointer, heap_bases, from_rank, to_rank, hint: tl.constexpr = None):
    """Return ``pointer`` (scalar or block, in ``from_rank``'s heap) moved to the same offset of ``to_rank``'s heap.

    Triton's knowledge of the pointers' contiguity and alignment survives, so that accesses stay 16 bytes wide. The
    usual form, pointer -> integer -> pointer, makes Triton forget both. Moving the pointer itself fails as well:
    Triton's AMD compiler assumes that any offset added to an argument that is a tensor of less than 2 GiB fits 32 bits,
    and truncates the distance between two heaps. So the pointer is moved as a pointer to elements of the same size but
    another type: then the compiler loses track of the argument, and of nothing else. Heap bases are page aligned, so
    their difference divides by 16; the step is written as a multiple of 16 bytes to show this to the compiler.

    ``hint``, for facts that Triton cannot know: an int for a 1-D block, a tuple with one entry per dimension for
    others, or the kernel does not compile. Along each dimension, runs of ``hint`` elements are contiguous and start at
    multiples of ``hint`` bytes. A wrong hint is undefined behaviour; for a scalar only the alignment matters.

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
        tl.static_assert(_fits(hint, len(moved.shape)), "hint must have one entry for each dimension of the pointers")
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
