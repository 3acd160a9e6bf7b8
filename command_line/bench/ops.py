"""The ops that ``iris-harness bench`` can measure. To add an op, write a class here and add it to ``OPS``.

W is the number of ranks. *Size* is the larger of one rank's input and output, in bytes, as in nccl-tests. The
controller calls ``layout``, ``bus_factor`` and ``most_calls``; the other methods run on ranks, on contiguous 2-D
tensors whose rows are multiples of 4 bytes. Bus factors are those of nccl-tests: bytes that a rank's links must carry
per byte of size. In names, *ours* is the library under test, *theirs* is torch.distributed.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.errors import UsageError

if TYPE_CHECKING:
    import torch

OURS = ("gluon", "triton")
"""The backends that are kernels of the library under test."""

_ALIGNMENT = 16
_FEWEST_COLUMNS, _MOST_COLUMNS = 256, 1024
_FEWEST_ROWS = 32
MOST_CALLS = 20
"""Maximum of calls per timing. NCCL's calls get slower in longer graphs: 10 us each in a graph of 20 calls, 25 us each
in one of 187, on two H200s."""

ITEM_SIZES = {"fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8, "int8": 1, "int16": 2, "int32": 4, "int64": 8}
_SIGNIFICANT = {"fp16": 11, "bf16": 8, "fp32": 24, "fp64": 53}
_OCTAVES = {"fp16": 30, "bf16": 142, "fp32": 142, "fp64": 1038}
"""Number of powers of two from ``payload.SMALLEST`` to the largest number of the dtype."""
_ADDEND_BITS = 4

Shape = tuple[int, int]


@dataclass(frozen=True)
class Layout:
    """Shapes (rows, columns) of one rank's input and output, for the library and for torch.distributed (``their_``),
    and ``size`` in bytes."""

    size: int
    input: Shape
    output: Shape
    their_input: Shape
    their_output: Shape

    def shapes(self, theirs: bool) -> tuple[Shape, Shape]:
        """Return the shapes of output and input: torch.distributed's if ``theirs``, else the library's."""
        return (self.their_output, self.their_input) if theirs else (self.output, self.input)

    def elements(self) -> tuple[int, int]:
        """Return the largest number of elements of an output and of an input on either side."""
        shapes = (self.output, self.their_output), (self.input, self.their_input)
        output, source = (max(rows * columns for rows, columns in pair) for pair in shapes)
        return output, source


@dataclass(frozen=True)
class Turn:
    """One timing on one rank: rank, world size, generation, backend, dtype, calls.

    Every timing has its own generation. Data of one generation is wrong in every other.
    """

    rank: int
    ranks: int
    generation: int
    backend: str
    dtype: str
    calls: int

    @property
    def theirs(self) -> bool:
        """True if the timing calls torch.distributed."""
        return self.backend not in OURS


class Op(ABC):
    """Abstract base of an op. Inputs differ between ranks and generations: a misplaced or stale value never passes."""

    name = ""

    @abstractmethod
    def layout(self, size: int, ranks: int, itemsize: int) -> Layout:
        """Return the shapes for ``size`` bytes, rounded down to 16 bytes per rank. Raises UsageError if it is too
        small."""

    def bus_factor(self, ranks: int) -> float:
        """Return (W - 1) / W: a rank's own part is not sent over a link."""
        return (ranks - 1) / ranks

    def most_calls(self, ranks: int, dtype: str) -> int:
        """Return the maximum of calls in one timing for which the output can still be checked."""
        return MOST_CALLS

    def in_place(self, theirs: bool) -> bool:
        """Return True if the op works in place; the layout's shape of the input or the output is then (0, 0)."""
        return False

    @abstractmethod
    def fill(self, source: torch.Tensor, turn: Turn) -> None:
        """Write the input of ``turn.rank``. In place, it overwrites an output in which every byte is wrong."""

    @abstractmethod
    def reference(self, output: torch.Tensor, turn: Turn) -> None:
        """Write the output that ``turn.rank`` is expected to have, computed without communication."""

    def written(self, rows: int, turn: Turn) -> slice:
        """Return the rows of the output that the op writes. It must leave the others unchanged."""
        return slice(0, rows)

    def ours(self, ccl: Any, output: torch.Tensor, source: torch.Tensor, config: Any, kept: dict[str, Any]) -> Any:
        """Enqueue the library's op and return its result. ``kept`` is a dictionary that lives as long as the cell."""
        return getattr(ccl, self.name)(output, source, async_op=True, config=config)

    @abstractmethod
    def theirs(self, output: torch.Tensor, source: torch.Tensor, group: Any) -> None:
        """Enqueue torch.distributed's op on ``group``; None is the world group."""

    def _share(self, size: int, ranks: int, itemsize: int) -> int:
        """Return the number of elements in one rank's part of ``size`` bytes, rounded down to 16 bytes."""
        share = size // (ranks * _ALIGNMENT) * _ALIGNMENT
        if share == 0:
            raise self._too_small(size, ranks, ranks * _ALIGNMENT)
        return share // itemsize

    def _too_small(self, size: int, ranks: int, least: int) -> UsageError:
        return UsageError(f"--sizes: {size} bytes are too small for {self.name}: {ranks} ranks need {least} or more")


