"""Candidate configurations for ``--tune``. To add a candidate, add a line to a table here.

A candidate is a number of programs and some fields of ``Config``. Each size has few candidates, since each costs a
compilation and its timings: the tables hold only values near those that are known to suit a size.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TypeVar

Fields = tuple[tuple[str, "int | str"], ...]
Candidate = tuple[int, Fields]
_Row = TypeVar("_Row")

_TILE_COLUMNS = 256
_KIB, _MIB = 1 << 10, 1 << 20

SHAPES = (
    # Up to this size: (bytes of a tile, warps, maximum of programs). For ops that read from peers, a tile has 16 bytes
    # per lane: NVIDIA's assembler waits for some loads before it issues others, and each wait is a link round trip.
    (64 * _KIB, ((2048, 4, 64), (4096, 8, 64), (8192, 8, 64))),
    (2 * _MIB, ((2048, 4, 128), (4096, 4, 64), (4096, 8, 64), (4096, 8, 128), (8192, 16, 64))),
    (16 * _MIB, ((4096, 8, 64), (4096, 8, 128), (8192, 8, 64), (8192, 8, 128), (16384, 8, 128))),
    (1 << 60, ((4096, 8, 256), (8192, 8, 128), (16384, 8, 128), (16384, 8, 512), (32768, 16, 256))),
)

REDUCE_SCATTER = (
    # The tile is fixed, since it defines which part of the sum a rank gets: (warps, maximum of programs).
    (1 * _MIB, ((8, 32), (8, 128))),
    (16 * _MIB, ((8, 64), (8, 128))),
    (1 << 60, ((8, 128), (8, 256), (8, 512))),
)

LL = (
    # For the "ll" protocol, which sends twice the bytes, needs no barrier, and moves 4 bytes per lane at a time.
    (128 * _KIB, ((4096, 4, 128), (4096, 8, 128), (4096, 16, 128))),
    (2 * _MIB, ((4096, 4, 256), (4096, 8, 256), (4096, 16, 256))),
)
LL_REDUCE_SCATTER = (
    (128 * _KIB, ((4, 128), (8, 128))),
    (4 * _MIB, ((4, 256), (8, 256), (16, 256))),
)

ALL_REDUCE_VARIANTS = (
    (32 * _KIB, ("one_shot", "two_shot")),
    (16 * _MIB, ("two_shot",)),
    (1 << 60, ("two_shot", "two_shot_push")),
)
"""one_shot reads W times the size: for small sizes only. two_shot_push needs a workspace."""


def candidates(op: str, size: int, itemsize: int) -> tuple[Candidate, ...]:
    """Return the candidates for an op at ``size`` bytes: the number of programs, and the other fields of ``Config``."""
    ll: Fields = (("protocol", "ll"),)
    if op == "reduce_scatter":
        return tuple(
            (programs, (("num_warps", warps), *protocol))
            for rows, protocol in ((_at(REDUCE_SCATTER, size), ()), (_at(LL_REDUCE_SCATTER, size), ll))
            for warps, programs in rows
            if protocol != ll or itemsize <= 4
        )
    shapes, flagged = _at(SHAPES, size), _at(LL, size) if itemsize <= 4 else ()
    if op == "all_reduce":
        lists = [_of_shapes(shapes, itemsize, ("all_reduce_variant", name)) for name in _at(ALL_REDUCE_VARIANTS, size)]
        lists.append(_of_shapes(flagged, itemsize, ("all_reduce_variant", "one_shot"), *ll))
    else:
        lists = [_of_shapes(shapes, itemsize), _of_shapes(flagged, itemsize, *ll)]
    return tuple(itertools.chain(*lists))


def _of_shapes(
    shapes: Sequence[tuple[int, int, int]], itemsize: int, *fields: tuple[str, int | str]
) -> list[Candidate]:
    chosen: list[Candidate] = []
    for tile, warps, programs in shapes:
        rows = max(1, tile // (_TILE_COLUMNS * itemsize))
        chosen.append(
            (programs, (("block_size_m", rows), ("block_size_n", _TILE_COLUMNS), ("num_warps", warps), *fields))
        )
    return chosen


def _at(table: Sequence[tuple[int, tuple[_Row, ...]]], size: int) -> tuple[_Row, ...]:
    return next((row for limit, row in table if size <= limit), ())
