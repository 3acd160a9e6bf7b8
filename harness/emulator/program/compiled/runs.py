"""Runs: consecutive ALU steps of a segment, executed as one, and compiled once their program is hot.

A program starts interpreted. When interpreting its ALU instructions has taken about as long as compiling them is
expected to take, all its runs are compiled. So a kernel that runs once is not slowed down, and in the worst case a
program takes twice as long as with the better choice. Machine code is cached on disk (``objects``); the cache is
checked long before a compilation would start.

Steps that have no compiled form stay interpreted, between compiled pieces. EXEC is constant over a segment; a run may
end with a write of it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence

from llvmlite import ir

from harness.compiling import compiling
from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.listing.instructions import Instruction
from harness.emulator.operations.table import Op, Step, find
from harness.emulator.program.compiled import objects, ufuncs
from harness.emulator.program.compiled.functions import FUNCTIONS
from harness.emulator.program.compiled.registers import RegisterFile, SymbolicWavefronts
from harness.emulator.program.compiled.values import Emitter, NotCompilable
from harness.emulator.program.decode import Program
from harness.emulator.wavefront.state import LANES, SGPRS, Wavefronts

_log = logging.getLogger(__name__)

# Builders whose steps read and write registers only. Steps of an ``Op`` do so by definition.
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
        """The instruction that is being executed, or was executed last, while the run is interpreted."""
        return self.instructions[self._at]


class Compiler:
    """Compiles the runs of one program, and measures the cost of interpreting them."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.runs: list[Run] = []
        self.spent = 0.0
        self.limit = LOOKING_UP

    def spend(self, seconds: float) -> None:
        """Add the time of interpreting a run; compile if the total exceeds the limit."""
        self.spent += seconds
        if self.spent < self.limit:
            return
        cost = sum(COMPILING_RUN + COMPILING_STEP * len(run.steps) for run in self.runs)
        if not self.load() and self.spent >= cost:
            self.compile()
        self.limit = max(cost, 2 * self.limit)

    def load(self) -> bool:
        """Load the machine code from disk; return False if there is none."""
        kept = objects.read(self._name())
        if kept is not None:
            self._install(*kept)
        return kept is not None

    def compile(self) -> None:
        """Compile all runs to machine code, store it on disk, and use it."""
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
        """Return a hash of everything that the machine code depends on."""
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
    """A function that executes steps for each wavefront: a loop over the wavefronts around straight-line code."""

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
        file = RegisterFile(Emitter(module, b, ufuncs.call, FUNCTIONS), here, b.mul(count, ir.Constant(i64, 8 * LANES)))
        self.count = count
        self.wf = SymbolicWavefronts(file)

    def add(self, step: Step) -> bool:
        """Emit the code of a step; return False, without any change, if it has no compiled form."""
        saved = self.wf.save()
        try:
            step(self.wf)
        except (NotCompilable, UnimplementedInstruction, AttributeError, TypeError, ValueError, IndexError) as why:
            # An unsupported operation on symbolic arrays can raise any exception; the interpreter decides if it is an
            # error.
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
