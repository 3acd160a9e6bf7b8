"""What a benchmark is asked to do, read from the command line's words, and checked before anything starts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass

from harness.bench.candidates import Fields, candidates
from harness.bench.ops import ITEM_SIZES, OURS, Layout, Op, op_named
from harness.errors import UsageError

TORCH = "nccl"
TORCH_LIMITED = "nccl-ctas"
"""NCCL on a communicator that may take as many CTAs as the library's kernels have work-groups."""
BACKENDS = (TORCH, TORCH_LIMITED, *OURS)
TORCH_QUEUED = "nccl queued"
"""torch.distributed's op without a graph: enqueued one by one while the device is held up. NCCL may be faster so, and
what is compared with is the faster of the two."""
THEIRS = (TORCH, TORCH_QUEUED)
AUTO = "auto"

MOST_BYTES = 1 << 40
MOST_EMULATED_BYTES = 4 << 20
MOST_CUS = 1024
MOST_REPEATS = 10_000
HEAP_SLACK = 4 << 20
"""Bytes of the heap beside the tensors: what the library keeps there for itself, and workspaces."""
DEVICE_RESERVE = 3 << 30
"""Bytes per GPU that are left to the context, NCCL's buffers and the compiled kernels."""

_Number = Callable[[str], "int | None"]
_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@dataclass(frozen=True)
class CellKey:
    """One thing that is timed at each size: a backend and, for the library's own, how it is configured.

    ``cus``: how many compute units it takes, None where that is its own choice. ``fields``: of the Config that it is
    given; without any, the library chooses.
    """

    backend: str
    cus: int | None = None
    fields: Fields = ()

    def __str__(self) -> str:
        told = [] if self.cus is None else [f"{self.cus} CUs"]
        told += [f"{name} {value}" for name, value in self.fields]
        return f"{self.backend} with {', '.join(told)}" if told else self.backend


@dataclass(frozen=True)
class Request:
    """A checked request. ``sizes`` in bytes, ascending; ``cus``: None stands for the library's choice; ``tune``: time
    the candidates instead; ``eager``: no device graphs."""

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
    implementation: str = "iris_under_test"

    def __post_init__(self) -> None:
        for backend in self.backends:
            if backend not in BACKENDS:
                raise UsageError(f"there is no backend {backend!r}: choose among {', '.join(BACKENDS)}")
        if not self.backends or len(set(self.backends)) < len(self.backends):
            raise UsageError(f"--backends {','.join(self.backends)!r}: name each of {', '.join(BACKENDS)} at most once")
        if self.dtype not in ITEM_SIZES:
            raise UsageError(f"unknown dtype {self.dtype!r}: choose one of {', '.join(ITEM_SIZES)}")
        if not 1 <= self.repeat <= MOST_REPEATS:
            raise UsageError(f"--repeat {self.repeat}: use 1 to {MOST_REPEATS} rounds")
        if TORCH_LIMITED in self.backends and self.emulated:
            raise UsageError(
                f"{TORCH_LIMITED} limits the CTAs of NCCL, which the emulated device has not: leave it out"
            )
        if TORCH_LIMITED in self.backends and (self.tune or self.cus == (None,)):
            raise UsageError(f"{TORCH_LIMITED} needs CU counts, such as --cus 4:128")
        if self.tune and not set(self.backends) & set(OURS):
            raise UsageError(f"--tune is for {' and '.join(OURS)}: name one of them in --backends")
        if self.cus != (None,) and set(self.backends) == {TORCH}:
            raise UsageError(f"--cus is for {', '.join((TORCH_LIMITED, *OURS))}: name one of them in --backends")
        largest = self.sizes[-1]
        if self.device == "emulated" and largest > MOST_EMULATED_BYTES:
            raise UsageError(
                f"{size_text(largest)} would take the emulated device far too long: "
                f"use --sizes up to {size_text(MOST_EMULATED_BYTES)}, or a GPU"
            )
        for (one, first), (other, second) in itertools.pairwise(zip(self.sizes, self.layouts(), strict=True)):
            if first.size == second.size:
                raise UsageError(
                    f"{size_text(one)} and {size_text(other)} are both {size_text(first.size)} once rounded down for "
                    f"{self.op} on {self.ranks} ranks: leave one of them out"
                )

    @property
    def emulated(self) -> bool:
        """Whether the times are those of the emulated device, and so say nothing about a GPU."""
        return self.device == "emulated"

    def kind(self) -> Op:
        """The op itself."""
        return op_named(self.op)

    def layouts(self) -> tuple[Layout, ...]:
        """One per size, in order."""
        return tuple(self.kind().layout(size, self.ranks, ITEM_SIZES[self.dtype]) for size in self.sizes)

    @property
    def forms(self) -> tuple[str, ...]:
        """The backends in the order of the report, torch.distributed's in both forms where graphs are captured."""
        both = not (self.emulated or self.eager)
        found: list[str] = []
        for backend in self.backends:
            found += THEIRS if backend == TORCH and both else (backend,)
        return tuple(found)

    def cells(self, size: int) -> tuple[CellKey, ...]:
        """What is timed at that size, in the order of the report."""
        found: list[CellKey] = []
        for form in self.forms:
            if form in THEIRS:
                found += [CellKey(form)]
            elif self.tune:
                chosen = candidates(self.op, size, ITEM_SIZES[self.dtype])
                found += [CellKey(form, cus, fields) for cus, fields in chosen]
            else:
                found += [CellKey(form, cus) for cus in self.cus if form in OURS or cus is not None]
        return tuple(found)

    def most_calls(self) -> int:
        """Calls per timing, at most."""
        return self.kind().most_calls(self.ranks, self.dtype)

    def buffer_bytes(self) -> tuple[int, int]:
        """The largest output and the largest input of any size and either side."""
        itemsize = ITEM_SIZES[self.dtype]
        outputs, inputs = zip(*(layout.elements() for layout in self.layouts()), strict=True)
        return max(outputs) * itemsize, max(inputs) * itemsize

    def heap_bytes(self) -> int:
        """The symmetric heap of each rank: one input and one output of the largest size."""
        return sum(self.buffer_bytes()) + HEAP_SLACK

    def memory_bytes(self) -> int:
        """What each rank needs altogether: the heap, torch.distributed's own buffers, the expected output, its
        comparison, and what the GPU's context takes."""
        output, source = self.buffer_bytes()
        buffers = 2 * (output + source) + HEAP_SLACK + output + output // 4
        return buffers + (0 if self.emulated else DEVICE_RESERVE)


