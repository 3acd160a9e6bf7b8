"""Descriptions of the tile-level collectives. Every test matrix of the suite is derived from them.

To add a tile-level collective, describe it here, with the function that calls it for one tile, and add its public name
to the ``covers`` of X-MOVE-001, or of X-SUM-001 and perhaps X-SUM-002, in ``requirements.toml``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from conformance.x.cases import TileCase
from fixtures import judged
from harness.cases import of_name
from harness.oracles import exchange, gathered, reduced

Shape = tuple[int, int]
Tiling = tuple[str, int, int, int]
"""The values with which a kernel is compiled: element type, rows and columns of a tile, wavefronts."""


@dataclass(frozen=True)
class TileCollective:
    """One op of the library.

    ``call(function, METHODS, place, tile, source, staged, output, locks, n, root, ctx)`` calls the op for one tile, as
    a method of ``ctx`` if METHODS is true. ``function`` is the name of its function in the library's ``x``.
    ``shapes(case, ranks)`` returns the shapes of a rank's matrices "given" and "target";
    ``reference(case, mine, rank, ranks)`` is the oracle: torch.distributed's result for all ranks' ``mine``.

    ``unaligned`` and ``aligned`` are the values with which kernels of such cases are compiled. They fix one element
    type and number of wavefronts each, since a compile costs as much as many cases.

    ``sums``: it adds the ranks' tiles. ``flags``: it waits for a flag of each rank's tile. ``locks``: it orders memory
    between ranks, by flags or by locks. ``adds_to_output``: it adds to the contents of the output. ``divides``: the
    ranks divide the tiles among themselves, and each sums its own. ``owned(case, rank, ranks)``: the mask of elements
    that a rank writes, if each rank writes a part of the result. ``same_bits``: every rank gets the same bits.
    ``rooted``: it reads one rank's tile. ``remote``: the kind of its remote accesses, "store" or "load", that are 16
    bytes per lane in aligned kernels; empty if another op's functions make them. ``static_width``: the kernel is
    specialized on the divisibility of each rank's part, so that the width of accesses shows in the compiled code;
    otherwise only executed accesses show it.
    """

    name: str
    function: str
    call: Any
    shapes: Callable[[TileCase, int], tuple[Shape, Shape]]
    reference: Callable[[TileCase, torch.Tensor, int, int], torch.Tensor]
    unaligned: Tiling
    aligned: Tiling
    sums: bool = False
    flags: bool = False
    locks: bool = False
    adds_to_output: bool = False
    divides: bool = False
    owned: Callable[[TileCase, int, int], torch.Tensor] | None = None
    same_bits: bool = False
    rooted: bool = False
    remote: str = ""
    static_width: bool = True


def has_methods(name: str) -> bool:
    """Return whether the context has a tile-level collective as a method; the published one has functions only."""
    return judged.offers(f"DeviceContext.{TILES[name].function}")


def names(holds: Callable[[TileCollective], Any] = lambda op: True) -> tuple[str, ...]:
    """Return the names of the ops for which ``holds`` is true."""
    return tuple(name for name, op in TILES.items() if holds(op))


# -- calls -------------------------------------------------------------------------------------------------------------


@triton.jit
def _all_gather_rows(
    function: tl.constexpr, METHODS: tl.constexpr, place, tile, source, staged, output, locks, n, root, ctx
):
    if METHODS:
        ctx.all_gather(tile, output, 0)
    else:
        function(tile, output, 0, ctx)


@triton.jit
def _all_gather_columns(
    function: tl.constexpr, METHODS: tl.constexpr, place, tile, source, staged, output, locks, n, root, ctx
):
    if METHODS:
        ctx.all_gather(tile, output, 1)
    else:
        function(tile, output, 1, ctx)


@triton.jit
def _all_to_all(
    function: tl.constexpr, METHODS: tl.constexpr, place, tile, source, staged, output, locks, n, root, ctx
):
    if METHODS:
        ctx.all_to_all(place, source, output, n)
    else:
        function(place, source, output, n, ctx)


@triton.jit
def _gather(function: tl.constexpr, METHODS: tl.constexpr, place, tile, source, staged, output, locks, n, root, ctx):
    if METHODS:  # noqa: SIM108 - Triton cannot take a method of an aggregate from a conditional expression
        block = ctx.gather(place, source, root)
    else:
        block = function(place, source, root, ctx)
    there, inside = output.tile_ptr(place)
    tl.store(there, block, mask=inside)


@triton.jit
def _all_reduce_one_shot(
    function: tl.constexpr, METHODS: tl.constexpr, place, tile, source, staged, output, locks, n, root, ctx
):
    if METHODS:
        ctx.all_reduce_one_shot(place, staged, output, locks)
    else:
        function(place, staged, output, locks, ctx)


@triton.jit
def _all_reduce_two_shot(
    function: tl.constexpr, METHODS: tl.constexpr, place, tile, source, staged, output, locks, n, root, ctx
):
    if METHODS:
        ctx.all_reduce_two_shot(place, staged, output, locks)
    else:
        function(place, staged, output, locks, ctx)


@triton.jit
def _all_reduce_ring(
    function: tl.constexpr, METHODS: tl.constexpr, place, tile, source, staged, output, locks, n, root, ctx
):
    if METHODS:
        ctx.all_reduce_ring(place, source, output)
    else:
        function(place, source, output, ctx)


@triton.jit
def _all_reduce_atomic(
    function: tl.constexpr, METHODS: tl.constexpr, place, tile, source, staged, output, locks, n, root, ctx
):
    if METHODS:
        ctx.all_reduce_atomic(tile, output)
    else:
        function(tile, output, ctx)


@triton.jit
def _all_reduce_spinlock(
    function: tl.constexpr, METHODS: tl.constexpr, place, tile, source, staged, output, locks, n, root, ctx
):
    if METHODS:
        ctx.all_reduce_spinlock(tile, output, locks)
    else:
        function(tile, output, locks, ctx)


@triton.jit
def _reduce_scatter(
    function: tl.constexpr, METHODS: tl.constexpr, place, tile, source, staged, output, locks, n, root, ctx
):
    if METHODS:
        ctx.reduce_scatter(place, staged, output, locks)
    else:
        function(place, staged, output, locks, ctx)


# -- shapes and oracles ------------------------------------------------------------------------------------------------


def _same(case: TileCase, ranks: int) -> tuple[Shape, Shape]:
    return (case.m, case.n), (case.m, case.n)


def _rows(case: TileCase, ranks: int) -> tuple[Shape, Shape]:
    return (case.m, case.n), (ranks * case.m, case.n)


def _columns(case: TileCase, ranks: int) -> tuple[Shape, Shape]:
    return (case.m, case.n), (case.m, ranks * case.n)


def _blocks(case: TileCase, ranks: int) -> tuple[Shape, Shape]:
    return (case.m, ranks * case.n), (case.m, ranks * case.n)


def _whole_tiles(case: TileCase, ranks: int) -> tuple[Shape, Shape]:
    return (case.m, case.n), (-(-case.m // case.block_m) * case.block_m, -(-case.n // case.block_n) * case.block_n)


def _all_matrices(case: TileCase, mine: torch.Tensor, ranks: int) -> torch.Tensor:
    return gathered(mine).view(ranks, case.m, case.n)


def _stacked(case: TileCase, mine: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
    return torch.cat(list(_all_matrices(case, mine, ranks)), dim=0)


def _joined(case: TileCase, mine: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
    return torch.cat(list(_all_matrices(case, mine, ranks)), dim=1)


def _of_root(case: TileCase, mine: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
    """Return the root's matrix, padded with 0 to whole tiles."""
    parts = _all_matrices(case, mine, ranks)
    values = torch.zeros(_whole_tiles(case, ranks)[1], dtype=mine.dtype)
    values[: case.m, : case.n] = parts[case.root]
    return values


