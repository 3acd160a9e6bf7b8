"""What can be measured. A further op is one class here, with a line in ``OPS``.

Symbols: W ranks; *size* is the larger of one rank's input and output, in bytes, as in nccl-tests. ``layout``,
``bus_factor`` and ``most_calls`` are for the controller; the other methods run on ranks, on contiguous 2-D tensors
whose rows are multiples of 4 bytes. Bus factors are nccl-tests': bytes that a rank's links must carry per byte of size.
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
"""The library's kernels, as backends."""

_ALIGNMENT = 16
_FEWEST_COLUMNS, _MOST_COLUMNS = 256, 1024
_FEWEST_ROWS = 32
MOST_CALLS = 20
"""Per timing: NCCL's calls get slower in longer graphs (10 us each in one of 20, 25 in one of 187, on two H200s)."""

ITEM_SIZES = {"fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8, "int8": 1, "int16": 2, "int32": 4, "int64": 8}
_SIGNIFICANT = {"fp16": 11, "bf16": 8, "fp32": 24, "fp64": 53}
_OCTAVES = {"fp16": 30, "bf16": 142, "fp32": 142, "fp64": 1038}
"""From ``payload.SMALLEST`` to the largest number."""
_ADDEND_BITS = 4

Shape = tuple[int, int]


@dataclass(frozen=True)
class Layout:
    """Shapes (rows, columns) of one rank's input and output, the library's and torch.distributed's, and ``size``."""

    size: int
    input: Shape
    output: Shape
    their_input: Shape
    their_output: Shape

    def shapes(self, theirs: bool) -> tuple[Shape, Shape]:
        """Of output and input."""
        return (self.their_output, self.their_input) if theirs else (self.output, self.input)

    def elements(self) -> tuple[int, int]:
        """The most that an output and an input has, of either side."""
        shapes = (self.output, self.their_output), (self.input, self.their_input)
        output, source = (max(rows * columns for rows, columns in pair) for pair in shapes)
        return output, source


@dataclass(frozen=True)
class Turn:
    """Who prepares or checks, and for which timing, of so many calls: nothing of one generation is right in another."""

    rank: int
    ranks: int
    generation: int
    backend: str
    dtype: str
    calls: int

    @property
    def theirs(self) -> bool:
        """Whether the op is torch.distributed's."""
        return self.backend not in OURS


class Op(ABC):
    """One op. Inputs differ between ranks and between generations, so that neither a stray nor a stale value passes."""

    name = ""

    @abstractmethod
    def layout(self, size: int, ranks: int, itemsize: int) -> Layout:
        """The shapes for at most ``size`` bytes, rounded down to 16 bytes per rank. UsageError if it is too small."""

    def bus_factor(self, ranks: int) -> float:
        """(W - 1) / W: a rank's own share does not travel."""
        return (ranks - 1) / ranks

    def most_calls(self, ranks: int, dtype: str) -> int:
        """How many calls a timing may have and still be checked."""
        return MOST_CALLS

    def in_place(self, theirs: bool) -> bool:
        """Whether the output is the input as well; its shape in the layout is (0, 0) then."""
        return False

    @abstractmethod
    def fill(self, source: torch.Tensor, turn: Turn) -> None:
        """Write the input of ``turn.rank``. In place: over an output in which every byte is wrong."""

    @abstractmethod
    def reference(self, output: torch.Tensor, turn: Turn) -> None:
        """Write the output that ``turn.rank`` must have, without communication."""

    def written(self, rows: int, turn: Turn) -> slice:
        """Which of the output's rows the op writes; the others must stay as they were."""
        return slice(0, rows)

    def ours(self, ccl: Any, output: torch.Tensor, source: torch.Tensor, config: Any, kept: dict[str, Any]) -> Any:
        """Enqueue the library's op; what it returns. ``kept`` lives as long as the cell."""
        return getattr(ccl, self.name)(output, source, async_op=True, config=config)

    @abstractmethod
    def theirs(self, output: torch.Tensor, source: torch.Tensor, group: Any) -> None:
        """Enqueue torch.distributed's op on a group, None for the world."""

    def _share(self, size: int, ranks: int, itemsize: int) -> int:
        """Elements of one rank's share of ``size`` bytes, rounded down to 16 bytes."""
        share = size // (ranks * _ALIGNMENT) * _ALIGNMENT
        if share == 0:
            raise self._too_small(size, ranks, ranks * _ALIGNMENT)
        return share // itemsize

    def _too_small(self, size: int, ranks: int, least: int) -> UsageError:
        return UsageError(f"a size of {size} bytes is too small for {self.name}: {ranks} ranks need {least} or more")


class AllGather(Op):
    """Every rank's rows, stacked by rank, on every rank."""

    name = "all_gather"

    def layout(self, size: int, ranks: int, itemsize: int) -> Layout:
        """As ``Op.layout``."""
        rows, columns = _shape(self._share(size, ranks, itemsize))
        shapes = (rows, columns), (rows * ranks, columns)
        return Layout(rows * columns * ranks * itemsize, *shapes, *shapes)

    def fill(self, source: torch.Tensor, turn: Turn) -> None:
        """Numbered on from the rank before."""
        from harness.bench.payload import number

        number(source, turn.rank * source.nbytes // 4, turn.generation)

    def reference(self, output: torch.Tensor, turn: Turn) -> None:
        """The inputs of all ranks, one below the other."""
        from harness.bench.payload import number

        number(output, 0, turn.generation)

    def theirs(self, output: torch.Tensor, source: torch.Tensor, group: Any) -> None:
        """``all_gather_into_tensor``."""
        import torch.distributed as dist

        dist.all_gather_into_tensor(output, source, group=group)


class AllToAll(Op):
    """Block j of rank i becomes block i of rank j.

    Blocks are columns in the library, (M, W*N), and rows in torch.distributed, (W, M*N): the same bytes move between
    the same ranks, but the library gathers and scatters rows of N elements, where torch.distributed has one run.
    """

    name = "all_to_all"

    def layout(self, size: int, ranks: int, itemsize: int) -> Layout:
        """As ``Op.layout``."""
        elements = self._share(size, ranks, itemsize)
        rows, columns = _shape(elements)
        ours, theirs = (rows, ranks * columns), (ranks, elements)
        return Layout(elements * ranks * itemsize, ours, ours, theirs, theirs)

    def fill(self, source: torch.Tensor, turn: Turn) -> None:
        """Each pair of ranks has numbers of its own."""
        self._write(source, turn, [turn.rank * turn.ranks + to for to in range(turn.ranks)])

    def reference(self, output: torch.Tensor, turn: Turn) -> None:
        """What each rank has for this one."""
        self._write(output, turn, [source * turn.ranks + turn.rank for source in range(turn.ranks)])

    def theirs(self, output: torch.Tensor, source: torch.Tensor, group: Any) -> None:
        """``all_to_all_single``."""
        import torch.distributed as dist

        dist.all_to_all_single(output, source, group=group)

    def _write(self, tensor: torch.Tensor, turn: Turn, pairs: list[int]) -> None:
        from harness.bench.payload import number

        for block, pair in zip(tensor.chunk(turn.ranks, dim=0 if turn.theirs else 1), pairs, strict=True):
            number(block, pair * (block.nbytes // 4), turn.generation)


class AllReduce(Op):
    """The sum of all ranks' inputs on every rank.

    torch.distributed's works in place, so that each of its calls adds up the sums of the one before. The numbers are
    such that this stays exact, whatever the order, for as many calls as a timing may have.
    """

    name = "all_reduce"

    def layout(self, size: int, ranks: int, itemsize: int) -> Layout:
        """As ``Op.layout``."""
        shape = _shape(self._share(size, ranks, itemsize) * ranks)
        return Layout(shape[0] * shape[1] * itemsize, shape, shape, (0, 0), shape)

    def bus_factor(self, ranks: int) -> float:
        """2 (W - 1) / W: each share is gathered, and its sum sent out."""
        return 2 * (ranks - 1) / ranks

    def most_calls(self, ranks: int, dtype: str) -> int:
        """Sums grow by a factor of W with each call: by their exponent if W is a power of two, else in their digits."""
        if ranks == 1:
            return MOST_CALLS
        room = digits = _digits(dtype)
        if ranks & (ranks - 1) == 0 and addend_bits(ranks, dtype) + 2 * math.log2(ranks) <= digits:
            room = _OCTAVES.get(dtype, digits)
        return max(1, min(MOST_CALLS, int((room - addend_bits(ranks, dtype)) / math.log2(ranks) + 1e-9)))

    def in_place(self, theirs: bool) -> bool:
        """torch.distributed's."""
        return theirs

    def fill(self, source: torch.Tensor, turn: Turn) -> None:
        """Small numbers."""
        from harness.bench.payload import addends

        addends(source, addend_bits(turn.ranks, turn.dtype), turn.rank, turn.generation)

    def reference(self, output: torch.Tensor, turn: Turn) -> None:
        """Their sum, or what it has grown to."""
        from harness.bench.payload import sums

        factor = turn.ranks ** (turn.calls - 1) if turn.theirs else 1
        sums(output, addend_bits(turn.ranks, turn.dtype), 0, turn.ranks, turn.generation, factor)

    def ours(self, ccl: Any, output: torch.Tensor, source: torch.Tensor, config: Any, kept: dict[str, Any]) -> Any:
        """One workspace per cell, as a user has it who calls the op again and again."""
        kept["workspace"] = ccl.all_reduce(
            output, source, async_op=True, config=config, workspace=kept.get("workspace")
        )
        return kept["workspace"]

    def theirs(self, output: torch.Tensor, source: torch.Tensor, group: Any) -> None:
        """``all_reduce``."""
        import torch.distributed as dist

        dist.all_reduce(output, group=group)


class ReduceScatter(Op):
    """The sum of all ranks' inputs, a share of it on each rank.

    The library's output is as large as its input, and a rank writes the tiles of it that it owns. With the tiles that
    its kernels have without a Config, ``TILES``, in groups of ``GROUP`` rows of tiles, and with the shapes chosen here,
    those are a run of rows: the same as torch.distributed's, unless there are fewer rows than W such tiles have, when
    the last ranks own nothing.
    """

    name = "reduce_scatter"
    TILES = {"triton": (32, 64), "gluon": (32, 64)}
    GROUP = 4

    def layout(self, size: int, ranks: int, itemsize: int) -> Layout:
        """Rounded down to 64 elements per rank. Columns: up to 1024, but such that a share is whole groups of tiles."""
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
        """Small numbers."""
        from harness.bench.payload import addends

        addends(source, addend_bits(turn.ranks, turn.dtype), turn.rank, turn.generation)

    def reference(self, output: torch.Tensor, turn: Turn) -> None:
        """The sum, of the whole input or of the rank's own rows."""
        from harness.bench.payload import sums

        first = turn.rank * output.numel() if turn.theirs else 0
        sums(output, addend_bits(turn.ranks, turn.dtype), first, turn.ranks, turn.generation)

    def written(self, rows: int, turn: Turn) -> slice:
        """The library's: ceil(tiles / W) tiles, as ``TILES`` has them, from the rank's place on."""
        if turn.theirs:
            return slice(0, rows)
        height = self.TILES[turn.backend][0]
        share = -(-rows // (height * turn.ranks)) * height
        return slice(min(rows, turn.rank * share), min(rows, (turn.rank + 1) * share))

    def theirs(self, output: torch.Tensor, source: torch.Tensor, group: Any) -> None:
        """``reduce_scatter_tensor``."""
        import torch.distributed as dist

        dist.reduce_scatter_tensor(output, source, group=group)


class Broadcast(Op):
    """Rank 0's tensor on every rank."""

    name = "broadcast"

    def in_place(self, theirs: bool) -> bool:
        """On both sides."""
        return True

    def layout(self, size: int, ranks: int, itemsize: int) -> Layout:
        """As ``Op.layout``."""
        shape = _shape(self._share(size, ranks, itemsize) * ranks)
        return Layout(shape[0] * shape[1] * itemsize, (0, 0), shape, (0, 0), shape)

    def bus_factor(self, ranks: int) -> float:
        """1: all of it enters each rank."""
        return 1.0

    def fill(self, source: torch.Tensor, turn: Turn) -> None:
        """On the root; the others' tensor stays as it is."""
        if turn.rank == 0:
            self.reference(source, turn)

    def reference(self, output: torch.Tensor, turn: Turn) -> None:
        """What the root has."""
        from harness.bench.payload import number

        number(output, 0, turn.generation)

    def ours(self, ccl: Any, output: torch.Tensor, source: torch.Tensor, config: Any, kept: dict[str, Any]) -> Any:
        """``broadcast`` from rank 0."""
        return ccl.broadcast(output, 0, async_op=True, config=config)

    def theirs(self, output: torch.Tensor, source: torch.Tensor, group: Any) -> None:
        """``broadcast`` from rank 0."""
        import torch.distributed as dist

        dist.broadcast(output, 0, group=group)


OPS: dict[str, Op] = {op.name: op for op in (AllGather(), ReduceScatter(), AllToAll(), AllReduce(), Broadcast())}


def op_named(name: str) -> Op:
    """The op of that name; UsageError for another name."""
    if name not in OPS:
        raise UsageError(f"there is no benchmark of {name!r}: choose among {', '.join(OPS)}, or just all")
    return OPS[name]


def addend_bits(ranks: int, dtype: str) -> int:
    """Bits of the numbers that are added up: so few that the dtype holds any part of a sum of sums, if it can."""
    return max(1, min(_ADDEND_BITS, _digits(dtype) - 2 * (ranks - 1).bit_length()))


def _digits(dtype: str) -> int:
    return _SIGNIFICANT.get(dtype, 8 * ITEM_SIZES[dtype] - 1)


def _shape(elements: int) -> Shape:
    """(rows, columns): the largest power of two of columns that leaves 32 rows, from 256 to 1024; fewer if need be."""
    columns = min(_MOST_COLUMNS, elements & -elements)
    while columns > _FEWEST_COLUMNS and elements // columns < _FEWEST_ROWS:
        columns //= 2
    return elements // columns, columns
