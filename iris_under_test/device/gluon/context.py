"""``IrisDeviceCtx``: remote loads, stores, copies and atomics for Gluon kernels.

Address rule of every method: pointers are in the **caller's** address space (its own heap); the library moves them to
the same offset of the target rank's heap. Nothing is checked, except in a debug build (see ``device.debug``): a pointer
outside the heap, or a rank outside the world, gives a wild address. Target ranks may be run-time values; the caller's
own rank is legal and means a local access. Offsets are 64-bit.

Accesses are 16 bytes wide where the caller's layout, alignment and mask allow it (see ``address.translate``).

``sem`` is one of "acquire", "release", "acq_rel", "relaxed", ``scope`` one of "cta", "gpu", "sys"; None means Triton's
default (acq_rel, gpu). Only "sys" orders against other ranks. Cache modifiers are forwarded unchanged: loads take None,
"", ".ca", ".cg", ".cv"; stores None, "", ".wb", ".cg", ".cs", ".wt".
"""

# No postponed annotations here: Triton 3.6's aggregate reads the annotations as classes.
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.language.core import _aggregate as aggregate

from iris_under_test.device.cache_key import SourceHash
from iris_under_test.device.debug import check
from iris_under_test.device.operands import negated, used

from .address import translate
from .tracing import GluonDeviceTracing, device_tracing

__all__ = ["IrisDeviceCtx"]


