"""Runs: consecutive ALU steps of a segment, executed as one, and compiled when they have become hot.

A run starts interpreted. When the time that it has cost is what compiling it is expected to cost, it is compiled: so a
kernel that runs once is not slowed down, and in the worst case a run costs twice what the better choice would have.
Machine code is kept on disk under a hash of the instructions, the listing's directives, the emulator's source and the
processor, and is looked for long before it would be made.

Steps that cannot be compiled stay as they are, between compiled pieces.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence

from llvmlite import ir

from harness.emulator.compiled import objects
from harness.emulator.compiled.registers import RegisterFile, SymbolicWavefronts
from harness.emulator.compiled.values import Emitter, NotCompilable
from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.listing import Instruction, Listing
from harness.emulator.ops.table import Op, Step, find
from harness.emulator.program import Program
from harness.emulator.state import LANES, Wavefronts

_log = logging.getLogger(__name__)

# Builders whose steps read and write registers only. Steps of an ``Op`` do by definition.
PURE = {
    "v_readfirstlane_b32", "v_readlane_b32", "v_writelane_b32", "v_swap_b32", "v_pk_mov_b32", "v_accvgpr_mov_b32",
}  # fmt: skip
# Seconds, measured on one core of a 2.6 GHz EPYC; they need to be right within a factor of two or so.
INTERPRETED_STEP, INTERPRETED_WAVEFRONT = 2e-6, 40e-9
LOADED, COMPILED_STEP = 1e-3, 3e-3


class Run:
    """The step that executes ``steps``; ``instructions`` are theirs, ``listing`` the one that they are from."""

    def __init__(self, steps: Sequence[Step], instructions: Sequence[Instruction], listing: Listing) -> None:
        self.steps = list(steps)
        self.instructions = list(instructions)
        self.listing = listing
        # By whether all lanes are active: code for that case is simpler.
        self.tiers = (_Tier(self, False), _Tier(self, True))

    def __call__(self, wf: Wavefronts) -> None:
        tier = self.tiers[wf.exec_all]
        if tier.pieces is None:
            tier.interpret(wf)
            return
        for piece in tier.pieces:
            piece(wf)


class _Tier:
    """A run for ``exec_all`` True or False: how much it has cost, and what it is compiled to."""

    def __init__(self, run: Run, exec_all: bool) -> None:
        self.run = run
        self.exec_all = exec_all
        self.pieces: list[Step] | None = None
        self.cost = 0.0
        self.limit = LOADED

    def interpret(self, wf: Wavefronts) -> None:
        steps = self.run.steps
        self.cost += len(steps) * (INTERPRETED_STEP + len(wf.wave) * INTERPRETED_WAVEFRONT)
        if self.cost > self.limit:
            self._get_hotter()
        for step in steps:
            step(wf)

    def _get_hotter(self) -> None:
        compiling = len(self.run.steps) * COMPILED_STEP
        if self.cost < compiling:
            self.limit = compiling
            kept = objects.read(self._name())
            if kept is not None:
                self._install(*kept)
            return
        self.compile()

    def compile(self) -> None:
        """Make machine code, or take it from the cache."""
        name = self._name()
        kept = objects.read(name)
        if kept is None:
            pieces, module = lower(self.run.steps, self.exec_all, name)
            kept = pieces, objects.compile_module(module) if pieces else b""
            objects.write(name, *kept)
        self._install(*kept)

    def _install(self, pieces: list[tuple[int, int, bool]], code: bytes) -> None:
        """``pieces``: first and last + 1 of the compiled steps, and whether they write EXEC."""
        self.pieces, done = [], 0
        name = self._name()
        functions = objects.load(code, [f"{name}_{first}" for first, _, _ in pieces]) if pieces else []
        for (first, last, writes_exec), native in zip(pieces, functions, strict=True):
            self.pieces += self.run.steps[done:first]
            self.pieces.append(_native_step(native, writes_exec))
            done = last
        self.pieces += self.run.steps[done:]

    def _name(self) -> str:
        listing = self.run.listing
        code = "\n".join(i.text for i in self.run.instructions)
        parts = (listing.arch, sorted(listing.directives.items()), code, self.exec_all, objects.version())
        return "run_" + hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


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
    for segment in program.segments:
        steps: list[Step] = []
        instructions: list[Instruction] = []
        first = 0
        pure = [_is_pure(i, program.listing.arch) for i in segment.instructions]
        while first < len(segment.steps):
            last = first
            while last < len(pure) and pure[last]:
                last += 1
            if last > first:
                run = Run(segment.steps[first:last], segment.instructions[first:last], program.listing)
                steps.append(run)
            else:
                last += 1
                steps.append(segment.steps[first])
            instructions.append(segment.instructions[first])
            first = last
        segment.steps, segment.instructions = steps, instructions


def _is_pure(instruction: Instruction, arch: str) -> bool:
    entry, _ = find(instruction.mnemonic, arch)
    return isinstance(entry, Op) or instruction.mnemonic.removesuffix("_e32").removesuffix("_e64") in PURE


# -- from steps to IR --------------------------------------------------------------------------------------------------


def lower(steps: Sequence[Step], exec_all: bool, name: str) -> tuple[list[tuple[int, int, bool]], ir.Module]:
    """The compilable pieces of ``steps``, as (first, last + 1, writes EXEC), and a module with a function
    ``NAME_FIRST`` for each."""
    module = ir.Module()
    pieces: list[tuple[int, int, bool]] = []
    first = 0
    while first < len(steps):
        function = _Function(module, f"{name}_{first}", exec_all)
        last = first
        while last < len(steps) and function.add(steps[last]):
            last += 1
            if function.wf.wrote_exec:
                break
        if last > first:
            function.finish()
            pieces.append((first, last, function.wf.wrote_exec))
            # Behind a write of EXEC nothing is known about it.
            exec_all = exec_all and not function.wf.wrote_exec
            first = last
        else:
            function.discard()
            first += 1
    return pieces, module


class _Function:
    """A function that executes steps for each of its wavefronts: a loop over them around straight code."""

    def __init__(self, module: ir.Module, name: str, exec_all: bool) -> None:
        i8p, i64 = ir.IntType(8).as_pointer(), ir.IntType(64)
        kind = ir.FunctionType(ir.VoidType(), [i8p, i8p, i8p, i64])
        self.function = ir.Function(module, kind, name)
        v, s, scc, count = self.function.args
        entry, self.loop, self.done = (self.function.append_basic_block(n) for n in ("entry", "loop", "done"))
        ir.IRBuilder(entry).branch(self.loop)
        b = self.builder = ir.IRBuilder(self.loop)
        self.index = b.phi(i64)
        self.index.add_incoming(ir.Constant(i64, 0), entry)
        row = ir.Constant(i64, 8 * LANES)
        here = [b.gep(v, [b.mul(self.index, row)]), b.gep(s, [b.mul(self.index, ir.Constant(i64, 512))])]
        file = RegisterFile(Emitter(module, b), *here, b.gep(scc, [self.index]), b.mul(count, row))
        self.count = count
        self.wf = SymbolicWavefronts(file, exec_all)

    def add(self, step: Step) -> bool:
        """Emit the code of a step; False, and nothing has happened, when it has no compiled form."""
        saved = self.wf.save()
        try:
            step(self.wf)
        except (NotCompilable, UnimplementedInstruction, AttributeError, TypeError, ValueError, IndexError) as why:
            # What is not known to symbolic arrays shows in many ways; the interpreter decides whether it is an error.
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
        module = self.function.module
        del module.globals[self.function.name]
