"""What can be measured. A further op is one class here, with a line in ``OPS``.

Symbols: W ranks; *size* is the output of one rank in bytes, as in nccl-tests. ``layout`` and ``bus_factor`` are for the
controller; the other methods run on ranks, on contiguous 2-D tensors whose rows are multiples of 4 bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from harness.errors import UsageError

if TYPE_CHECKING:
    import torch

_ALIGNMENT = 16
_MOST_COLUMNS = 1024
_SPREAD, _STEP = 0x9E3779B1, 0x85EBCA6B
_PIECE = 1 << 28


@dataclass(frozen=True)
class Layout:
    """Shapes (rows, columns) of one rank's input and output, and ``size``: bytes of the output."""

    size: int
    input: tuple[int, int]
    output: tuple[int, int]

    @property
    def input_bytes(self) -> int:
        """Bytes of one rank's input."""
        return self.size * self.input[0] // self.output[0]


class Op(Protocol):
    """One op. Inputs differ between ranks and between generations, so that neither a stray nor a stale value passes."""

    name: str

    def layout(self, size: int, ranks: int, itemsize: int) -> Layout:
        """The shapes for an output of at most ``size`` bytes. UsageError if it is too small."""

    def bus_factor(self, ranks: int) -> float:
        """Bus bandwidth per algorithm bandwidth, as nccl-tests has it: the traffic that a rank's link must carry."""

    def fill(self, tensor: torch.Tensor, rank: int, ranks: int, generation: int) -> None:
        """Write the input of ``rank`` in that generation."""

    def reference(self, tensor: torch.Tensor, ranks: int, generation: int) -> None:
        """Write the output that every rank must have, without communication."""

    def ours(self, iris: Any, output: torch.Tensor, source: torch.Tensor, config: Any) -> None:
        """Enqueue the library's op, without its completion."""

    def theirs(self, output: torch.Tensor, source: torch.Tensor) -> None:
        """Enqueue torch.distributed's op."""


class AllGather:
    """Every rank's rows, stacked by rank, on every rank."""

    name = "all_gather"

    def layout(self, size: int, ranks: int, itemsize: int) -> Layout:
        """Rounded down to 16 bytes per rank. Columns: the largest power of two, up to 1024, that divides an input."""
        share = size // (ranks * _ALIGNMENT) * _ALIGNMENT
        if share == 0:
            raise UsageError(f"a size of {size} bytes is too small: {ranks} ranks need {ranks * _ALIGNMENT} or more")
        elements = share // itemsize
        columns = min(_MOST_COLUMNS, elements & -elements)
        rows = elements // columns
        return Layout(share * ranks, (rows, columns), (rows * ranks, columns))

    def bus_factor(self, ranks: int) -> float:
        """(W - 1) / W: a rank's own share does not travel."""
        return (ranks - 1) / ranks

    def fill(self, tensor: torch.Tensor, rank: int, ranks: int, generation: int) -> None:
        """32-bit words, all different within 16 GiB of output, and each different from one generation to the next."""
        words = _words(tensor)
        for start in range(0, words.numel(), _PIECE):
            piece = words[start : start + _PIECE]
            _count(piece)
            piece.add_(_signed(rank * words.numel() + start)).mul_(_signed(_SPREAD)).add_(_signed(generation * _STEP))

    def reference(self, tensor: torch.Tensor, ranks: int, generation: int) -> None:
        """The inputs of all ranks, one below the other."""
        for rank, share in enumerate(tensor.chunk(ranks)):
            self.fill(share, rank, ranks, generation)

    def ours(self, iris: Any, output: torch.Tensor, source: torch.Tensor, config: Any) -> None:
        """``ccl.all_gather`` without its barrier."""
        iris.ccl.all_gather(output, source, async_op=True, config=config)

    def theirs(self, output: torch.Tensor, source: torch.Tensor) -> None:
        """``all_gather_into_tensor``."""
        import torch.distributed as dist

        dist.all_gather_into_tensor(output, source)


OPS: dict[str, Op] = {op.name: op for op in (AllGather(),)}


def op_named(name: str) -> Op:
    """The op of that name; UsageError for another name."""
    if name not in OPS:
        raise UsageError(f"there is no benchmark of {name!r}: choose one of {', '.join(OPS)}")
    return OPS[name]


def _words(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    return tensor.view(-1).view(torch.int32)


def _count(words: torch.Tensor) -> None:
    import torch

    torch.arange(words.numel(), out=words)


def _signed(value: int) -> int:
    """``value`` modulo 2**32 as an int32 has it: arithmetic on words wraps."""
    value %= 1 << 32
    return value - (1 << 32) if value >= 1 << 31 else value
