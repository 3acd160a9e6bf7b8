"""A watch for hangs: the words that wavefronts poll, and the words by which kernels signal, with who wrote them last.

A signal is an atomic, a store at system scope, or a store by one lane, of up to 8 bytes of symmetric memory: memory of
which every rank has a part at the same offset. An atomic of a polling loop counts only if it changed the memory.
"""

from __future__ import annotations

import ctypes
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

import numpy as np

from harness.emulator.operations.access import ATOMIC, LOAD, STORE, GlobalAccess
from harness.emulator.operations.table import Step
from harness.emulator.program.decode import Decoded, Program
from harness.emulator.watch.base import Watch
from harness.emulator.wavefront.state import Wavefronts

if TYPE_CHECKING:
    from harness.emulator.execution.allocations import Allocation
    from harness.emulator.execution.launch import Launch
    from harness.emulator.listing.instructions import Instruction

SIGNAL_BYTES = 8
_KEPT = 1 << 14
"""Words that are kept: those written last."""
_POLLED = 6
"""Polled words of a report."""
_TEXT = 300
"""Characters of an instruction and of a source line in a report."""

_Word = tuple[str, int, int]
"""Kind of memory (see ``kind``), rank whose part it is, and offset in bytes."""
_Note = tuple[int, int]
"""Value that was written last, and the number of the writer."""


