"""Collectives of one tile, for Triton kernels that compute or load a tile and share it at once.

Every rank runs the same kernel; tile (pid_m, pid_n) of one rank is combined with the same tile of the others. All views
must lie at the same offset of every rank's heap. A function waits for other ranks only if it has ``locks``:

* ``all_gather``, ``all_to_all`` and ``all_reduce_atomic`` write into other ranks' views without waiting. Their
  destination must be free to overwrite before (and zero, for atomic), and is complete when the kernels of all ranks
  have ended: put a barrier (``Iris.device_barrier``) before and after the kernel.
* ``gather`` and ``all_reduce_ring`` read other ranks' views, which must be complete: put a barrier before.
* ``reduce_scatter``, ``all_reduce_one_shot`` and ``all_reduce_two_shot`` read other ranks' ``src_view`` too, but wait
  for it tile by tile: ``locks`` is an int32 tensor on the heap, zero before the kernel, with an element per tile,
  ``pid_m * tiles_n + pid_n``. A rank stores its tile, then ``set_ready`` sets its own element to 1. Results are
  complete as above. A waiting program occupies its place on the device, so all ranks must make tiles ready in one
  order: it suffices that program p of every rank has the same tiles, or that all programs are resident at once.
* ``all_reduce_spinlock`` takes ``locks`` of the same form, zero before, as locks, and leaves them zero.

Sums of 16-bit and narrower floats are computed in float32 and rounded once, those of other types in their own type
(integers wrap). The published text excludes bfloat16 from that. Flags and locks are released and acquired at system
scope, by all wavefronts of a program: see ``device.fences``. In upstream Iris they are at gpu scope.

The last parameter is the ``DeviceContext``, which has methods of the same names; the world size is a compile-time
value.
"""

# No postponed annotations here: Triton 3.6's aggregate reads the annotations as classes.
import triton
import triton.language as tl
from triton.language.core import _aggregate as aggregate

from iris_under_test.device.bounds import bound
from iris_under_test.device.cache_key import SourceHash
from iris_under_test.device.debug import check
from iris_under_test.device.fences import observe, pause, peek, poke, publish
from iris_under_test.device.locks import acquire, release

from .address import translate

__all__ = [
    "ATOMIC", "ONE_SHOT", "RING", "SPINLOCK", "TWO_SHOT", "AllReduceConfig", "all_gather", "all_reduce",
    "all_reduce_atomic", "all_reduce_one_shot", "all_reduce_ring", "all_reduce_spinlock", "all_reduce_two_shot",
    "all_to_all", "gather", "reduce_scatter", "set_ready",
]  # fmt: skip

ATOMIC, RING, TWO_SHOT, ONE_SHOT, SPINLOCK = (tl.constexpr(code) for code in range(5))
"""Values of ``AllReduceConfig.variant_code``, in the order in which ``ccl.Config`` names the variants."""


@aggregate
class AllReduceConfig:
    """Algorithm of ``all_reduce``.

    ``variant_code``: constexpr, one of ATOMIC, RING, TWO_SHOT, ONE_SHOT and SPINLOCK. ``locks_ptr``: the tensor that
    the last three need; the others ignore it.
    """

    variant_code: tl.constexpr
    locks_ptr: tl.tensor

    @triton.constexpr_function
    def __init__(self, variant_code, locks_ptr):
        self.variant_code = tl.constexpr(variant_code)
        self.locks_ptr = locks_ptr


AllReduceConfig.cache_key = SourceHash()


