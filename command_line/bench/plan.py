"""The request of a benchmark: parse the options of the command line and check them before anything starts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass

from command_line.bench.candidates import Fields, candidates
from command_line.bench.ops import ITEM_SIZES, OURS, Layout, Op, op_named
from fixtures.implementation import BUNDLED
from harness.errors import UsageError

TORCH = "nccl"
TORCH_LIMITED = "nccl-ctas"
"""NCCL on a communicator whose number of CTAs is limited to the number of work-groups of the library's kernels."""
BACKENDS = (TORCH, TORCH_LIMITED, *OURS)
TORCH_QUEUED = "nccl queued"
"""torch.distributed's op without a graph: calls are enqueued one by one while the device is blocked. NCCL may be faster
this way; ratios are relative to the faster of the two forms."""
THEIRS = (TORCH, TORCH_QUEUED)
AUTO = "auto"

MOST_BYTES = 1 << 40
MOST_EMULATED_BYTES = 4 << 20
MOST_CUS = 1024
MOST_REPEATS = 10_000
HEAP_SLACK = 4 << 20
"""Bytes of the heap besides the tensors: the library's own buffers, and workspaces."""
DEVICE_RESERVE = 3 << 30
"""Bytes per GPU reserved for the context, NCCL's buffers and the compiled kernels."""

_Number = Callable[[str], "int | None"]
_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_EXPECTED = {
    "--sizes": ("sizes", "2MiB:512MiB, 2MiB:512MiB:x4 or 64KiB,1MiB"),
    "--cus": ("CU counts", "4:128, 4:128:x4 or 8,24"),
}
"""The noun and the examples for the error messages of an option."""


@dataclass(frozen=True)
class CellKey:
    """Identity of a cell: a backend and, for the library's own backends, their configuration.

    ``cus`` is the number of compute units; None leaves the choice to the library. ``fields`` are the other fields of
    the Config; if there are none, the library chooses them.
    """

    backend: str
    cus: int | None = None
    fields: Fields = ()

    def __str__(self) -> str:
        settings = [] if self.cus is None else [f"{self.cus} CUs"]
        settings += [f"{name} {value}" for name, value in self.fields]
        return f"{self.backend} with {', '.join(settings)}" if settings else self.backend


@dataclass(frozen=True)
class Request:
    """A checked request.

    ``sizes`` are in bytes, ascending. In ``cus``, None is the library's own choice. ``tune`` times the candidates
    instead of ``cus``. ``eager`` turns device graphs off.
    """

    op: str
    device: str
    arch: str
    ranks: int
    sizes: tuple[int, ...]
    cus: tuple[int | None, ...]
    backends: tuple[str, ...]
    dtype: str = "fp16"
    repeat: int = 20
    seed: int = 0
    eager: bool = False
    tune: bool = False
    implementation: str = BUNDLED

    def __post_init__(self) -> None:
        for backend in self.backends:
            if backend not in BACKENDS:
                raise UsageError(f"--backends: expected some of {', '.join(BACKENDS)}, got {backend!r:.60}")
        if not self.backends or len(set(self.backends)) < len(self.backends):
            raise UsageError(
                f"--backends: expected each of {', '.join(BACKENDS)} at most once, got {','.join(self.backends)!r:.60}"
            )
        if self.dtype not in ITEM_SIZES:
            raise UsageError(f"--dtype: expected some of {', '.join(ITEM_SIZES)}, got {self.dtype!r:.60}")
        if not 1 <= self.repeat <= MOST_REPEATS:
            raise UsageError(f"--repeat: expected 1 to {MOST_REPEATS} rounds, got {self.repeat}")
        if TORCH_LIMITED in self.backends and self.emulated:
            raise UsageError(
                f"--backends: {TORCH_LIMITED} limits the CTAs of NCCL, which the emulated device does not use: leave"
                " it out"
            )
        if TORCH_LIMITED in self.backends and (self.tune or self.cus == (None,)):
            raise UsageError(f"--backends: {TORCH_LIMITED} also needs --cus with CU counts, such as --cus 4:128")
        if self.tune and not set(self.backends) & set(OURS):
            raise UsageError(f"--tune applies to {' and '.join(OURS)} only: name one of them in --backends")
        if self.cus != (None,) and set(self.backends) == {TORCH}:
            limited = f"{TORCH_LIMITED}, {' and '.join(OURS)}"
            raise UsageError(f"--cus applies to {limited} only: name one of them in --backends")
        largest = self.sizes[-1]
        if self.device == "emulated" and largest > MOST_EMULATED_BYTES:
            raise UsageError(
                f"--sizes: {size_text(largest)} would take far too long on the emulated device: "
                f"use up to {size_text(MOST_EMULATED_BYTES)}, or a GPU"
            )
        for (one, first), (other, second) in itertools.pairwise(zip(self.sizes, self.layouts(), strict=True)):
            if first.size == second.size:
                raise UsageError(
                    f"--sizes: {size_text(one)} and {size_text(other)} are both {size_text(first.size)} once rounded"
                    f" down for {self.op} on {self.ranks} ranks: leave one of them out"
                )

    @property
    def emulated(self) -> bool:
        """True if the emulated device is timed; its times are not evidence about any GPU."""
        return self.device == "emulated"

    def kind(self) -> Op:
        """Return the op object."""
        return op_named(self.op)

    def layouts(self) -> tuple[Layout, ...]:
        """Return one layout for each size, in the same order."""
        return tuple(self.kind().layout(size, self.ranks, ITEM_SIZES[self.dtype]) for size in self.sizes)

    @property
    def forms(self) -> tuple[str, ...]:
        """The backends in the order of the report. If graphs are captured, torch.distributed appears in both forms."""
        both = not (self.emulated or self.eager)
        names: list[str] = []
        for backend in self.backends:
            names += THEIRS if backend == TORCH and both else (backend,)
        return tuple(names)

    def cells(self, size: int) -> tuple[CellKey, ...]:
        """Return the cells that are timed at that size, in the order of the report."""
        keys: list[CellKey] = []
        for form in self.forms:
            if form in THEIRS:
                keys += [CellKey(form)]
            elif self.tune:
                chosen = candidates(self.op, size, ITEM_SIZES[self.dtype])
                keys += [CellKey(form, cus, fields) for cus, fields in chosen]
            else:
                keys += [CellKey(form, cus) for cus in self.cus if form in OURS or cus is not None]
        return tuple(keys)

    def most_calls(self) -> int:
        """Return the maximum of calls per timing."""
        return self.kind().most_calls(self.ranks, self.dtype)

    def buffer_bytes(self) -> tuple[int, int]:
        """Return the bytes of the largest output and of the largest input over all sizes and both sides."""
        itemsize = ITEM_SIZES[self.dtype]
        outputs, inputs = zip(*(layout.elements() for layout in self.layouts()), strict=True)
        return max(outputs) * itemsize, max(inputs) * itemsize

    def heap_bytes(self) -> int:
        """Return the bytes of each rank's symmetric heap: one input and one output of the largest size, and slack."""
        return sum(self.buffer_bytes()) + HEAP_SLACK

    def memory_bytes(self) -> int:
        """Return the bytes that each rank needs: the heap, torch.distributed's buffers, the expected output, the
        comparison, and the reserve for the GPU's context."""
        output, source = self.buffer_bytes()
        buffers = 2 * (output + source) + HEAP_SLACK + output + output // 4
        return buffers + (0 if self.emulated else DEVICE_RESERVE)


