"""``DeviceContext``: the remote operations of ``ops`` as methods that know the caller's rank and the heaps.

Pass ``Iris.get_device_context()`` to a Triton kernel, and create the context there:

    @triton.jit
    def kernel(context_tensor, data, rank: tl.constexpr, world_size: tl.constexpr):
        ctx = DeviceContext.initialize(context_tensor, rank, world_size)
        ctx.store(data, 1, (rank + 1) % world_size)

``ops`` has the rules on addresses, widths, memory order and cache modifiers.
"""

# No postponed annotations here: Triton 3.6's aggregate reads the annotations as classes.
import triton
import triton.language as tl
from triton.language.core import _aggregate as aggregate

from iris_under_test.device.cache_key import SourceHash

from . import ops, tile_collectives
from .tracing import DeviceTracing, device_tracing

__all__ = ["DeviceContext"]


@triton.constexpr_function
def _known(value):
    """Return whether the integer ``value`` is known to the compiler."""
    return isinstance(value, int)


@aggregate
class DeviceContext:
    """Access of a Triton kernel to other ranks; created by ``initialize``.

    Fields: ``rank`` and ``world_size`` (constexpr), ``heap_bases`` (pointer to int64, one entry per rank, as mapped in
    this process), ``tracing`` (see ``DeviceTracing``).
    """

    rank: tl.constexpr
    world_size: tl.constexpr
    heap_bases: tl.tensor
    tracing: DeviceTracing

    # A plain function here compiles on some Triton versions only.
    @triton.constexpr_function
    def __init__(self, rank, world_size, heap_bases, tracing):
        self.rank = tl.constexpr(rank)
        self.world_size = tl.constexpr(world_size)
        self.heap_bases = heap_bases
        self.tracing = tracing

    @staticmethod
    @triton.jit
    def initialize(context_tensor, rank: tl.constexpr, world_size: tl.constexpr, tracing: tl.constexpr = False):
        """Return the context of ``rank`` in a world of ``world_size``; both are compile-time values, not read from the
        tensor.

        ``context_tensor``: ``Iris.get_device_context()``. ``tracing``: whether the kernel can record events.
        """
        tl.static_assert(
            _known(rank) and _known(world_size), "DeviceContext.initialize: rank and world_size must be tl.constexpr"
        )
        events = device_tracing(context_tensor, rank, world_size, tracing)
        return DeviceContext(rank, world_size, context_tensor + 2, events)

    @triton.jit
    def load(
        self, pointer, from_rank, mask=None, other=None, cache_modifier=None, volatile=False, hint: tl.constexpr = None
    ):
        """Return the block at ``pointer`` in ``from_rank``'s heap. Masked lanes are ``other``, or undefined without
        it.
        """
        return ops.load(
            pointer, self.rank, from_rank, self.heap_bases, mask, other, cache_modifier, volatile, hint
        )  # fmt: skip

    @triton.jit
    def store(self, pointer, value, to_rank, mask=None, cache_modifier=None, hint: tl.constexpr = None):
        """Write ``value`` at ``pointer`` in ``to_rank``'s heap."""
        ops.store(pointer, value, self.rank, to_rank, self.heap_bases, mask, hint, cache_modifier)

    @triton.jit
    def get(
        self, from_ptr, to_ptr, from_rank, mask=None, other=None, load_cache_modifier=None, store_cache_modifier=None,
        hint: tl.constexpr = None,
    ):  # fmt: skip
        """Copy from ``from_rank``'s heap to local memory; only ``from_ptr`` is translated. The mask guards both
        sides.
        """
        ops.get(
            from_ptr, to_ptr, self.rank, from_rank, self.heap_bases, mask, other, load_cache_modifier,
            store_cache_modifier, hint,
        )  # fmt: skip

    @triton.jit
    def put(
        self, from_ptr, to_ptr, to_rank, mask=None, other=None, load_cache_modifier=None, store_cache_modifier=None,
        hint: tl.constexpr = None,
    ):  # fmt: skip
        """Copy from local memory to ``to_rank``'s heap; only ``to_ptr`` is translated. The mask guards both sides."""
        ops.put(
            from_ptr, to_ptr, self.rank, to_rank, self.heap_bases, mask, other, load_cache_modifier,
            store_cache_modifier, hint,
        )  # fmt: skip

    @triton.jit
    def copy(
        self, src_ptr, dst_ptr, from_rank, to_rank, mask=None, other=None, load_cache_modifier=None,
        store_cache_modifier=None, hint: tl.constexpr = None,
    ):  # fmt: skip
        """Copy from ``from_rank``'s heap to ``to_rank``'s; one of the two must be the caller, else undefined.

        Both pointers are in the caller's address space and both are translated. Each side keeps its own element type.
        """
        ops.copy(
            src_ptr, dst_ptr, from_rank, to_rank, self.rank, self.heap_bases, mask, other, load_cache_modifier,
            store_cache_modifier, hint,
        )  # fmt: skip

    @triton.jit
    def atomic_add(self, pointer, val, to_rank, mask=None, sem=None, scope=None, hint: tl.constexpr = None):
        """Add ``val`` at ``pointer`` in ``to_rank``'s heap; return the old value."""
        return ops.atomic_add(pointer, val, self.rank, to_rank, self.heap_bases, mask, sem, scope, hint)

    @triton.jit
    def atomic_sub(self, pointer, val, to_rank, mask=None, sem=None, scope=None, hint: tl.constexpr = None):
        """Subtract ``val`` in ``to_rank``'s heap, by adding its negative; return the old value."""
        return ops.atomic_sub(pointer, val, self.rank, to_rank, self.heap_bases, mask, sem, scope, hint)

    @triton.jit
    def atomic_xchg(self, pointer, val, to_rank, mask=None, sem=None, scope=None, hint: tl.constexpr = None):
        """Exchange ``val`` with the value in ``to_rank``'s heap; return the old value."""
        return ops.atomic_xchg(pointer, val, self.rank, to_rank, self.heap_bases, mask, sem, scope, hint)

    @triton.jit
    def atomic_xor(self, pointer, val, to_rank, mask=None, sem=None, scope=None, hint: tl.constexpr = None):
        """Replace the value in ``to_rank``'s heap by its bitwise XOR with ``val``; return the old value."""
        return ops.atomic_xor(pointer, val, self.rank, to_rank, self.heap_bases, mask, sem, scope, hint)

    @triton.jit
    def atomic_and(self, pointer, val, to_rank, mask=None, sem=None, scope=None, hint: tl.constexpr = None):
        """Replace the value in ``to_rank``'s heap by its bitwise AND with ``val``; return the old value."""
        return ops.atomic_and(pointer, val, self.rank, to_rank, self.heap_bases, mask, sem, scope, hint)

    @triton.jit
    def atomic_or(self, pointer, val, to_rank, mask=None, sem=None, scope=None, hint: tl.constexpr = None):
        """Replace the value in ``to_rank``'s heap by its bitwise OR with ``val``; return the old value."""
        return ops.atomic_or(pointer, val, self.rank, to_rank, self.heap_bases, mask, sem, scope, hint)

    @triton.jit
    def atomic_min(self, pointer, val, to_rank, mask=None, sem=None, scope=None, hint: tl.constexpr = None):
        """Replace the value in ``to_rank``'s heap by the smaller of it and ``val``; return the old value."""
        return ops.atomic_min(pointer, val, self.rank, to_rank, self.heap_bases, mask, sem, scope, hint)

    @triton.jit
    def atomic_max(self, pointer, val, to_rank, mask=None, sem=None, scope=None, hint: tl.constexpr = None):
        """Replace the value in ``to_rank``'s heap by the larger of it and ``val``; return the old value."""
        return ops.atomic_max(pointer, val, self.rank, to_rank, self.heap_bases, mask, sem, scope, hint)

    @triton.jit
    def atomic_cas(self, pointer, cmp, val, to_rank, sem=None, scope=None, hint: tl.constexpr = None):
        """Write ``val`` if the value equals ``cmp``; return the old value. Takes no mask, like Triton's."""
        return ops.atomic_cas(pointer, cmp, val, self.rank, to_rank, self.heap_bases, sem, scope, hint)

    @triton.jit
    def all_gather(self, tile, dst_view, dim: tl.constexpr):
        """Write ``tile.data`` into every rank's ``dst_view``. For this and the following methods see
        ``tile_collectives``.
        """
        tile_collectives.all_gather(tile, dst_view, dim, self)

    @triton.jit
    def all_to_all(self, tile, src_view, dst_view, N_per_rank):
        """Send the tile of column block j of this rank's ``src_view`` to rank j."""
        tile_collectives.all_to_all(tile, src_view, dst_view, N_per_rank, self)

    @triton.jit
    def gather(self, tile, src_view, source_rank):
        """Return ``source_rank``'s tile."""
        return tile_collectives.gather(tile, src_view, source_rank, self)

    @triton.jit
    def set_ready(self, tile, view, locks):
        """Signal to all ranks that this rank's tile of ``view`` is complete."""
        tile_collectives.set_ready(tile, view, locks, self)

    @triton.jit
    def reduce_scatter(self, tile, src_view, dst_view, locks):
        """Sum the tile over all ranks, on the rank that owns it."""
        tile_collectives.reduce_scatter(tile, src_view, dst_view, locks, self)

    @triton.jit
    def all_reduce(self, tile, src_view, dst_view, config):
        """Sum the tile by one of the following methods, as an ``AllReduceConfig`` selects."""
        tile_collectives.all_reduce(tile, src_view, dst_view, config, self)

    @triton.jit
    def all_reduce_atomic(self, tile, dst_view):
        """Sum the tile on every rank, by atomics."""
        tile_collectives.all_reduce_atomic(tile, dst_view, self)

    @triton.jit
    def all_reduce_spinlock(self, tile, dst_view, locks):
        """Sum the tile on every rank, under one lock per tile."""
        tile_collectives.all_reduce_spinlock(tile, dst_view, locks, self)

    @triton.jit
    def all_reduce_one_shot(self, tile, src_view, dst_view, locks):
        """Sum the tile on every rank; every rank reads all ranks."""
        tile_collectives.all_reduce_one_shot(tile, src_view, dst_view, locks, self)

    @triton.jit
    def all_reduce_two_shot(self, tile, src_view, dst_view, locks):
        """Sum the tile on the rank that owns it, which writes the sum to every rank."""
        tile_collectives.all_reduce_two_shot(tile, src_view, dst_view, locks, self)

    @triton.jit
    def all_reduce_ring(self, tile, src_view, dst_view):
        """Sum the tile on every rank, reading around the ring."""
        tile_collectives.all_reduce_ring(tile, src_view, dst_view, self)


DeviceContext.cache_key = SourceHash()
