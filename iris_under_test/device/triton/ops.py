"""Remote loads, stores, copies and atomics for Triton kernels as plain functions: ``iris.load(...)`` and the others.

``__all__`` lists those that are also names of the package's top level; ``atomic_sub`` is only in
``iris_under_test.device.triton``.

Address rule of every function: pointers are in the **calling** rank's address space (its own heap), whatever an
argument is called; the library moves them to the same offset of the other rank's heap. Nothing is checked, except in a
debug build (see ``device.debug``): a pointer outside the heap, or a rank outside the world, gives a wild address. Ranks
may be run-time values; the caller's own rank is legal and means a local access. ``heap_bases``: pointer to int64, one
entry per rank, as mapped in this process (``Iris.get_heap_bases()``).

Accesses are 16 bytes wide where the pointers' contiguity, alignment and mask allow it; ``hint`` states facts about them
that Triton cannot know (see ``address.translate``).

``sem`` is one of "acquire", "release", "acq_rel", "relaxed", ``scope`` one of "cta", "gpu", "sys"; None means Triton's
default (acq_rel, gpu). Only "sys" orders against other ranks. Cache modifiers are forwarded unchanged: loads take None,
"", ".ca", ".cg", ".cv"; stores None, "", ".wb", ".cg", ".cs", ".wt".
"""

import triton
import triton.language as tl

from iris_under_test.device.debug import check
from iris_under_test.device.operands import negated, used

from .address import translate

__all__ = [
    "atomic_add", "atomic_and", "atomic_cas", "atomic_max", "atomic_min", "atomic_or", "atomic_xchg",
    "atomic_xor", "copy", "get", "load", "put", "store",
]  # fmt: skip


@triton.jit
def load(
    pointer, to_rank, from_rank, heap_bases, mask=None, other=None, cache_modifier=None, volatile=False,
    hint: tl.constexpr = None,
):  # fmt: skip
    """Return the block at ``pointer`` in ``from_rank``'s heap. ``to_rank`` is the caller.

    Masked lanes are ``other``, or undefined without it.
    """
    check(pointer, heap_bases, to_rank, from_rank, mask, "load")
    remote = translate(pointer, heap_bases, to_rank, from_rank, hint)
    return tl.load(remote, mask=mask, other=other, cache_modifier=cache_modifier, volatile=volatile)


@triton.jit
def store(
    pointer, value, from_rank, to_rank, heap_bases, mask=None, hint: tl.constexpr = None, cache_modifier=None
):  # fmt: skip
    """Write ``value`` at ``pointer`` in ``to_rank``'s heap. ``from_rank`` is the caller."""
    check(pointer, heap_bases, from_rank, to_rank, mask, "store")
    remote = translate(pointer, heap_bases, from_rank, to_rank, hint)
    tl.store(remote, value, mask=mask, cache_modifier=cache_modifier)


@triton.jit
def get(
    from_ptr, to_ptr, from_rank, to_rank, heap_bases, mask=None, other=None, load_cache_modifier=None,
    store_cache_modifier=None, hint: tl.constexpr = None,
):  # fmt: skip
    """Copy from ``to_rank``'s heap to local memory; only ``from_ptr`` is translated. The mask guards both sides.

    ``from_rank`` is the caller and ``to_rank`` the rank that is **read**: the published names are misleading, and the
    order is the published one.
    """
    check(from_ptr, heap_bases, from_rank, to_rank, mask, "get")
    remote = translate(from_ptr, heap_bases, from_rank, to_rank, hint)
    value = tl.load(remote, mask=mask, other=other, cache_modifier=load_cache_modifier)
    tl.store(to_ptr, value, mask=mask, cache_modifier=store_cache_modifier)


@triton.jit
def put(
    from_ptr, to_ptr, from_rank, to_rank, heap_bases, mask=None, other=None, load_cache_modifier=None,
    store_cache_modifier=None, hint: tl.constexpr = None,
):  # fmt: skip
    """Copy from local memory to ``to_rank``'s heap; only ``to_ptr`` is translated. The mask guards both sides.

    ``from_rank`` is the caller.
    """
    check(to_ptr, heap_bases, from_rank, to_rank, mask, "put")
    remote = translate(to_ptr, heap_bases, from_rank, to_rank, hint)
    value = tl.load(from_ptr, mask=mask, other=other, cache_modifier=load_cache_modifier)
    tl.store(remote, value, mask=mask, cache_modifier=store_cache_modifier)


@triton.jit
def copy(
    src_ptr, dst_ptr, from_rank, to_rank, cur_rank, heap_bases, mask=None, other=None, load_cache_modifier=None,
    store_cache_modifier=None, hint: tl.constexpr = None,
):  # fmt: skip
    """Copy from ``from_rank``'s heap to ``to_rank``'s; undefined unless one of the two is ``cur_rank``, the caller.

    Both pointers are in the caller's address space and both are translated; ``hint`` applies to both. Each side keeps
    its own element type: values are converted as ``tl.store`` does.
    """
    check(src_ptr, heap_bases, cur_rank, from_rank, mask, "copy")
    source = translate(src_ptr, heap_bases, cur_rank, from_rank, hint)
    check(dst_ptr, heap_bases, cur_rank, to_rank, mask, "copy")
    destination = translate(dst_ptr, heap_bases, cur_rank, to_rank, hint)
    value = tl.load(source, mask=mask, other=other, cache_modifier=load_cache_modifier)
    tl.store(destination, value, mask=mask, cache_modifier=store_cache_modifier)


