"""Translation of a program to native code: the operations that ``native.execute`` runs.

An ALU instruction calls the function of its form (``forms``), another instruction the native function of its step
(``operations.table.Native``). An instruction with neither stops the wavefront, and the interpreter executes it. Forms
are shared by all programs of the process; their machine code is kept on disk by instruction form, architecture and
host processor, so other programs and ranks load it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from llvmlite import ir

from harness.compiling import compiling
from harness.emulator.listing.instructions import Instruction
from harness.emulator.native import execute, record
from harness.emulator.operations.table import Native, Step
from harness.emulator.program import decode as p
from harness.emulator.program.compiled import forms, objects
from harness.emulator.program.compiled.accesses import access_form
from harness.emulator.program.compiled.products import product_form
from harness.emulator.program.compiled.runs import Item, Runs
from harness.emulator.program.decode import Context, Program
from harness.emulator.wavefront.state import EXEC, VCC

QUANTUM, POLL_QUANTUM = 4096, 2
"""Backward jumps after which a wavefront has used its turn: in any loop, and in one that polls memory."""

CONDITIONS = {
    "scc0": (0, 0), "scc1": (1, 0), "vccz": (2, VCC), "vccnz": (3, VCC), "execz": (2, EXEC), "execnz": (3, EXEC),
}  # fmt: skip
_ENDS = {p.END: execute.END, p.BARRIER: execute.BARRIER, p.SLEEP: execute.SLEEP, p.CALL: execute.STOP}
"""Ends of blocks that no branch targets."""


@dataclass(frozen=True)
class Place:
    """The instruction of an operation: its block, and its step, which is None at the end of a block.

    ``operations``: how many, from this one on, the step executes.
    """

    block: int
    step: Step | None
    instruction: Instruction
    operations: int = 1


@dataclass
class Translation:
    """``code`` as ``native.execute`` takes it. ``places`` has the instruction of each operation, ``entries`` the first
    operation of each block. ``keeps``: objects whose addresses are in the code."""

    program: Program
    code: np.ndarray
    places: list[Place]
    entries: list[int]
    keeps: list[Any]
    runs: Runs
    has_runs: bool = False
    cycles: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    """For profiles: see ``native.execute``."""
    idle: Any = None
    """The scheduler of the last launch, for the next one."""
    kinds: list[int] = field(default_factory=list)
    """In mode ``check``, the kind of each operation: see ``driver.checked``."""
    plan: Any = None
    """In mode ``trace``, the events of the program: see ``driver.traced_plan``."""

    def __post_init__(self) -> None:
        self.address: int = self.code.ctypes.data

    def use_runs(self, compiling: bool = True) -> bool:
        """Execute runs of instructions by one function each; return False if they are not on disk, unless compiled."""
        runs = self.runs.find() if compiling else self.runs.kept()
        for run in runs or ():
            self.code[run.first, [execute.RUN_FUNCTION, execute.RUN_LENGTH]] = run.address, run.count
            self.code[run.first, 0] = execute.RUN  # last: other threads may be executing the code
        self.has_runs = runs is not None
        return self.has_runs

    @cached_property
    def steps(self) -> int:
        """The number of steps that the interpreter would execute."""
        return sum(len(segment.steps) for segment in self.program.segments)

    @cached_property
    def stops(self) -> int:
        """The number of instructions that the interpreter executes, for one wavefront at a time."""
        return int((self.code[:-1, 0] == execute.STOP).sum())


class Emitted(Protocol):
    """A form: its function's name, and the code."""

    @property
    def name(self) -> str: ...

    def emit(self) -> ir.Module | None: ...