class AllGather(Op):
    """All-gather: every rank gets every rank's rows, stacked by rank."""

    name = "all_gather"

    def layout(self, size: int, ranks: int, itemsize: int) -> Layout:
        """See ``Op.layout``."""
        rows, columns = _shape(self._share(size, ranks, itemsize))
        shapes = (rows, columns), (rows * ranks, columns)
        return Layout(rows * columns * ranks * itemsize, *shapes, *shapes)

    def fill(self, source: torch.Tensor, turn: Turn) -> None:
        """Write numbers that continue those of the previous rank."""
        from command_line.bench.payload import number

        number(source, turn.rank * source.nbytes // 4, turn.generation)

    def reference(self, output: torch.Tensor, turn: Turn) -> None:
        """Write the inputs of all ranks, stacked by rank."""
        from command_line.bench.payload import number

        number(output, 0, turn.generation)

    def theirs(self, output: torch.Tensor, source: torch.Tensor, group: Any) -> None:
        """Enqueue ``all_gather_into_tensor``."""
        import torch.distributed as dist

        dist.all_gather_into_tensor(output, source, group=group)


class AllToAll(Op):
    """All-to-all: block j of rank i becomes block i of rank j.

    In the library the blocks are columns, (M, W*N); in torch.distributed they are rows, (W, M*N). The same bytes move
    between the same ranks, but the library gathers and scatters rows of N elements, while torch.distributed copies one
    contiguous run.
    """

    name = "all_to_all"

    def layout(self, size: int, ranks: int, itemsize: int) -> Layout:
        """See ``Op.layout``."""
        elements = self._share(size, ranks, itemsize)
        rows, columns = _shape(elements)
        ours, theirs = (rows, ranks * columns), (ranks, elements)
        return Layout(elements * ranks * itemsize, ours, ours, theirs, theirs)

    def fill(self, source: torch.Tensor, turn: Turn) -> None:
        """Write different numbers for each pair of ranks."""
        self._write(source, turn, [turn.rank * turn.ranks + to for to in range(turn.ranks)])

    def reference(self, output: torch.Tensor, turn: Turn) -> None:
        """Write the block that each rank sends to this one."""
        self._write(output, turn, [source * turn.ranks + turn.rank for source in range(turn.ranks)])

    def theirs(self, output: torch.Tensor, source: torch.Tensor, group: Any) -> None:
        """Enqueue ``all_to_all_single``."""
        import torch.distributed as dist

        dist.all_to_all_single(output, source, group=group)

    def _write(self, tensor: torch.Tensor, turn: Turn, pairs: list[int]) -> None:
        from command_line.bench.payload import number

        for block, pair in zip(tensor.chunk(turn.ranks, dim=0 if turn.theirs else 1), pairs, strict=True):
            number(block, pair * (block.nbytes // 4), turn.generation)


class AllReduce(Op):
    """All-reduce: every rank gets the sum of all ranks' inputs.

    torch.distributed works in place, so that each call adds up the sums of the previous call. The inputs are chosen so
    that the sums stay exact in any order, for up to ``most_calls`` calls.
    """

    name = "all_reduce"

    def layout(self, size: int, ranks: int, itemsize: int) -> Layout:
        """See ``Op.layout``."""
        shape = _shape(self._share(size, ranks, itemsize) * ranks)
        return Layout(shape[0] * shape[1] * itemsize, shape, shape, (0, 0), shape)

    def bus_factor(self, ranks: int) -> float:
        """Return 2 (W - 1) / W: each part is gathered, and its sum is sent to the other ranks."""
        return 2 * (ranks - 1) / ranks

    def most_calls(self, ranks: int, dtype: str) -> int:
        """Return the maximum of calls for which repeated sums are exact.

        Each call multiplies the sums by W. If W is a power of two only the exponent grows, otherwise the digits do.
        """
        if ranks == 1:
            return MOST_CALLS
        room = digits = _digits(dtype)
        if ranks & (ranks - 1) == 0 and addend_bits(ranks, dtype) + 2 * math.log2(ranks) <= digits:
            room = _OCTAVES.get(dtype, digits)
        return max(1, min(MOST_CALLS, int((room - addend_bits(ranks, dtype)) / math.log2(ranks) + 1e-9)))

    def in_place(self, theirs: bool) -> bool:
        """Return True for torch.distributed only."""
        return theirs

    def fill(self, source: torch.Tensor, turn: Turn) -> None:
        """Write small numbers, whose sums are exact."""
        from command_line.bench.payload import addends

        addends(source, addend_bits(turn.ranks, turn.dtype), turn.rank, turn.generation)

    def reference(self, output: torch.Tensor, turn: Turn) -> None:
        """Write the sum of the inputs, or for torch.distributed the sum after ``turn.calls`` calls in place."""
        from command_line.bench.payload import sums

        factor = turn.ranks ** (turn.calls - 1) if turn.theirs else 1
        sums(output, addend_bits(turn.ranks, turn.dtype), 0, turn.ranks, turn.generation, factor)

    def ours(self, ccl: Any, output: torch.Tensor, source: torch.Tensor, config: Any, kept: dict[str, Any]) -> Any:
        """Enqueue the op with one workspace per cell, as a user does for repeated calls."""
        kept["workspace"] = ccl.all_reduce(
            output, source, async_op=True, config=config, workspace=kept.get("workspace")
        )
        return kept["workspace"]

    def theirs(self, output: torch.Tensor, source: torch.Tensor, group: Any) -> None:
        """Enqueue ``all_reduce``."""
        import torch.distributed as dist

        dist.all_reduce(output, group=group)


class ReduceScatter(Op):
    """Reduce-scatter: each rank gets one part of the sum of all ranks' inputs.

    The library's output is as large as its input, and a rank writes only the tiles that it owns. With the kernels'
    default tiles ``TILES``, in groups of ``GROUP`` rows of tiles, and with the shapes chosen here, these tiles are
    consecutive rows: the same rows as torch.distributed's, unless W such tiles have more rows than the tensor; then the
    last ranks own no tile.
    """

    name = "reduce_scatter"
    TILES = {"triton": (32, 64), "gluon": (32, 64)}
    GROUP = 4

    def layout(self, size: int, ranks: int, itemsize: int) -> Layout:
        """Return the shapes, rounded down to 64 elements per rank.

        There are up to 1024 columns, as long as a rank's part is a whole number of groups of tiles.
        """
        tile_rows, columns = self.TILES["triton"]
        step = ranks * columns * itemsize
        rows = size // step * ranks
        if rows == 0:
            raise self._too_small(size, ranks, step)
        while columns < _MOST_COLUMNS and rows % (2 * ranks * tile_rows * self.GROUP) == 0:
            rows, columns = rows // 2, columns * 2
        whole = rows, columns
        return Layout(rows * columns * itemsize, whole, whole, whole, (rows // ranks, columns))

    def fill(self, source: torch.Tensor, turn: Turn) -> None:
        """Write small numbers, whose sums are exact."""
        from command_line.bench.payload import addends

        addends(source, addend_bits(turn.ranks, turn.dtype), turn.rank, turn.generation)

    def reference(self, output: torch.Tensor, turn: Turn) -> None:
        """Write the sum of the whole inputs, or for torch.distributed of the rank's own rows."""
        from command_line.bench.payload import sums

        first = turn.rank * output.numel() if turn.theirs else 0
        sums(output, addend_bits(turn.ranks, turn.dtype), first, turn.ranks, turn.generation)

    def written(self, rows: int, turn: Turn) -> slice:
        """Return the rows that the rank owns: for the library, ceil(tiles / W) rows of tiles of ``TILES`` each."""
        if turn.theirs:
            return slice(0, rows)
        height = self.TILES[turn.backend][0]
        share = -(-rows // (height * turn.ranks)) * height
        return slice(min(rows, turn.rank * share), min(rows, (turn.rank + 1) * share))

    def theirs(self, output: torch.Tensor, source: torch.Tensor, group: Any) -> None:
        """Enqueue ``reduce_scatter_tensor``."""
        import torch.distributed as dist

        dist.reduce_scatter_tensor(output, source, group=group)


class Broadcast(Op):
    """Broadcast: every rank gets rank 0's tensor."""

    name = "broadcast"

    def in_place(self, theirs: bool) -> bool:
        """Return True: both sides work in place."""
        return True

    def layout(self, size: int, ranks: int, itemsize: int) -> Layout:
        """See ``Op.layout``."""
        shape = _shape(self._share(size, ranks, itemsize) * ranks)
        return Layout(shape[0] * shape[1] * itemsize, (0, 0), shape, (0, 0), shape)

    def bus_factor(self, ranks: int) -> float:
        """Return 1: all of the tensor enters each rank."""
        return 1.0

    def fill(self, source: torch.Tensor, turn: Turn) -> None:
        """Write the root's tensor; the tensors of the other ranks stay as they are."""
        if turn.rank == 0:
            self.reference(source, turn)

    def reference(self, output: torch.Tensor, turn: Turn) -> None:
        """Write the root's tensor."""
        from command_line.bench.payload import number

        number(output, 0, turn.generation)

    def ours(self, ccl: Any, output: torch.Tensor, source: torch.Tensor, config: Any, kept: dict[str, Any]) -> Any:
        """Enqueue the library's ``broadcast`` from rank 0."""
        return ccl.broadcast(output, 0, async_op=True, config=config)

    def theirs(self, output: torch.Tensor, source: torch.Tensor, group: Any) -> None:
        """Enqueue torch.distributed's ``broadcast`` from rank 0."""
        import torch.distributed as dist

        dist.broadcast(output, 0, group=group)


OPS: dict[str, Op] = {op.name: op for op in (AllGather(), ReduceScatter(), AllToAll(), AllReduce(), Broadcast())}


def op_named(name: str) -> Op:
    """Return the op of that name. Raises UsageError for an unknown name."""
    if name not in OPS:
        raise UsageError(f"OP: expected {', '.join(OPS)} or all, got {name!r:.60}")
    return OPS[name]


def addend_bits(ranks: int, dtype: str) -> int:
    """Return the number of bits of each addend: few enough that the dtype holds a sum of sums exactly, if possible."""
    return max(1, min(_ADDEND_BITS, _digits(dtype) - 2 * (ranks - 1).bit_length()))


def _digits(dtype: str) -> int:
    return _SIGNIFICANT.get(dtype, 8 * ITEM_SIZES[dtype] - 1)


def _shape(elements: int) -> Shape:
    """Return (rows, columns): 1024 columns, or 512 or 256 if there would be fewer than 32 rows.

    There are fewer columns only if 256 does not divide ``elements``.
    """
    columns = min(_MOST_COLUMNS, elements & -elements)
    while columns > _FEWEST_COLUMNS and elements // columns < _FEWEST_ROWS:
        columns //= 2
    return elements // columns, columns
