"""Runs: consecutive ALU steps of a segment, executed as one, and compiled when their program has become hot.

A program starts interpreted. When its ALU instructions have cost about as much time as compiling them is expected to
cost, they are compiled, all runs together: so a kernel that runs once is not slowed down, and in the worst case a
program costs twice what the better choice would have. Machine code is kept on disk (``objects``), and is looked for
long before it would be made.

Steps that have no compiled form stay as they are, between compiled pieces. EXEC is constant over a segment; a run may
end with a write of it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence

from llvmlite import ir

from harness.compiling import compiling
from harness.emulator.compiled import objects
from harness.emulator.compiled.registers import RegisterFile, SymbolicWavefronts
from harness.emulator.compiled.values import Emitter, NotCompilable
from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.listing import Instruction
from harness.emulator.ops.table import Op, Step, find
from harness.emulator.program import Program
from harness.emulator.state import LANES, SGPRS, Wavefronts

_log = logging.getLogger(__name__)

# Builders whose steps read and write registers only. Steps of an ``Op`` do by definition.
PURE = {
    "v_readfirstlane_b32", "v_readlane_b32", "v_writelane_b32", "v_swap_b32", "v_pk_mov_b32",
}  # fmt: skip
# Seconds, measured on one core of a 2.6 GHz EPYC; they need to be right within a factor of two or so.
INTERPRETING_STEP, INTERPRETING_WAVEFRONT = 2e-6, 50e-9
COMPILING_RUN, COMPILING_STEP, LOOKING_UP = 2e-3, 4e-3, 5e-3

# First and last + 1 of the steps of a compiled piece, and whether it writes EXEC.
Piece = tuple[int, int, bool]


class Run:
    """The step that executes ``steps``, whose instructions are ``instructions``."""

    def __init__(self, steps: Sequence[Step], instructions: Sequence[Instruction], compiler: Compiler) -> None:
        self.steps = list(steps)
        self.instructions = list(instructions)
        self.compiler = compiler
        self.compiled: list[Step] | None = None
        self._at = 0

    def __call__(self, wf: Wavefronts) -> None:
        if self.compiled is not None:
            for step in self.compiled:
                step(wf)
            return
        self.compiler.spend(len(self.steps) * (INTERPRETING_STEP + len(wf.wave) * INTERPRETING_WAVEFRONT))
        for at, step in enumerate(self.steps):
            self._at = at
            step(wf)

    @property
    def instruction(self) -> Instruction:
        """The instruction that is executed, or was last, while the run is interpreted."""
        return self.instructions[self._at]


class Compiler:
    """The runs of one program: what interpreting them has cost, and their compilation."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.runs: list[Run] = []
        self.spent = 0.0
        self.limit = LOOKING_UP

    def spend(self, seconds: float) -> None:
        """Count the time of interpreting a run; compile when that has become too much."""
        self.spent += seconds
        if self.spent < self.limit:
            return
        cost = sum(COMPILING_RUN + COMPILING_STEP * len(run.steps) for run in self.runs)
        if not self.load() and self.spent >= cost:
            self.compile()
        self.limit = max(cost, 2 * self.limit)

    def load(self) -> bool:
        """Take the machine code from disk; False when there is none."""
        kept = objects.read(self._name())
        if kept is not None:
            self._install(*kept)
        return kept is not None

    def compile(self) -> None:
        """Make machine code of all runs, keep it on disk, and use it."""
        with compiling():
            name, module = self._name(), ir.Module()
            pieces = [lower(run.steps, module, f"{name}_{i}") for i, run in enumerate(self.runs)]
            code = objects.compile_module(module)
            objects.write(name, pieces, code)
        self._install(pieces, code)

    def _install(self, pieces: Sequence[Sequence[Piece]], code: bytes) -> None:
        name = self._name()
        names = [f"{name}_{i}_{first}" for i, of_run in enumerate(pieces) for first, _, _ in of_run]
        functions = iter(objects.load(code, names))
        for run, of_run in zip(self.runs, pieces, strict=True):
            steps, done = [], 0
            for first, last, writes_exec in of_run:
                steps += run.steps[done:first]
                steps.append(_native_step(next(functions), writes_exec))
                done = last
            run.compiled = steps + run.steps[done:]

    def _name(self) -> str:
        """What the machine code depends on, as a hash."""
        listing = self.program.listing
        code = [[i.text for i in run.instructions] for run in self.runs]
        parts = (listing.arch, sorted(listing.directives.items()), code, objects.version())
        return "runs_" + hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _native_step(native: objects.Native, writes_exec: bool) -> Step:
    def step(wf: Wavefronts) -> None:
        native(*wf.addresses())

    def then_refresh(wf: Wavefronts) -> None:
        native(*wf.addresses())
        wf.refresh_exec()

    return then_refresh if writes_exec else step


