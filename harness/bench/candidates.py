"""What ``--tune`` tries. The one place where candidates stand: add a line, and the next table may have it.

A candidate is a number of programs and fields of ``Config``. Few per size, since each costs its compilation and its
timings: what suits a size is known roughly, and what is not near that is left out.
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
    # up to this size: (bytes of a tile, warps, programs at most). Where peers are read, a tile of 16 bytes per lane:
    # NVIDIA's assembler waits for some loads before it issues others, and each wait is a round trip over the link.
    (64 * _KIB, ((2048, 4, 64), (4096, 8, 64), (8192, 8, 64))),
    (2 * _MIB, ((2048, 4, 128), (4096, 4, 64), (4096, 8, 64), (4096, 8, 128), (8192, 16, 64))),
    (16 * _MIB, ((4096, 8, 64), (4096, 8, 128), (8192, 8, 64), (8192, 8, 128), (16384, 8, 128))),
    (1 << 60, ((4096, 8, 256), (8192, 8, 128), (16384, 8, 128), (16384, 8, 512), (32768, 16, 256))),
)

REDUCE_SCATTER = (
    # Its tile says which part of the sum a rank has, and is no choice: (warps, programs at most)
    (1 * _MIB, ((8, 32), (8, 128))),
    (16 * _MIB, ((8, 64), (8, 128))),
    (1 << 60, ((8, 128), (8, 256), (8, 512))),
)

LL = (
    # Of the "ll" protocol, which has twice the bytes and no meeting, and gives each lane 4 bytes at a time.
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
"""one_shot reads W times the size: for small sizes only. two_shot_push needs memory of its own."""


def candidates(op: str, size: int, itemsize: int) -> tuple[Candidate, ...]:
    """Of an op at ``size`` bytes: programs, and the other fields."""
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
        found = [_made(shapes, itemsize, ("all_reduce_variant", name)) for name in _at(ALL_REDUCE_VARIANTS, size)]
        found.append(_made(flagged, itemsize, ("all_reduce_variant", "one_shot"), *ll))
    else:
        found = [_made(shapes, itemsize), _made(flagged, itemsize, *ll)]
    return tuple(itertools.chain(*found))


def _made(shapes: Sequence[tuple[int, int, int]], itemsize: int, *fields: tuple[str, int | str]) -> list[Candidate]:
    made: list[Candidate] = []
    for tile, warps, programs in shapes:
        rows = max(1, tile // (_TILE_COLUMNS * itemsize))
        made.append(
            (programs, (("block_size_m", rows), ("block_size_n", _TILE_COLUMNS), ("num_warps", warps), *fields))
        )
    return made


def _at(table: Sequence[tuple[int, tuple[_Row, ...]]], size: int) -> tuple[_Row, ...]:
    return next((row for limit, row in table if size <= limit), ())
