"""Native code in the watched modes that run each wavefront by itself: from when on a program uses it, and where.

In the modes ``weak`` and ``race`` all of a program is native code, see ``driver.interleaved``. That takes decisions: in
the scheduler's fixed order, mode ``race`` executes memory accesses and waits in Python. The ALU instructions between
them, which it leaves as they are, call the same native functions as translated programs do (``program.compiled``),
several with one call. The registers of a wavefront are therefore in a record (``native.record``).

Loading functions takes time, and compiling them more, so a program is interpreted until that has taken as long.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property, partial
from itertools import groupby
from typing import Any

import numpy as np
from numba import njit, types

from harness.emulator import compilation
from harness.emulator.driver.schedule import QUANTUM
from harness.emulator.driver.translated import ITERATIONS
from harness.emulator.execution.launch import Launch
from harness.emulator.listing.instructions import Instruction, Listing
from harness.emulator.native import execute
from harness.emulator.native.raw import call, get64
from harness.emulator.operations.table import Step
from harness.emulator.program import decode as p
from harness.emulator.program.compiled import objects
from harness.emulator.program.compiled.translation import Translation, Translator
from harness.emulator.watch.base import NativeWatch, Watch
from harness.emulator.wavefront.single import SingleWavefront
from harness.emulator.wavefront.state import Wavefronts

# Seconds, as in ``translated``: to interpret an instruction, with its share of the scheduler and of the mode's own
# steps, to load its function, to compile one.
INTERPRETING_STEP, LOADING_STEP, COMPILING_FORM = 12e-6, 50e-6, 25e-3
# And to compile an operation of a run.
COMPILING_OPERATION = 2e-3
_KLASSES = ("valu", "salu")
_ROW_BYTES = 8 * execute.ROW


@njit(cache=True, nogil=True)
def _execute(wave: int, code: int, count: int) -> int:
    """Execute operations of a record; return how many, less than ``count`` if the interpreter has to execute the next
    one. ``code``: the address of int64[count, ROW], see ``native.execute``."""
    for i in range(count):
        at = code + _ROW_BYTES * i
        if call(get64(at + 8), wave, at + 16) != 0:
            return i
    return count


_SIGNATURES: dict[Any, tuple[Any, ...]] = {_execute: (types.int64, types.int64, types.int64)}


@cache
def _prepare() -> None:
    """Compile the function above, or load it from the cache."""
    compilation.compile_now(_SIGNATURES)


class Stretch:
    """Step that executes successive instructions of a segment, int64[n, ROW] in ``code``.

    ``instruction`` is the one that the interpreter executed last. ``last``: they end a segment, so one may write EXEC.
    """

    def __init__(self, code: np.ndarray, steps: list[Step], instructions: list[Instruction], last: bool) -> None:
        self._code, self._address = code, code.ctypes.data
        self._steps, self._instructions = steps, instructions
        self._last = last
        self.instruction = instructions[0]

    def __call__(self, wf: Wavefronts) -> None:
        assert isinstance(wf, SingleWavefront)  # sanity check
        at, count = 0, len(self._steps)
        while True:
            at += _execute(wf.record, self._address + _ROW_BYTES * at, count - at)
            if at == count:
                break
            self.instruction = self._instructions[at]
            self._steps[at](wf)
            at += 1
        if self._last:
            wf.refresh_exec()


class Heat:
    """Decides when a program that a watched mode has instrumented uses native code.

    ``kept`` has the indices of the instructions that the mode leaves as they are.
    """

    def __init__(self, program: p.Program, kept: set[int]) -> None:
        self._program, self._kept = program, kept
        self._steps = [[i.index in kept for i in segment.instructions].count(True) for segment in program.segments]
        self.spent = 0.0
        self.done = not objects.can_compile()

    def ran(self, launch: Launch, seconds: float) -> None:
        """Note a launch, which took ``seconds``; use native functions once interpreting has taken as long as getting
        them."""
        if self.done:
            return
        executed = sum(waves * steps for waves, steps in zip(launch.waves, self._steps, strict=True))
        self.spent += executed * INTERPRETING_STEP
        self._decide(self.spent)

    def expect(self, launch: Launch) -> None:
        """Use native functions for a launch that is about to run if interpreting it is expected to take as long as
        getting them: a program that waits for another rank would be interpreted until that has come."""
        if not self.done:
            waves = launch.groups * launch.waves_per_group * (ITERATIONS if self._program.loops else 1)
            self._decide(self.spent + waves * sum(self._steps) * INTERPRETING_STEP)

    def _decide(self, spent: float) -> None:
        loading = sum(self._steps) * LOADING_STEP
        if spent >= loading and spent >= self._translator.missing() * COMPILING_FORM:
            self.use()

    @cached_property
    def _translator(self) -> Translator:
        raise NotImplementedError

    def use(self) -> None:
        """Use native code from now on; compile the functions that are missing."""
        raise NotImplementedError


class Rows(Heat):
    """The whole program becomes native code, for ``driver.interleaved``: the mode's own steps have native functions."""

    rows: Translation | None = None
    running: float = 0.0
    """Seconds that the native code was executed without runs."""

    def ran(self, launch: Launch, seconds: float) -> None:
        """Also compile runs once the native code has been executed for as long as that takes."""
        if self.rows is None:
            super().ran(launch, seconds)
        elif not self.rows.has_runs:
            self.running += seconds
            if self.running >= self.rows.runs.size * COMPILING_OPERATION:
                self.rows.use_runs()

    @cached_property
    def _translator(self) -> Translator:
        return Translator(self._program, QUANTUM, self._kept)

    def use(self) -> None:
        self.rows = self._translator.finish()
        self.rows.use_runs(compiling=False)
        self.done = True