@triton.jit
def all_gather(tile, dst_view, dim: tl.constexpr, ctx):
    """Write ``tile.data`` into every rank's ``dst_view``, after the tiles of the lower ranks.

    ``dim`` 0: ``dst_view`` is (W*M, N) for tiles of (M, N), and rank r fills rows [r*M, r*M + M). Otherwise it is (M,
    W*N), and rank r fills columns [r*N, r*N + N). Elements of the tile outside (M, N) are not written.
    """
    if dim == 0:
        rows_each = tl.cast(dst_view.M, tl.int64) // ctx.world_size
        _, _, mask = tile.layout(rows_each, dst_view.N)
        pointers, mask = dst_view.offset_tile_ptr(tile, ctx.rank * rows_each, 0, mask)
        _store_everywhere(pointers, tile.data, mask, ctx)
    else:
        columns_each = tl.cast(dst_view.N, tl.int64) // ctx.world_size
        # Triton does not know which number divides a quotient, and would store element by element. The product shows
        # it. (A tl.multiple_of would hold wherever the value is used, in the other branch too.)
        if columns_each % 16 == 0:
            _gather_columns(tile, dst_view, columns_each // 16 * 16, ctx)
        else:
            _gather_columns(tile, dst_view, columns_each, ctx)


@triton.jit
def all_to_all(tile, src_view, dst_view, N_per_rank, ctx):
    """Copy the tile of column block j of this rank's ``src_view`` to column block ``ctx.rank`` of rank j's
    ``dst_view``.

    Both views are (M, W*N_per_rank); ``tile`` is one of (M, N_per_rank), and only its place matters.
    """
    _, _, mask = tile.layout(src_view.M, N_per_rank)
    size = tl.cast(N_per_rank, tl.int64)
    there, there_mask = dst_view.offset_tile_ptr(tile, 0, ctx.rank * size, mask)
    for step in tl.static_range(ctx.world_size):
        to_rank = (ctx.rank + step) % ctx.world_size
        here, here_mask = src_view.offset_tile_ptr(tile, 0, to_rank * size, mask)
        ctx.store(there, tl.load(here, mask=here_mask), to_rank, mask=there_mask)


@triton.jit
def gather(tile, src_view, source_rank, ctx):
    """Return ``source_rank``'s tile of ``src_view``, a block; elements outside the view are 0."""
    pointers, mask = src_view.tile_ptr(tile)
    return ctx.load(pointers, source_rank, mask=mask, other=0)


@triton.jit
def set_ready(tile, view, locks, ctx):
    """Set the element of ``tile`` in ``locks`` to 1: a rank that reads it sees everything that the program did before.

    ``view``: the one whose tiles are counted. Not part of the published surface: users of upstream Iris write an
    exchange with release order there, which does not cover the stores of other wavefronts (see ``device.fences``).
    """
    publish()
    poke(locks + _tile_id(tile, view), 1)


@triton.jit
def reduce_scatter(tile, src_view, dst_view, locks, ctx):
    """Sum ``tile`` over all ranks' ``src_view`` into this rank's ``dst_view``, if this rank owns the tile.

    Other ranks do nothing. Both views are (M, N). Of T tiles, rank r owns numbers [r*S, r*S + S), S = T // W, and the
    last rank also the remaining ones. Waits for all ranks' ``locks``. Adds in the order of ranks.

    Example: 5 tiles, 2 ranks: rank 0 owns tiles 0 and 1, rank 1 owns 2, 3 and 4.
    """
    number = _tile_id(tile, src_view)
    share = src_view.number_of_tiles(tile.block_m, tile.block_n) // ctx.world_size
    if number >= ctx.rank * share and (ctx.rank == ctx.world_size - 1 or number < (ctx.rank + 1) * share):
        all_reduce_one_shot(tile, src_view, dst_view, locks, ctx)


@triton.jit
def all_reduce_atomic(tile, dst_view, ctx):
    """Add ``tile.data`` to the tile of every rank's ``dst_view``, which must be zero before, by atomics.

    Sums are computed in the type of ``dst_view``, which must be a float or 32 or 64 bits wide, in no fixed order. For
    exact sums of 16-bit tiles use a float32 view.
    """
    element: tl.constexpr = dst_view.ptr.dtype.element_ty
    tl.static_assert(
        element.primitive_bitwidth >= 32 or (element.is_floating() and element.primitive_bitwidth == 16),
        "all_reduce_atomic: dst_view must have 16-bit floats, or elements of 32 or 64 bits",
    )
    pointers, mask = dst_view.tile_ptr(tile)
    data = tile.data.to(element)
    for step in tl.static_range(ctx.world_size):
        to_rank = (ctx.rank + step) % ctx.world_size
        ctx.atomic_add(pointers, data, to_rank, mask=mask, sem="relaxed", scope="sys")


@triton.jit
def all_reduce_spinlock(tile, dst_view, locks, ctx):
    """Add ``tile.data`` to the tile of every rank's ``dst_view``, which must be zero before, under that rank's lock.

    Adds in no fixed order, and rounds each sum to the type of ``dst_view``.
    """
    pointers, mask = dst_view.tile_ptr(tile)
    lock = locks + _tile_id(tile, dst_view)
    for step in range(ctx.world_size):
        to_rank = (ctx.rank + step) % ctx.world_size
        there = _moved(lock, to_rank, ctx)
        acquire(there)
        held = ctx.load(pointers, to_rank, mask=mask, other=0)
        ctx.store(pointers, _widened(held) + _widened(tile.data), to_rank, mask=mask)
        release(there)


@triton.jit
def all_reduce_one_shot(tile, src_view, dst_view, locks, ctx):
    """Sum the tile over all ranks' ``src_view`` into this rank's ``dst_view``; every rank reads every rank.

    Waits for all ranks' ``locks``. Adds in the order of ranks: the result has the same bits on every rank, every time.
    """
    _wait_for_all(locks + _tile_id(tile, src_view), ctx)
    total = _total(tile, src_view, 0, ctx)
    pointers, mask = dst_view.tile_ptr(tile)
    tl.store(pointers, total.to(dst_view.ptr.dtype.element_ty), mask=mask)


@triton.jit
def all_reduce_two_shot(tile, src_view, dst_view, locks, ctx):
    """Sum ``tile`` over all ranks' ``src_view`` into every rank's ``dst_view``, if this rank owns it (number % W).

    Other ranks do nothing. Waits for all ranks' ``locks``. Adds in the order of ranks: the result has the same bits on
    every rank, every time.
    """
    number = _tile_id(tile, src_view)
    if number % ctx.world_size == ctx.rank:
        _wait_for_all(locks + number, ctx)
        total = _total(tile, src_view, 0, ctx)
        pointers, mask = dst_view.tile_ptr(tile)
        _store_everywhere(pointers, total.to(dst_view.ptr.dtype.element_ty), mask, ctx)


@triton.jit
def all_reduce_ring(tile, src_view, dst_view, ctx):
    """Sum the tile over all ranks' ``src_view`` into this rank's ``dst_view``, reading around the ring.

    Tile number t is read from rank t % W first, then from the next rank, and so on. So programs on different tiles read
    from different ranks at a time, and every rank adds in the same order: the result has the same bits on every rank,
    every time. There is no parameter for flags, so ``src_view`` must be complete before (see above), and no partial
    sums are passed on.
    """
    total = _total(tile, src_view, _tile_id(tile, src_view) % ctx.world_size, ctx)
    pointers, mask = dst_view.tile_ptr(tile)
    tl.store(pointers, total.to(dst_view.ptr.dtype.element_ty), mask=mask)


@triton.jit
def all_reduce(tile, src_view, dst_view, config, ctx):
    """Run the all_reduce that ``config``, an ``AllReduceConfig``, selects.

    ``tile``: for ATOMIC and SPINLOCK a Tile, which has data; else a Tile or a TileView.
    """
    if config.variant_code == ATOMIC:
        all_reduce_atomic(tile, dst_view, ctx)
    elif config.variant_code == RING:
        all_reduce_ring(tile, src_view, dst_view, ctx)
    elif config.variant_code == TWO_SHOT:
        all_reduce_two_shot(tile, src_view, dst_view, config.locks_ptr, ctx)
    elif config.variant_code == ONE_SHOT:
        all_reduce_one_shot(tile, src_view, dst_view, config.locks_ptr, ctx)
    else:
        tl.static_assert(
            config.variant_code == SPINLOCK,
            "AllReduceConfig: variant_code must be ATOMIC, RING, TWO_SHOT, ONE_SHOT or SPINLOCK",
        )
        all_reduce_spinlock(tile, dst_view, config.locks_ptr, ctx)


@triton.jit
def _gather_columns(tile, dst_view, columns_each, ctx):
    _, _, mask = tile.layout(dst_view.M, columns_each)
    pointers, mask = dst_view.offset_tile_ptr(tile, 0, ctx.rank * columns_each, mask)
    _store_everywhere(pointers, tile.data, mask, ctx)


@triton.jit
def _store_everywhere(pointers, data, mask, ctx):
    """Store to the caller's own rank first, then to its neighbours, so that the ranks do not all write to one rank at
    once.
    """
    for step in tl.static_range(ctx.world_size):
        ctx.store(pointers, data, (ctx.rank + step) % ctx.world_size, mask=mask)


@triton.jit
def _total(tile, view, first, ctx):
    """Return the tile's sum over all ranks, beginning with rank ``first``; floats as float32 (see ``_widened``)."""
    pointers, mask = view.tile_ptr(tile)
    total = _widened(ctx.load(pointers, first, mask=mask, other=0))
    for step in tl.static_range(1, ctx.world_size):
        total += _widened(ctx.load(pointers, (first + step) % ctx.world_size, mask=mask, other=0))
    return total


@triton.jit
def _widened(data):
    if data.dtype.is_floating() and data.dtype.primitive_bitwidth < 32:
        data = data.to(tl.float32)
    return data


@triton.jit
def _tile_id(tile, view):
    return tile.pid_m * tl.cdiv(tl.cast(view.N, tl.int64), tile.block_n) + tile.pid_n


@triton.jit
def _wait_for_all(flag, ctx):
    """Wait until ``flag`` is 1 on every rank; their earlier accesses are then visible."""
    for step in range(ctx.world_size):
        there = _moved(flag, (ctx.rank + step) % ctx.world_size, ctx)
        polls = 0
        while peek(there) != 1:
            pause()
            polls += 1
            bound(polls, "a rank has not set its tile ready")
    observe()


@triton.jit
def _moved(word, rank, ctx):
    """Return the address of ``rank``'s ``word``, an int32 of ``locks``."""
    check(word, ctx.heap_bases, ctx.rank, rank, None, "atomic_xchg")
    return translate(word, ctx.heap_bases, ctx.rank, rank)