def parse_sizes(text: str) -> tuple[int, ...]:
    """``2MiB:512MiB`` doubles, ``2MiB:512MiB:x4`` multiplies by 4, ``1KiB,3MiB`` lists; ascending bytes."""
    sizes = _series(text, "size", _bytes)
    if sizes[-1] > MOST_BYTES:
        raise UsageError(f"a size of {size_text(sizes[-1])} is too large: use up to {size_text(MOST_BYTES)}")
    return sizes


def parse_cus(text: str) -> tuple[int | None, ...]:
    """``4:128`` doubles; otherwise as ``parse_sizes``, without units. ``auto`` is None, and comes first."""
    words = [word.strip() for word in text.split(",")]
    if words.count(AUTO) > 1:
        raise UsageError(f"{text!r} names {AUTO} twice")
    own: tuple[None, ...] = (None,) * words.count(AUTO)
    counts = [word for word in words if word != AUTO]
    if not counts:
        return own
    cus = _series(",".join(counts), "CU count", _whole)
    if cus[-1] > MOST_CUS:
        raise UsageError(f"{cus[-1]} is no CU count: use 1 to {MOST_CUS}")
    return (*own, *cus)


def size_text(size: int) -> str:
    """``2 MiB``; in bytes where no unit fits exactly."""
    for unit in ("GiB", "MiB", "KiB"):
        if size >= _UNITS[unit] and size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]} {unit}"
    return f"{size:,} B"


def _series(text: str, what: str, number: _Number) -> tuple[int, ...]:
    found: list[int] = []
    for part in text.split(","):
        found += _range(part.strip(), text, what, number)
    if len(set(found)) < len(found):
        raise UsageError(f"{text!r} names a {what} twice")
    return tuple(sorted(found))


def _range(part: str, text: str, what: str, number: _Number) -> list[int]:
    first, *rest = part.split(":")
    start = number(first)
    end = number(rest[0]) if rest else start
    factor = _factor(rest[1]) if len(rest) > 1 else 2
    if start is None or end is None or factor is None or len(rest) > 2 or start < 1:
        example = "2MiB:512MiB, 2MiB:512MiB:x4 or 64KiB,1MiB" if what == "size" else "4:128, 4:128:x4 or 8,24"
        raise UsageError(f"{text!r} is no {what}: write {example}")
    if end < start:
        raise UsageError(f"{part!r} ends before it begins: write the smaller {what} first")
    found, value = [], start
    while value <= end:
        found.append(value)
        value *= factor
    return found


def _bytes(word: str) -> int | None:
    match = re.fullmatch(r"([0-9]{1,15}) ?([KMG]iB|B|)", word)
    return int(match[1]) * _UNITS[match[2]] if match else None


def _whole(word: str) -> int | None:
    return int(word) if re.fullmatch(r"[0-9]{1,9}", word) else None


def _factor(word: str) -> int | None:
    match = re.fullmatch(r"x([0-9]{1,6})", word)
    return int(match[1]) if match and int(match[1]) > 1 else None