def compile_runs(program: Program) -> None:
    """Replace the ALU steps of a program's segments by ``Run`` steps."""
    if not objects.can_compile():
        return
    compiler = Compiler(program)
    for segment in program.segments:
        pure = [_is_pure(i, program.listing.arch) for i in segment.instructions]
        steps: list[Step] = []
        instructions: list[Instruction] = []
        first = 0
        while first < len(pure):
            last = first
            while last < len(pure) and pure[last]:
                last += 1
            if last > first:
                run = Run(segment.steps[first:last], segment.instructions[first:last], compiler)
                compiler.runs.append(run)
                steps.append(run)
            else:
                last += 1
                steps.append(segment.steps[first])
            instructions.append(segment.instructions[first])
            first = last
        segment.steps, segment.instructions = steps, instructions


def _is_pure(instruction: Instruction, arch: str) -> bool:
    entry, _ = find(instruction.mnemonic, arch)
    return isinstance(entry, Op) or instruction.mnemonic.removesuffix("_e32") in PURE


# -- from steps to IR --------------------------------------------------------------------------------------------------


def lower(steps: Sequence[Step], module: ir.Module, name: str) -> list[Piece]:
    """Add a function ``NAME_FIRST`` to the module for each piece of ``steps`` that has a compiled form."""
    pieces: list[Piece] = []
    first = 0
    while first < len(steps):
        function = _Function(module, f"{name}_{first}")
        last = first
        while last < len(steps) and not function.wf.wrote_exec and function.add(steps[last]):
            last += 1
        if last > first:
            function.finish()
            pieces.append((first, last, function.wf.wrote_exec))
            first = last
        else:
            function.discard()
            first += 1
    return pieces


class _Function:
    """A function that executes steps for each of its wavefronts: a loop over them around straight code."""

    def __init__(self, module: ir.Module, name: str) -> None:
        i8p, i64 = ir.IntType(8).as_pointer(), ir.IntType(64)
        self.function = ir.Function(module, ir.FunctionType(ir.VoidType(), [i8p, i8p, i8p, i64]), name)
        v, s, scc, count = self.function.args
        entry, self.loop, self.done = (self.function.append_basic_block(n) for n in ("entry", "loop", "done"))
        ir.IRBuilder(entry).branch(self.loop)
        b = self.builder = ir.IRBuilder(self.loop)
        self.index = b.phi(i64)
        self.index.add_incoming(ir.Constant(i64, 0), entry)
        sizes = (8 * LANES, 4 * SGPRS, 1)
        here = [b.gep(p, [b.mul(self.index, ir.Constant(i64, n))]) for p, n in zip((v, s, scc), sizes, strict=True)]
        file = RegisterFile(Emitter(module, b), here, b.mul(count, ir.Constant(i64, 8 * LANES)))
        self.count = count
        self.wf = SymbolicWavefronts(file)

    def add(self, step: Step) -> bool:
        """Emit the code of a step; False, and nothing has happened, when it has no compiled form."""
        saved = self.wf.save()
        try:
            step(self.wf)
        except (NotCompilable, UnimplementedInstruction, AttributeError, TypeError, ValueError, IndexError) as why:
            # What symbolic arrays cannot do shows in many ways; whether it is an error, the interpreter decides.
            _log.debug("interpreted: %s", why)
            self.wf.restore(saved)
            return False
        return True

    def finish(self) -> None:
        self.wf.file.finish()
        b = self.builder
        following = b.add(self.index, ir.Constant(self.index.type, 1))
        self.index.add_incoming(following, self.loop)
        b.cbranch(b.icmp_unsigned("<", following, self.count), self.loop, self.done)
        ir.IRBuilder(self.done).ret_void()

    def discard(self) -> None:
        del self.function.module.globals[self.function.name]