class Stretches(Heat):
    """The instructions between two steps of the mode become stretches.

    ``plain`` returns the same program without instruments.
    """

    def __init__(self, program: p.Program, kept: set[int], plain: Callable[[], p.Program]) -> None:
        super().__init__(program, kept)
        self._plain = plain

    @cached_property
    def _translator(self) -> Translator:
        return Translator(self._plain())

    def use(self) -> None:
        _prepare()
        translation = self._translator.finish()
        rows = {
            place.instruction.index: row
            for place, row in zip(translation.places, translation.code, strict=False)
            if place.step is not None and place.instruction.index in self._kept and row[0] == execute.CALL
        }
        self._keeps = translation.keeps
        for segment in self._program.segments:
            steps: list[Step] = []
            instructions: list[Instruction] = []
            pairs = list(zip(segment.steps, segment.instructions, strict=True))
            for has_row, group in groupby(pairs, key=lambda pair: pair[1].index in rows):
                some = list(group)
                own, listed = [step for step, _ in some], [instruction for _, instruction in some]
                if has_row:
                    code = np.array([rows[instruction.index] for instruction in listed])
                    own, listed = [Stretch(code, own, listed, some[-1] is pairs[-1])], listed[:1]
                steps += own
                instructions += listed
            segment.steps, segment.instructions = steps, instructions
        self.done = True


class _Observed:
    """A watched mode, as ``decode`` takes it; collects the instructions whose steps the mode leaves as they are."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.interleaves = watch.interleaves
        self.kept: set[int] = set()

    def instrument(self, decoded: p.Decoded) -> Step | None:
        step = self._watch.instrument(decoded)
        if step is not None and step is decoded.step and decoded.entry.klass in _KLASSES:
            self.kept.add(decoded.instruction.index)
        return step

    def decoded(self, program: p.Program) -> None:
        self._watch.decoded(program)

    def before_end(self, instruction: Instruction) -> Step | None:
        return self._watch.before_end(instruction)


def decode(listing: Listing, watch: Watch, plain: Callable[[], p.Program] | None = None) -> p.Program:
    """Decode a listing for a mode that ``interleaves``; ``heat`` has its ``Heat``.

    ``plain`` returns the same program without instruments.
    """
    observed = _Observed(watch)
    program = p.decode(listing, watch=observed)
    if isinstance(watch, NativeWatch) and watch.choices is not None:
        program.heat = Rows(program, observed.kept)
    else:
        program.heat = Stretches(program, observed.kept, plain or partial(p.decode, listing))
    return program