def _exchanged(case: TileCase, mine: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
    pairs = {(one, other) for one in range(ranks) for other in range(ranks)}
    sent = [mine[:, to * case.n : (to + 1) * case.n].contiguous() for to in range(ranks)]
    received = exchange(sent, pairs, rank=rank, ranks=ranks)
    return torch.cat([received[by].view(case.m, case.n) for by in range(ranks)], dim=1)


def _summed(case: TileCase, mine: torch.Tensor, rank: int, ranks: int) -> torch.Tensor:
    dtype = of_name(case.dtype)
    return reduced(mine.float() if dtype.itemsize == 2 else mine, "sum").to(dtype)


def _owned(case: TileCase, rank: int, ranks: int) -> torch.Tensor:
    """Return the mask of elements that ``rank`` owns: an equal number of whole tiles; the last rank also owns the
    rest."""
    rows = torch.arange(case.m)[:, None] // case.block_m
    columns = torch.arange(case.n)[None, :] // case.block_n
    number, share = rows * -(-case.n // case.block_n) + columns, case.tiles // ranks
    last = rank == ranks - 1
    return (number >= rank * share) & (last | (number < (rank + 1) * share))


# -- the tile-level collectives ----------------------------------------------------------------------------------------

_LISTED = (
    # all_gather(tile, dst_view, dim, ctx) joins the ranks' matrices in rank order, by rows or by columns.
    TileCollective(
        "all_gather_rows", "all_gather", _all_gather_rows, _rows, _stacked, ("int16", 4, 16, 1), ("fp32", 8, 128, 4),
        remote="store",
    ),
    TileCollective(
        "all_gather_columns", "all_gather", _all_gather_columns, _columns, _joined, ("int8", 8, 8, 1),
        ("fp16", 16, 128, 4), remote="store", static_width=False,
    ),
    # all_to_all(tile, src_view, dst_view, N_per_rank, ctx) puts rank i's column block j into rank j's column block i.
    TileCollective(
        "all_to_all", "all_to_all", _all_to_all, _blocks, _exchanged, ("fp64", 4, 16, 1), ("bf16", 16, 128, 4),
        remote="store",
    ),
    # gather(tile, src_view, source_rank, ctx) returns another rank's tile, 0 outside the matrix.
    TileCollective(
        "gather", "gather", _gather, _whole_tiles, _of_root, ("int32", 4, 16, 1), ("fp16", 8, 64, 1), rooted=True,
        remote="load",
    ),
    TileCollective(
        "all_reduce_one_shot", "all_reduce_one_shot", _all_reduce_one_shot, _same, _summed, ("fp32", 4, 16, 1),
        ("fp16", 16, 128, 4), sums=True, flags=True, locks=True, same_bits=True,
    ),
    TileCollective(
        "all_reduce_two_shot", "all_reduce_two_shot", _all_reduce_two_shot, _same, _summed, ("fp32", 4, 16, 1),
        ("bf16", 32, 128, 8), divides=True, sums=True, flags=True, locks=True, same_bits=True,
    ),
    TileCollective(
        "all_reduce_ring", "all_reduce_ring", _all_reduce_ring, _same, _summed, ("fp32", 4, 16, 1),
        ("fp16", 16, 128, 4), sums=True, same_bits=True, remote="load",
    ),
    TileCollective(
        "all_reduce_atomic", "all_reduce_atomic", _all_reduce_atomic, _same, _summed, ("fp32", 4, 16, 1),
        ("bf16", 8, 64, 1), sums=True, adds_to_output=True,
    ),
    TileCollective(
        "all_reduce_spinlock", "all_reduce_spinlock", _all_reduce_spinlock, _same, _summed, ("int64", 4, 16, 1),
        ("fp16", 16, 128, 4), sums=True, locks=True, adds_to_output=True,
    ),
    # reduce_scatter(tile, src_view, dst_view, locks, ctx): the tile's owner gets the sum. Of T tiles, rank r of W owns
    # the T // W tiles from number r * (T // W) on; the last rank also owns the rest.
    TileCollective(
        "reduce_scatter", "reduce_scatter", _reduce_scatter, _same, _summed, ("int8", 4, 16, 1), ("int32", 8, 128, 4),
        divides=True, sums=True, flags=True, locks=True, owned=_owned,
    ),
)  # fmt: skip

TILES = {op.name: op for op in _LISTED}

FUNCTIONS = tuple(dict.fromkeys(op.function for op in TILES.values()))
"""The names of the library's functions, each once."""
