"""Runs: successive operations of a program, compiled to one native function.

The functions of ``forms`` load and store the registers of each instruction. Here an instruction takes its operands from
the host registers in which the ones before it left their results: ALU instructions are a loop over parts of ``PART``
lanes that executes all of them on each part, with EXEC as a mask. Scalar instructions are executed once, before the
loop. A loop ends where lanes depend on other lanes: at a move between lanes, and where a scalar instruction reads the
lane mask that a comparison in the loop wrote. Memory accesses and matrix products are calls of their own functions.

Compiling takes longer than finding forms, and the code belongs to one program, so only programs that are executed for
long have runs. The code of a program is one object file, kept on disk by its instructions.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from harness.compiling import compiling
from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.listing.instructions import Instruction
from harness.emulator.native import execute, record
from harness.emulator.operations.table import Builder, Op, find
from harness.emulator.program.build import build
from harness.emulator.program.compiled import objects, ufuncs
from harness.emulator.program.compiled.forms import PART
from harness.emulator.program.compiled.functions import FUNCTIONS
from harness.emulator.program.compiled.registers import RegisterFile, SymbolicWavefronts
from harness.emulator.program.compiled.values import BOOL, WAVES, Emitter, NotCompilable, Value
from harness.emulator.program.decode import Context
from harness.emulator.wavefront import operands
from harness.emulator.wavefront.state import EXEC, LANES

_log = logging.getLogger(__name__)

_I1, _I8, _I32, _I64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))
_TYPE = ir.FunctionType(_I64, [_I8.as_pointer(), _I64.as_pointer()])
# Longer functions would compile more slowly than in proportion to their length.
_LONGEST = 64
# LLVM instructions of one that is inlined. Longer ones, such as exponentials, cost more to compile than a call does.
_LARGEST = 80


@dataclass(frozen=True)
class Item:
    """One operation of a stretch: an ALU instruction, the count of a segment, or the call of its own function."""

    instruction: Instruction | None = None
    segment: int | None = None


@dataclass(frozen=True)
class Run:
    """``count`` operations of a translation from ``first`` on, and the address of the function that executes them."""

    first: int
    count: int
    address: int


class Runs:
    """The runs of a program, one for each stretch of at least two operations, given with the first of them."""

    def __init__(self, stretches: Iterable[tuple[int, Sequence[Item]]], context: Context) -> None:
        self._stretches = [(first, items) for first, items in stretches if len(items) > 1]
        self._context = context
        texts = [(first, [_identity(item) for item in items]) for first, items in self._stretches]
        parts = (texts, context.arch, context.accum_offset, context.varying)
        self.name = "runs_" + hashlib.sha256(repr(parts).encode()).hexdigest()[:24]
        self.size = sum(len(items) for _, items in self._stretches)
        """Number of operations."""

    def kept(self) -> list[Run] | None:
        """Return the runs if they are on disk."""
        kept = objects.read(self._file)
        return None if kept is None else self._load(kept[1])

    def find(self) -> list[Run]:
        """Return the runs; compile them if they are not on disk."""
        runs = self.kept()
        if runs is None:
            with compiling():
                code = self._compile()
                objects.write(self._file, [], code)
            runs = self._load(code)
        return runs

    @property
    def _file(self) -> str:
        return f"{self.name}_{objects.version()[:16]}"

    def _function(self, first: int) -> str:
        return f"{self.name}_{first}"

    def _load(self, code: bytes) -> list[Run]:
        addresses = objects.load_functions(code, [self._function(first) for first, _ in self._stretches])
        return [
            Run(first, len(items), address) for (first, items), address in zip(self._stretches, addresses, strict=True)
        ]

    def _compile(self) -> bytes:
        module = ir.Module()
        for first, items in self._stretches:
            _Stretch(ir.Function(module, _TYPE, self._function(first)), self._context).emit(items)
        return objects.compile_module(module)


def _identity(item: Item) -> tuple[Any, ...]:
    i = item.instruction
    return (item.segment,) if i is None else (i.mnemonic, i.operands, sorted(i.modifiers.items()))


def _is_aligned(instruction: Instruction, context: Context) -> bool:
    """Return whether no wide operand is in odd registers: symbolic registers have no such views."""
    for text in instruction.operands:
        try:
            operand = operands.parse(text, context.accum_offset)
        except UnimplementedInstruction:
            return False
        if operand.space in ("v", "s") and operand.count > 1 and operand.register & 1:
            return False
    return True


def _step(instruction: Instruction, context: Context) -> Any:
    entry, encoding = find(instruction.mnemonic, context.arch)
    if isinstance(entry, Op):
        return build(entry, encoding, instruction, context.accum_offset, context.varying)
    assert isinstance(entry, Builder)  # sanity check
    return entry.build(instruction, context)


class _Stretch:
    """The function of a stretch: it returns the number of operations executed, less than all if one has to stop."""

    def __init__(self, function: ir.Function, context: Context) -> None:
        self.function, self.context = function, context
        self.wave, self.rows = function.args
        self.b = ir.IRBuilder(function.append_basic_block("entry"))
        self.stopped = function.append_basic_block("stopped")
        b = ir.IRBuilder(self.stopped)
        self.stops = b.phi(_I64)
        b.ret(self.stops)

    def emit(self, items: Sequence[Item]) -> None:
        at = 0
        while at < len(items):
            count = self._emit_loop(items[at : at + _LONGEST])
            if not count:
                segment = items[at].segment
                if segment is None:
                    self._call(at)
                else:
                    count_segment(self.b, self.wave, segment)
            at += max(1, count)
        self.b.ret(ir.Constant(_I64, len(items)))
        if not self.stops.incomings:
            self.function.blocks.remove(self.stopped)

    def _emit_loop(self, items: Sequence[Item]) -> int:
        """Emit ALU instructions, as many as can be in one loop over the lanes; return their number.

        A single one with lanes is called: that costs less to compile, and little more to execute.
        """
        loop = _Loop(self.function, self.b, self.wave)
        count = 0
        for item in items:
            if item.segment is not None:
                if not (count and loop.add_count(item.segment)):
                    break
            elif item.instruction is None or not loop.add(item.instruction, self.context):
                break
            count += 1
        if count < 2 and (count == 0 or loop.file.uses_lanes):
            loop.drop()
            return 0
        self.b = loop.finish()
        return count

    def _call(self, at: int) -> None:
        """Call the function of operation ``at``, as the table of calls does."""
        b, first = self.b, at * execute.ROW
        function = b.load(b.gep(self.rows, [ir.Constant(_I64, first + 1)]))
        parameters = b.gep(self.rows, [ir.Constant(_I64, first + 2)])
        status = b.call(b.inttoptr(function, _TYPE.as_pointer()), [self.wave, parameters])
        usual = self.function.append_basic_block("usual")
        b.cbranch(b.icmp_unsigned("==", status, ir.Constant(_I64, 0)), usual, self.stopped)
        self.stops.add_incoming(ir.Constant(_I64, at), b.block)
        b.position_at_end(usual)


def count_segment(b: ir.IRBuilder, wave: Any, segment: int) -> None:
    """Count a segment and its lanes: see ``execute.COUNT``."""

    def word(base: Any, offset: int) -> Any:
        return b.bitcast(b.gep(base, [ir.Constant(_I64, offset)]), _I64.as_pointer())

    def add(counters: int, number: Any) -> None:
        array = b.inttoptr(b.load(word(context, 8 * counters)), _I8.as_pointer())
        place = word(array, 8 * segment)
        b.store(b.add(b.load(place), number), place)

    context = b.inttoptr(b.load(word(wave, record.CONTEXT)), _I8.as_pointer())
    lanes = b.ctpop(b.load(word(wave, record.EXEC_BYTES)))
    add(record.SEGMENT_WAVES, ir.Constant(_I64, 1))
    add(record.SEGMENT_LANES, lanes)


class _Loop:
    """ALU instructions: the scalar ones where ``first`` is, the others in a loop over parts of the lanes."""

    def __init__(self, function: ir.Function, first: ir.IRBuilder, wave: Any) -> None:
        self.function, self.first, self.wave = function, first, wave
        self.loop = function.append_basic_block("loop")
        self.builder = ir.IRBuilder(self.loop)
        self.index = self.builder.phi(_I64)
        self.index.add_incoming(ir.Constant(_I64, 0), first.block)
        self.emitter = Emitter(function.module, self.builder, ufuncs.call, FUNCTIONS, PART)
        self.file = RunRegisters(self.emitter, self.first, wave, self.index)

    def add(self, instruction: Instruction, context: Context) -> bool:
        """Emit an instruction; return False, and leave all registers as they were, if it cannot be part of the loop."""
        if not _is_aligned(instruction, context):
            return False
        entry, _ = find(instruction.mnemonic, context.arch)
        before = self.file.saved()
        length = len(self.loop.instructions)
        caches = self.emitter._constants.copy(), self.emitter._words.copy(), self.file._rows.copy()
        base = self.file._part_base
        try:
            step = _step(instruction, context)
            if step is None:
                return True
            if entry is not None and entry.klass == "salu":
                with self.file.once():
                    step(SymbolicWavefronts(self.file))
            else:
                step(SymbolicWavefronts(self.file))
                self.file.check_scalars(before)
                if len(self.loop.instructions) - length > _LARGEST:
                    raise NotCompilable("too long")
        except (NotCompilable, UnimplementedInstruction, AttributeError, TypeError, ValueError, IndexError) as why:
            # As in ``forms``: an unsupported operation on symbolic arrays can raise any exception.
            _log.debug("a loop ends before %s: %s", instruction, why)
            self.file.restore(before)
            del self.loop.instructions[length:]
            self.emitter._constants, self.emitter._words, self.file._rows = caches
            self.file._part_base = base
            return False
        return True

    def add_count(self, segment: int) -> bool:
        """Count a segment; return False if the loop changes EXEC, which is counted as it is in the record."""
        if self.file.writes(EXEC):
            return False
        count_segment(self.first, self.wave, segment)
        return True

    def drop(self) -> None:
        self.function.blocks.remove(self.loop)

    def finish(self) -> ir.IRBuilder:
        """Return the builder of the code after the loop."""
        b = self.builder
        done = ir.IRBuilder(self.function.append_basic_block("done"))
        self.file.finish_run(done)
        following = b.add(self.index, ir.Constant(_I64, PART))
        self.index.add_incoming(following, self.loop)
        if self.file.uses_lanes:
            b.cbranch(b.icmp_unsigned("<", following, ir.Constant(_I64, LANES)), self.loop, done.block)
        else:
            b.branch(done.block)
        self.first.branch(self.loop)
        return done


class RunRegisters(RegisterFile):
    """Registers by their own numbers, which several instructions use one after the other.

    A scalar register has the same value for all parts of the lanes: it is read and computed before the loop over the
    parts, and stored after it. A lane mask that a vector instruction writes exists in parts only.
    """

    def __init__(self, emit: Emitter, first: ir.IRBuilder, wave: Any, index: Any) -> None:
        super().__init__(emit, first, wave, None, "", index)
        self._parts: set[int] = set()
        self._once = False
        self._constants: tuple[dict[Any, Any], dict[Any, Any]] = {}, {}
        self._part_base: Any = None

    def saved(self) -> tuple[Any, ...]:
        """Return the state of the registers, for ``restore``."""
        return (
            self._words.copy(), self._pairs.copy(), self._written.copy(), self._masks.copy(), self._parts.copy(),
            self.scc_value, self._scc_loaded, self.uses_lanes,
        )  # fmt: skip

    def restore(self, state: tuple[Any, ...]) -> None:
        (
            self._words, self._pairs, self._written, self._masks, self._parts, self.scc_value, self._scc_loaded,
            self.uses_lanes,
        ) = state  # fmt: skip

    def check_scalars(self, before: tuple[Any, ...]) -> None:
        """Raise ``NotCompilable`` if the instruction after ``before`` wrote SCC in the loop."""
        if self.scc_value is not before[5] and self.scc_value is not self._scc_loaded:
            raise NotCompilable("SCC that depends on the lanes")

    @contextmanager
    def once(self) -> Iterator[None]:
        """Emit what follows before the loop. Values that were emitted in the loop cannot be used there."""
        emit = self.emit
        before = emit.builder, emit._constants, emit._words, self._once
        emit.builder, self._once = self.first, True
        emit._constants, emit._words = self._constants
        try:
            yield
        finally:
            emit.builder, emit._constants, emit._words, self._once = before

    def _row(self, register: int) -> tuple[Any, Any, bool]:
        if self._once:
            raise NotCompilable("a scalar instruction that reads a vector register")
        self.uses_lanes = True
        b, key = self.emit.builder, (0, register >> 1)
        if key not in self._rows:
            if self._part_base is None:
                self._part_base = b.gep(self.wave, [b.mul(self.index, ir.Constant(_I64, 8))])
            at = ir.Constant(_I64, record.vector_offset(register & ~1))
            kind = ir.VectorType(_I32, 2 * self.emit.width).as_pointer()
            pointer = b.bitcast(b.gep(self._part_base, [at]), kind)
            self._rows[key] = pointer, b.load(pointer, align=4)
        pointer, loaded = self._rows[key]
        return pointer, loaded, bool(register & 1)

    def word(self, register: int, lanes: bool) -> Any:
        if not lanes and register & ~1 in self._parts:
            raise NotCompilable("a scalar that a comparison of the run wrote")
        return super().word(register, lanes)

    def wide(self, register: int, lanes: bool) -> Any:
        if lanes or self._once:
            return super().wide(register, lanes)
        with self.once():
            return super().wide(register, lanes)

    def scc(self) -> Any:
        with self.once():
            return super().scc()

    def mask(self, register: int) -> Any:
        if self._once or register & 1:
            raise NotCompilable("the lanes of a mask in a scalar instruction, or in odd registers")
        if register in self._parts or not self._is_written(register):
            return super().mask(register)
        self.uses_lanes = True
        emit, b, whole = self.emit, self.emit.builder, self.wide(register, False)
        part = b.trunc(b.lshr(whole, self.index), ir.IntType(emit.width))
        return Value(emit, BOOL, (WAVES, LANES), b.bitcast(part, ir.VectorType(_I1, emit.width)))

    def writes(self, register: int) -> bool:
        """Return whether an instruction wrote the pair of scalar registers at ``register``."""
        return register in self._parts or self._is_written(register)

    def _is_written(self, register: int) -> bool:
        return (False, register) in self._written or (False, register + 1) in self._written

    def set_word(self, register: int, value: Any, lanes: bool) -> None:
        if not lanes and (not self._once or register & ~1 in self._parts):
            raise NotCompilable("a scalar result that depends on the lanes")
        super().set_word(register, value, lanes)

    def set_mask(self, register: int, part: Any) -> None:
        if register & 1 or self._is_written(register):
            raise NotCompilable("a lane mask in registers that a scalar instruction of the run wrote")
        self.uses_lanes = True
        self._masks[register] = part
        self._parts.add(register)

    def finish_run(self, done: ir.IRBuilder) -> None:
        """Store what was written: vector registers and parts of masks in the loop, scalars after it, at ``done``."""
        b = self.emit.builder
        for pair in sorted({register & ~1 for lanes, register in self._written if lanes}):
            self._store_pair(pair)
        for register in sorted(self._parts):
            part = self._masks[register]
            b.store(part, self._mask_place(register, part.type), align=1)
        for lanes, register in self._written:
            if not lanes:
                done.store(self._words[False, register], self._scalar_place(done, register, _I32), align=4)
        if self.scc_value is not self._scc_loaded:
            place = done.gep(self.wave, [ir.Constant(_I64, record.SCC)])
            done.store(done.zext(self.scc_value, _I8), place)

    def _store_pair(self, pair: int) -> None:
        b, width = self.emit.builder, self.emit.width
        pointer, old, _ = self._row(pair)
        low, high = self.word(pair, True), self.word(pair + 1, True)
        joined = self._pairs.get((True, pair))
        if joined is not None and joined[1] is low and joined[2] is high:
            b.store(b.bitcast(joined[0], old.type), pointer, align=4)
            return
        picks = [x for i in range(width) for x in (i, width + i)]
        b.store(b.shuffle_vector(low, high, self._indices(picks)), pointer, align=4)