@aggregate
class IrisDeviceCtx:
    """Device context of a Gluon kernel: pass the class as a ``gl.constexpr`` parameter, then call ``initialize``.

    Fields: ``cur_rank`` and ``num_ranks`` (run-time int32 scalars), ``heap_bases`` (pointer to int64, one entry per
    rank, as mapped in this process), ``tracing`` (see ``GluonDeviceTracing``).
    """

    cur_rank: gl.tensor
    num_ranks: gl.tensor
    heap_bases: gl.tensor
    tracing: GluonDeviceTracing

    # A plain function here compiles on some Triton versions only.
    @gluon.constexpr_function
    def __init__(self, cur_rank, num_ranks, heap_bases, tracing):
        self.cur_rank = cur_rank
        self.num_ranks = num_ranks
        self.heap_bases = heap_bases
        self.tracing = tracing

    @staticmethod
    @gluon.jit
    def initialize(context_tensor, tracing: gl.constexpr = False):
        """Read the context tensor (``Iris.get_device_context()``). ``tracing``: whether the kernel can record
        events.
        """
        cur_rank = gl.load(context_tensor).to(gl.int32)
        num_ranks = gl.load(context_tensor + 1).to(gl.int32)
        return IrisDeviceCtx(
            cur_rank, num_ranks, context_tensor + 2, device_tracing(context_tensor, cur_rank, num_ranks, tracing)
        )

    @gluon.jit
    def load(self, pointer, from_rank, mask=None, other=None, cache_modifier=None, volatile=False):
        """Return the block at ``pointer`` in ``from_rank``'s heap; masked lanes are ``other``, or undefined without
        it.
        """
        check(pointer, self.heap_bases, self.cur_rank, from_rank, mask, "load")
        remote = translate(pointer, self.heap_bases, self.cur_rank, from_rank)
        return gl.load(remote, mask=mask, other=other, cache_modifier=cache_modifier, volatile=volatile)

    @gluon.jit
    def store(self, pointer, value, to_rank, mask=None, cache_modifier=None):
        """Write ``value`` at ``pointer`` in ``to_rank``'s heap."""
        check(pointer, self.heap_bases, self.cur_rank, to_rank, mask, "store")
        remote = translate(pointer, self.heap_bases, self.cur_rank, to_rank)
        gl.store(remote, value, mask=mask, cache_modifier=cache_modifier)

    @gluon.jit
    def get(
        self, from_ptr, to_ptr, from_rank, mask=None, other=None, load_cache_modifier=None, store_cache_modifier=None
    ):
        """Copy from ``from_rank``'s heap to local memory; only ``from_ptr`` is translated. The mask guards both
        sides.
        """
        check(from_ptr, self.heap_bases, self.cur_rank, from_rank, mask, "get")
        remote = translate(from_ptr, self.heap_bases, self.cur_rank, from_rank)
        value = gl.load(remote, mask=mask, other=other, cache_modifier=load_cache_modifier)
        gl.store(to_ptr, value, mask=mask, cache_modifier=store_cache_modifier)

    @gluon.jit
    def put(
        self, from_ptr, to_ptr, to_rank, mask=None, other=None, load_cache_modifier=None, store_cache_modifier=None
    ):
        """Copy from local memory to ``to_rank``'s heap; only ``to_ptr`` is translated. The mask guards both sides."""
        check(to_ptr, self.heap_bases, self.cur_rank, to_rank, mask, "put")
        remote = translate(to_ptr, self.heap_bases, self.cur_rank, to_rank)
        value = gl.load(from_ptr, mask=mask, other=other, cache_modifier=load_cache_modifier)
        gl.store(remote, value, mask=mask, cache_modifier=store_cache_modifier)

    @gluon.jit
    def copy(
        self,
        src_ptr,
        dst_ptr,
        from_rank,
        to_rank,
        mask=None,
        other=None,
        load_cache_modifier=None,
        store_cache_modifier=None,
    ):
        """Copy from ``from_rank``'s heap to ``to_rank``'s; one of the two must be the caller, else undefined.

        Both pointers are in the caller's address space and both are translated. Each side keeps its own element type:
        values are converted as ``gl.store`` does.
        """
        check(src_ptr, self.heap_bases, self.cur_rank, from_rank, mask, "copy")
        source = translate(src_ptr, self.heap_bases, self.cur_rank, from_rank)
        check(dst_ptr, self.heap_bases, self.cur_rank, to_rank, mask, "copy")
        destination = translate(dst_ptr, self.heap_bases, self.cur_rank, to_rank)
        value = gl.load(source, mask=mask, other=other, cache_modifier=load_cache_modifier)
        gl.store(destination, value, mask=mask, cache_modifier=store_cache_modifier)

    @gluon.jit
    def atomic_add(self, pointer, val, to_rank, mask=None, sem=None, scope=None):
        """Add ``val`` at ``pointer`` in ``to_rank``'s heap; return the old value."""
        check(pointer, self.heap_bases, self.cur_rank, to_rank, mask, "atomic_add")
        remote = translate(pointer, self.heap_bases, self.cur_rank, to_rank)
        return gl.atomic_add(remote, val, mask=mask, sem=sem, scope=scope)

    @gluon.jit
    def atomic_sub(self, pointer, val, to_rank, mask=None, sem=None, scope=None):
        """Subtract ``val`` in ``to_rank``'s heap, by adding its negative; return the old value."""
        check(pointer, self.heap_bases, self.cur_rank, to_rank, mask, "atomic_sub")
        remote = translate(pointer, self.heap_bases, self.cur_rank, to_rank)
        negative = negated(val, pointer.dtype.element_ty, self.num_ranks)
        return gl.atomic_add(remote, negative, mask=mask, sem=sem, scope=scope)

    @gluon.jit
    def atomic_xchg(self, pointer, val, to_rank, mask=None, sem=None, scope=None):
        """Exchange ``val`` with the value in ``to_rank``'s heap; return the old value."""
        check(pointer, self.heap_bases, self.cur_rank, to_rank, mask, "atomic_xchg")
        remote = translate(pointer, self.heap_bases, self.cur_rank, to_rank)
        return gl.atomic_xchg(remote, val, mask=mask, sem=sem, scope=scope)

    @gluon.jit
    def atomic_xor(self, pointer, val, to_rank, mask=None, sem=None, scope=None):
        """Replace the value in ``to_rank``'s heap by its bitwise XOR with ``val``; return the old value."""
        check(pointer, self.heap_bases, self.cur_rank, to_rank, mask, "atomic_xor")
        remote = translate(pointer, self.heap_bases, self.cur_rank, to_rank)
        return gl.atomic_xor(remote, val, mask=mask, sem=sem, scope=scope)

    @gluon.jit
    def atomic_and(self, pointer, val, to_rank, mask=None, sem=None, scope=None):
        """Replace the value in ``to_rank``'s heap by its bitwise AND with ``val``; return the old value."""
        check(pointer, self.heap_bases, self.cur_rank, to_rank, mask, "atomic_and")
        remote = translate(pointer, self.heap_bases, self.cur_rank, to_rank)
        return gl.atomic_and(remote, val, mask=mask, sem=sem, scope=scope)

    @gluon.jit
    def atomic_or(self, pointer, val, to_rank, mask=None, sem=None, scope=None):
        """Replace the value in ``to_rank``'s heap by its bitwise OR with ``val``; return the old value."""
        check(pointer, self.heap_bases, self.cur_rank, to_rank, mask, "atomic_or")
        remote = translate(pointer, self.heap_bases, self.cur_rank, to_rank)
        return gl.atomic_or(remote, val, mask=mask, sem=sem, scope=scope)

    @gluon.jit
    def atomic_min(self, pointer, val, to_rank, mask=None, sem=None, scope=None):
        """Replace the value in ``to_rank``'s heap by the smaller of it and ``val``; return the old value."""
        check(pointer, self.heap_bases, self.cur_rank, to_rank, mask, "atomic_min")
        remote = translate(pointer, self.heap_bases, self.cur_rank, to_rank)
        return used(gl.atomic_min(remote, val, mask=mask, sem=sem, scope=scope))

    @gluon.jit
    def atomic_max(self, pointer, val, to_rank, mask=None, sem=None, scope=None):
        """Replace the value in ``to_rank``'s heap by the larger of it and ``val``; return the old value."""
        check(pointer, self.heap_bases, self.cur_rank, to_rank, mask, "atomic_max")
        remote = translate(pointer, self.heap_bases, self.cur_rank, to_rank)
        return used(gl.atomic_max(remote, val, mask=mask, sem=sem, scope=scope))

    @gluon.jit
    def atomic_cas(self, pointer, cmp, val, to_rank, sem=None, scope=None):
        """Write ``val`` if the value equals ``cmp``; return the old value. Takes no mask, like Triton's."""
        check(pointer, self.heap_bases, self.cur_rank, to_rank, None, "atomic_cas")
        remote = translate(pointer, self.heap_bases, self.cur_rank, to_rank)
        return gl.atomic_cas(remote, cmp, val, sem=sem, scope=scope)


IrisDeviceCtx.cache_key = SourceHash()