@triton.jit
def atomic_add(
    pointer, val, from_rank, to_rank, heap_bases, mask=None, sem=None, scope=None, hint: tl.constexpr = None
):
    """Add ``val`` at ``pointer`` in ``to_rank``'s heap; return the old value. ``from_rank`` is the caller."""
    check(pointer, heap_bases, from_rank, to_rank, mask, "atomic_add")
    remote = translate(pointer, heap_bases, from_rank, to_rank, hint)
    return tl.atomic_add(remote, val, mask=mask, sem=sem, scope=scope)


@triton.jit
def atomic_sub(
    pointer, val, from_rank, to_rank, heap_bases, mask=None, sem=None, scope=None, hint: tl.constexpr = None
):
    """Subtract ``val``; return the old value. Triton has no such atomic, so the negated value is added."""
    check(pointer, heap_bases, from_rank, to_rank, mask, "atomic_sub")
    remote = translate(pointer, heap_bases, from_rank, to_rank, hint)
    negative = negated(val, pointer.dtype.element_ty, tl.load(heap_bases + from_rank))
    return tl.atomic_add(remote, negative, mask=mask, sem=sem, scope=scope)


@triton.jit
def atomic_xchg(
    pointer, val, from_rank, to_rank, heap_bases, mask=None, sem=None, scope=None, hint: tl.constexpr = None
):
    """Exchange ``val`` with the value in ``to_rank``'s heap; return the old value."""
    check(pointer, heap_bases, from_rank, to_rank, mask, "atomic_xchg")
    remote = translate(pointer, heap_bases, from_rank, to_rank, hint)
    return tl.atomic_xchg(remote, val, mask=mask, sem=sem, scope=scope)


@triton.jit
def atomic_xor(
    pointer, val, from_rank, to_rank, heap_bases, mask=None, sem=None, scope=None, hint: tl.constexpr = None
):
    """Bitwise exclusive or with ``val``; return the old value."""
    check(pointer, heap_bases, from_rank, to_rank, mask, "atomic_xor")
    remote = translate(pointer, heap_bases, from_rank, to_rank, hint)
    return tl.atomic_xor(remote, val, mask=mask, sem=sem, scope=scope)


@triton.jit
def atomic_and(
    pointer, val, from_rank, to_rank, heap_bases, mask=None, sem=None, scope=None, hint: tl.constexpr = None
):
    """Bitwise and with ``val``; return the old value."""
    check(pointer, heap_bases, from_rank, to_rank, mask, "atomic_and")
    remote = translate(pointer, heap_bases, from_rank, to_rank, hint)
    return tl.atomic_and(remote, val, mask=mask, sem=sem, scope=scope)


@triton.jit
def atomic_or(pointer, val, from_rank, to_rank, heap_bases, mask=None, sem=None, scope=None, hint: tl.constexpr = None):
    """Bitwise or with ``val``; return the old value."""
    check(pointer, heap_bases, from_rank, to_rank, mask, "atomic_or")
    remote = translate(pointer, heap_bases, from_rank, to_rank, hint)
    return tl.atomic_or(remote, val, mask=mask, sem=sem, scope=scope)


@triton.jit
def atomic_min(
    pointer, val, from_rank, to_rank, heap_bases, mask=None, sem=None, scope=None, hint: tl.constexpr = None
):
    """Minimum with ``val``; return the old value."""
    check(pointer, heap_bases, from_rank, to_rank, mask, "atomic_min")
    remote = translate(pointer, heap_bases, from_rank, to_rank, hint)
    return used(tl.atomic_min(remote, val, mask=mask, sem=sem, scope=scope))


@triton.jit
def atomic_max(
    pointer, val, from_rank, to_rank, heap_bases, mask=None, sem=None, scope=None, hint: tl.constexpr = None
):
    """Maximum with ``val``; return the old value."""
    check(pointer, heap_bases, from_rank, to_rank, mask, "atomic_max")
    remote = translate(pointer, heap_bases, from_rank, to_rank, hint)
    return used(tl.atomic_max(remote, val, mask=mask, sem=sem, scope=scope))


@triton.jit
def atomic_cas(pointer, cmp, val, from_rank, to_rank, heap_bases, sem=None, scope=None, hint: tl.constexpr = None):
    """Write ``val`` if the value equals ``cmp``; return the old value. Takes no mask, like Triton's."""
    check(pointer, heap_bases, from_rank, to_rank, None, "atomic_cas")
    remote = translate(pointer, heap_bases, from_rank, to_rank, hint)
    return tl.atomic_cas(remote, cmp, val, sem=sem, scope=scope)