def parse_sizes(text: str) -> tuple[int, ...]:
    """Return the sizes in bytes, ascending. ``2MiB:512MiB`` doubles, ``2MiB:512MiB:x4`` multiplies by 4, and
    ``1KiB,3MiB`` is a list."""
    sizes = _series(text, "--sizes", _bytes)
    if sizes[-1] > MOST_BYTES:
        raise UsageError(f"--sizes: expected sizes up to {size_text(MOST_BYTES)}, got {size_text(sizes[-1])}")
    return sizes


def parse_cus(text: str) -> tuple[int | None, ...]:
    """Return the CU counts, ascending: the syntax of ``parse_sizes`` without units. ``auto`` becomes a leading None."""
    words = [word.strip() for word in text.split(",")]
    if words.count(AUTO) > 1:
        raise UsageError(f"--cus: expected {AUTO} at most once, got {text!r:.60}")
    automatic: tuple[None, ...] = (None,) * words.count(AUTO)
    counts = [word for word in words if word != AUTO]
    if not counts:
        return automatic
    cus = _series(",".join(counts), "--cus", _whole)
    if cus[-1] > MOST_CUS:
        raise UsageError(f"--cus: expected a CU count from 1 to {MOST_CUS}, got {cus[-1]}")
    return (*automatic, *cus)


def size_text(size: int) -> str:
    """Return a size as ``2 MiB``, or in bytes if it is not a multiple of a unit."""
    for unit in ("GiB", "MiB", "KiB"):
        if size >= _UNITS[unit] and size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]} {unit}"
    return f"{size:,} B"


def _series(text: str, option: str, number: _Number) -> tuple[int, ...]:
    values: list[int] = []
    for part in text.split(","):
        values += _range(part.strip(), text, option, number)
    if len(set(values)) < len(values):
        raise UsageError(f"{option}: expected each of the {_EXPECTED[option][0]} once, got {text!r:.60}")
    return tuple(sorted(values))


def _range(part: str, text: str, option: str, number: _Number) -> list[int]:
    first, *rest = part.split(":")
    start = number(first)
    end = number(rest[0]) if rest else start
    factor = _factor(rest[1]) if len(rest) > 1 else 2
    if start is None or end is None or factor is None or len(rest) > 2 or start < 1:
        noun, examples = _EXPECTED[option]
        raise UsageError(f"{option}: expected {noun} such as {examples}, got {text!r:.60}")
    if end < start:
        raise UsageError(f"{option}: expected the smaller of two {_EXPECTED[option][0]} first, got {part!r:.60}")
    values, value = [], start
    while value <= end:
        values.append(value)
        value *= factor
    return values


def _bytes(word: str) -> int | None:
    match = re.fullmatch(r"([0-9]{1,15}) ?([KMG]iB|B|)", word)
    return int(match[1]) * _UNITS[match[2]] if match else None


def _whole(word: str) -> int | None:
    return int(word) if re.fullmatch(r"[0-9]{1,9}", word) else None


def _factor(word: str) -> int | None:
    match = re.fullmatch(r"x([0-9]{1,6})", word)
    return int(match[1]) if match and int(match[1]) > 1 else None