class Polled(Protocol):
    """The part of ``harness.emulator.driver.awaited.Polled`` that is reported."""

    @property
    def address(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def allocation(self) -> Allocation: ...
    @property
    def held(self) -> int: ...
    @property
    def wanted(self) -> int | None: ...
    @property
    def read(self) -> Instruction: ...


class Waits(Watch):
    """Records reads of polling loops, and signals, of a process that is ``rank``. ``begin_next`` separates two runs."""

    name = "waits"

    def __init__(self, rank: int) -> None:
        super().__init__()
        self._rank = rank
        self._reads: dict[tuple[int, int, int], tuple[np.ndarray, np.ndarray]] = {}
        self._words: dict[_Word, _Note] = {}
        self._before: dict[_Word, _Note] = {}
        self._writers: list[tuple[str, str, str]] = []
        self._number: dict[tuple[str, int], int] = {}
        self._polling: WeakKeyDictionary[Program, frozenset[int]] = WeakKeyDictionary()

    def begin_next(self) -> None:
        """Keep the signals so far as those of an earlier run, which passed."""
        self._before, self._words = self._words, {}
        self._reads.clear()

    def last_read(self, launch: Launch, access: GlobalAccess, wave: int) -> tuple[np.ndarray, np.ndarray] | None:
        return self._reads.get((id(launch), access.instruction.line, wave))

    def finish(self, launch: Launch) -> None:
        for key in [key for key in self._reads if key[0] == id(launch)]:
            del self._reads[key]

    def instrument(self, decoded: Decoded) -> Step | None:
        access = decoded.access
        if not isinstance(access, GlobalAccess):
            return decoded.step
        polls = access.kind == ATOMIC or (access.kind == LOAD and access.instruction.modifiers.keys() & {"sc0", "sc1"})
        signals = access.kind in (ATOMIC, STORE) and access.size <= SIGNAL_BYTES
        return self._watching(access, decoded.step, bool(polls), signals) if polls or signals else decoded.step

    def _watching(self, access: GlobalAccess, plain: Step | None, polls: bool, signals: bool) -> Step:
        def step(wf: Wavefronts) -> None:
            addresses, lanes = access.addresses(wf)
            if polls:
                self._note_reads(access, wf, addresses, lanes)
            places = addresses[lanes].tolist() if signals and self._is_signal(access, lanes) else []
            repeats = bool(places) and access.instruction.line in self._lines_of_polls(wf.chunk.launch.program)
            before = [_content(place, access.size) for place in places] if repeats else []
            if plain is not None:
                plain(wf)
            for index, place in enumerate(places):
                value = _content(place, access.size)
                if not repeats or value != before[index]:
                    self._note_signal(access, wf.chunk.launch, place, value)

        return step

    @staticmethod
    def _is_signal(access: GlobalAccess, lanes: np.ndarray) -> bool:
        return access.kind == ATOMIC or access.scope == "system" or int(lanes.sum()) == 1

    def _note_reads(self, access: GlobalAccess, wf: Wavefronts, addresses: np.ndarray, lanes: np.ndarray) -> None:
        launch, line = wf.chunk.launch, access.instruction.line
        if line not in self._lines_of_polls(launch.program):
            return
        for row, wave in enumerate(wf.wave.tolist()):
            self._reads[id(launch), line, wave] = addresses[row].copy(), lanes[row].copy()

    def _lines_of_polls(self, program: Program) -> frozenset[int]:
        """Return the lines of the listing that are in polling loops."""
        lines = self._polling.get(program)
        if lines is None:
            loops = (
                program.listing.instructions[program.blocks[block.target].first : block.terminator.index + 1]
                for block in program.blocks
                if block.polls and block.terminator is not None
            )
            lines = self._polling[program] = frozenset(each.line for loop in loops for each in loop)
        return lines

    def _note_signal(self, access: GlobalAccess, launch: Launch, address: int, value: int) -> None:
        word = _word(address, launch, self._rank)
        if word is None:
            return
        key = launch.program.name, access.instruction.line
        if key not in self._number:
            self._number[key] = len(self._writers)
            self._writers.append((key[0], access.instruction.text[:_TEXT], _place(access.instruction.source)))
        self._words.pop(word, None)
        self._words[word] = value, self._number[key]
        if len(self._words) > _KEPT:
            del self._words[next(iter(self._words))]

    def report(self, polled: Sequence[Polled], limit: int) -> str:
        """Return what this rank polls and wrote as JSON of at most ``limit`` characters, or "" if that is too short.

        The words that were written last are in it; ``left_out`` counts the others.
        """
        polls = [_described(each, self._rank) for each in polled[:_POLLED]]
        for kept in (_KEPT, 256, 128, 64, 32, 16, 8, 0):
            words, before = (list(each.items())[-kept:] if kept else [] for each in (self._words, self._before))
            used = sorted({number for _, (_, number) in (*words, *before)})
            plain: dict[str, Any] = {
                "polls": polls,
                "writers": {str(number): self._writers[number] for number in used},
                "words": [[*word, *note] for word, note in words],
                "before": [[*word, *note] for word, note in before],
                "left_out": len(self._words) - len(words) + len(self._before) - len(before),
            }
            text = json.dumps(plain, separators=(",", ":"))
            if len(text) <= limit:
                return text
        return ""


def _described(word: Polled, rank: int) -> Mapping[str, Any]:
    return {
        "kind": kind(word.allocation),
        "owner": rank if word.allocation.peer is None else word.allocation.peer,
        "offset": word.address - word.allocation.address,
        "size": word.size,
        "held": word.held,
        "wanted": word.wanted,
        "instruction": word.read.text[:_TEXT],
        "source": _place(word.read.source),
    }


def _word(address: int, launch: Launch, rank: int) -> _Word | None:
    """Return the word of symmetric memory at an address; None for memory that only this rank has."""
    allocations = launch.table.allocations
    here = next((each for each in allocations if each.contains(address, 1)), None)
    if here is None:
        return None
    if here.peer is None and not any(_is_alike(here, each) for each in allocations):
        return None
    return kind(here), rank if here.peer is None else here.peer, address - here.address


def _is_alike(own: Allocation, other: Allocation) -> bool:
    return other.peer is not None and kind(other) == kind(own)


def kind(allocation: Allocation) -> str:
    """Return the label and size that all parts of one symmetric memory share."""
    return f"{' '.join(re.sub(r'of rank [0-9]+|[0-9]+', '', allocation.label).split())[:60]}, {allocation.size} bytes"


def _place(source: str) -> str:
    """Return the first of a chain of source lines, and the statement of the kernel's body that led there."""
    lines = source.split(" @ ")
    return " @ ".join(line[-_TEXT:] for line in (lines[:1] if len(lines) < 3 else (lines[0], lines[-2])))


def _content(address: int, size: int) -> int:
    return int.from_bytes(ctypes.string_at(address, size), "little")