class Translator:
    """Translates one program: finds the forms of its instructions, and makes its code when they are compiled."""

    def __init__(self, program: Program, quantum: int = QUANTUM, kept: Collection[int] | None = None) -> None:
        """``quantum``: backward jumps after which a wavefront has used its turn, in a loop that does not poll.

        ``kept``: the indices of the instructions that a watched mode leaves as they are, by default all.
        """
        self.program = program
        self._quantum = quantum
        self._kept = kept
        self._context = Context(
            program.listing.arch, program.listing.directives.get("accum_offset", 0), [], p.varying(program.listing)
        )
        self._rows: list[tuple[int, Native | str | None, tuple[int, ...]]] = []
        self._places: list[Place] = []
        self._entries: list[int] = []
        self._wanted: dict[str, Emitted] = {}
        self._begin()
        for block in program.blocks:
            self._entries.append(len(self._rows))
            for segment in block.segments:
                first = program.listing.instructions[block.first]
                self._add(block, None, first, execute.COUNT, None, segment.index)
                self._add_segment(block, segment)
            self._add_end(block)

    def _begin(self) -> None:
        """Add operations before the program's first block."""

    def _add_segment(self, block: p.Block, segment: p.Segment) -> None:
        for step, instruction in zip(segment.steps, segment.instructions, strict=True):
            self._add_step(block, step, instruction)

    def missing(self) -> int:
        """Return how many forms would have to be compiled."""
        return len(_compiled.missing(self._wanted))

    def finish(self) -> Translation:
        """Return the translation; compile the forms that are missing."""
        addresses = _compiled.find(self._wanted)
        code = np.zeros((len(self._rows) + 1, execute.ROW), np.int64)
        code[-1, 0] = execute.STOP  # past the end of the code
        for i, (operation, function, words) in enumerate(self._rows):
            address = 0
            if isinstance(function, Native):
                address = function.function.address
                if form := _usual_form(function):
                    code[i, 2 + record.GENERAL], address = address, addresses[form.name]
            elif function is not None:
                address = addresses[function]
                operation = operation if address else execute.STOP
            if operation in (execute.JUMP, execute.BRANCH, execute.SWITCH):
                words = (self._entries[words[0]], *words[1:])
            code[i, :2] = operation, address
            code[i, 2 : 2 + len(words)] = words
        keeps = [function.keeps for _, function, _ in self._rows if isinstance(function, Native)]
        return Translation(
            self.program, code, self._places, self._entries, keeps, Runs(self._stretches(code), self._context)
        )

    def _stretches(self, code: np.ndarray) -> list[tuple[int, list[Item]]]:
        """Return operations in succession that only count and call, with the first of each stretch."""
        stretches: list[tuple[int, list[Item]]] = []
        after = -1
        blocks = self.program.blocks
        entries = {self._entries[b.target] for b in blocks if 0 <= b.target < len(blocks)}
        for i, (_, function, words) in enumerate(self._rows):
            if code[i, 0] not in (execute.CALL, execute.COUNT):
                continue
            if i != after or i in entries:
                stretches.append((i, []))
            if code[i, 0] == execute.COUNT:
                item = Item(segment=words[0])
            else:
                item = Item(self._places[i].instruction if isinstance(function, str) else None)
            stretches[-1][1].append(item)
            after = i + 1
        return stretches

    def _add(
        self,
        block: p.Block,
        step: Step | None,
        instruction: Instruction,
        operation: int,
        function: Native | str | None = None,
        *words: int,
    ) -> None:
        self._rows.append((operation, function, words))
        self._places.append(Place(block.index, step, instruction))

    def _add_step(self, block: p.Block, step: Step, instruction: Instruction) -> None:
        native: Native | None = getattr(step, "native", None)
        if native is not None:
            if form := _usual_form(native):
                self._wanted[form.name] = form
            self._add(block, step, instruction, execute.CALL, native, *native.parameters)
            if native.then is not None:
                self._places[-1] = Place(block.index, step, instruction, 2)
                self._add_step(block, native.then, instruction)
            return
        plain = self._kept is None or instruction.index in self._kept
        alu_form = forms.form_of(instruction, self._context) if plain else None
        if alu_form is None:
            self._add(block, step, instruction, execute.STOP)
            return
        form, parameters = alu_form
        name = form.name
        self._wanted[name] = form
        self._add(block, step, instruction, execute.CALL, name, *parameters)

    def _add_end(self, block: p.Block) -> None:
        end, instruction = block.end, block.terminator
        if end == p.FALL:
            return
        if end == p.SWITCH:
            self._add(block, None, self.program.listing.instructions[block.first], execute.SWITCH, None, block.index)
            return
        assert instruction is not None  # sanity check
        quantum = (POLL_QUANTUM if block.polls else self._quantum) if 0 <= block.target <= block.index else 0
        if end == p.JUMP:
            self._add(block, None, instruction, execute.JUMP, None, block.target, quantum)
        elif end == p.BRANCH:
            condition, register = CONDITIONS[instruction.mnemonic.rpartition("_")[2]]
            self._add(block, None, instruction, execute.BRANCH, None, block.target, quantum, condition, register)
        else:
            self._add(block, None, instruction, _ENDS[end])


def _usual_form(native: Native) -> Emitted | None:
    """Return the form for the usual case of a native function."""
    return access_form(native) or product_form(native)


class _Compiled:
    """The compiled forms of this process: the address of each function by the form's name, 0 for none."""

    def __init__(self) -> None:
        self._addresses: dict[str, int] = {}

    def missing(self, wanted: Mapping[str, Emitted]) -> list[str]:
        """Load forms from disk; return the names of those that are not there."""
        loaded: dict[str, bytes] = {}
        missing = []
        for name in wanted:
            if name not in self._addresses:
                kept = objects.read(_file(name))
                if kept is None:
                    missing.append(name)
                else:
                    loaded[name] = kept[1]
        self._add(loaded)
        return missing

    def find(self, wanted: Mapping[str, Emitted]) -> dict[str, int]:
        missing = self.missing(wanted)
        if missing:
            codes = {}
            with compiling():
                for name in missing:
                    module = wanted[name].emit()
                    codes[name] = b"" if module is None else objects.compile_module(module)
                    objects.write(_file(name), [], codes[name])
            self._add(codes)
        return {name: self._addresses[name] for name in wanted}

    def _add(self, codes: dict[str, bytes]) -> None:
        self._addresses |= {name: 0 for name, code in codes.items() if not code}
        self._addresses |= objects.load({name: code for name, code in codes.items() if code})


_compiled = _Compiled()


def _file(name: str) -> str:
    return f"{name}_{objects.version()[:16]}"
