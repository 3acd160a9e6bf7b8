"""Forms: instructions that differ only in their registers and constants, each compiled to one native function.

``v_add_u32_e32 v7, s3, v9`` and ``v_add_u32_e32 v1, s0, v2`` have the same form. Its function takes the record of a
wavefront (``native.record``) and the places of the operands, so machine code is made once for all kernels, and a kernel
is translated by looking its forms up. The code is emitted by executing the instruction's step on symbolic registers:
the ops are not defined again.

Most forms work lane by lane. Their function is a loop over parts of ``PART`` lanes, one host vector each. Forms that
move data between lanes are emitted for all 64 lanes at once.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from llvmlite import ir

from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.listing.instructions import Instruction
from harness.emulator.native import record
from harness.emulator.operations.table import Builder, Op, find
from harness.emulator.program.build import build
from harness.emulator.program.compiled import ufuncs
from harness.emulator.program.compiled.functions import FUNCTIONS
from harness.emulator.program.compiled.registers import SCALAR_STEP, VECTOR_STEP, RegisterFile, SymbolicWavefronts
from harness.emulator.program.compiled.values import Emitter, NotCompilable
from harness.emulator.program.decode import Context
from harness.emulator.wavefront import operands
from harness.emulator.wavefront.operands import Operand, constant, constant_word
from harness.emulator.wavefront.state import DTYPES, EXEC, LANES, MODE

_log = logging.getLogger(__name__)

PART = 16
_FIXED = {EXEC, EXEC + 1, MODE}
_I64 = ir.IntType(64)
Modifiers = tuple[tuple[str, str], ...]
TYPE = ir.FunctionType(_I64, [ir.IntType(8).as_pointer(), _I64.as_pointer()])


@dataclass(frozen=True)
class Form:
    """``instruction`` has canonical registers; ``kinds`` has for each operand ``v``, ``s``, ``c`` (a constant) or ``-``
    (not replaced)."""

    instruction: Instruction
    encoding: str
    kinds: str
    arch: str
    varying: int

    @cached_property
    def name(self) -> str:
        """A hash of everything in the listing that the machine code depends on."""
        i = self.instruction
        parts = (i.mnemonic, i.operands, sorted(i.modifiers.items()), self.kinds, self.arch, self.varying)
        return "form_" + hashlib.sha256(repr(parts).encode()).hexdigest()[:24]

    def emit(self) -> ir.Module | None:
        """Return a module with the form's function, or None if the form cannot be compiled."""
        entry, _ = find(self.instruction.mnemonic, self.arch)
        assert entry is not None  # sanity check
        for width in (PART, LANES):
            module = ir.Module()
            try:
                _Body(ir.Function(module, TYPE, self.name), self, width).emit(_step(entry, self))
            except (NotCompilable, UnimplementedInstruction, AttributeError, TypeError, ValueError, IndexError) as why:
                # An unsupported operation on symbolic arrays can raise any exception; the interpreter decides if it is
                # an error.
                _log.debug("%s, %d lanes: %s", self.instruction, width, why)
                continue
            return module
        return None


def form_of(instruction: Instruction, context: Context) -> tuple[Form, tuple[int, ...]] | None:
    """Return the form of an instruction that only moves and computes registers, and its parameters, int64 each.

    None for another instruction; one of the data share may turn out to have no form when it is emitted.

    A parameter is the offset of a register in the record, or a constant's bits.
    """
    modifiers = tuple(sorted(instruction.modifiers.items()))
    return _form_of(
        instruction.mnemonic, instruction.operands, modifiers, context.arch, context.accum_offset, context.varying
    )


@lru_cache(maxsize=1 << 16)  # most instructions of a kernel are in other kernels too
def _form_of(
    mnemonic: str, texts: tuple[str, ...], modifiers: Modifiers, arch: str, accum_offset: int, varying: int
) -> tuple[Form, tuple[int, ...]] | None:
    entry, encoding = find(mnemonic, arch)
    if entry is None or (isinstance(entry, Builder) and entry.klass not in ("valu", "salu", "lds")):
        return None
    canonical, kinds, parameters = [], "", []
    types = _types(entry, encoding)
    for i, text in enumerate(texts):
        try:
            operand = operands.parse(text, accum_offset)
        except UnimplementedInstruction:
            return None
        kind, replaced, parameter = _replaced(operand, i, types[i] if i < len(types) else "")
        kinds += kind
        canonical.append(replaced)
        parameters.append(parameter)
    return _form(mnemonic, tuple(canonical), modifiers, encoding, kinds, arch, varying), tuple(parameters)


@lru_cache(maxsize=1 << 14)
def _form(
    mnemonic: str, texts: tuple[str, ...], modifiers: Modifiers, encoding: str, kinds: str, arch: str, varying: int
) -> Form:
    return Form(Instruction(0, 0, "", mnemonic, texts, dict(modifiers), ()), encoding, kinds, arch, varying)


def _types(entry: Op | Builder, encoding: str) -> list[str]:
    """Return the type of each operand of a plain op whose constants may be passed as parameters."""
    if not isinstance(entry, Op) or entry.packed or entry.mixed or entry.constants or encoding in ("sdwa", "dpp"):
        return []
    implicit = ("scc", "exec", "vcc", "mode")
    return [t for t in entry.results + entry.sources if t not in implicit and t[0] not in "@%"]


def _replaced(operand: Operand, index: int, kind: str) -> tuple[str, str, int]:
    """Return what an operand is replaced by: its kind, its text, its parameter."""
    last = operand.count - 1
    if operand.space == "v" and not (operand.register % 2 and last):
        first = VECTOR_STEP * index
        text = f"v{first}" if not last else f"v[{first}:{first + last}]"
        return "v", _flagged(operand, text), record.vector_offset(operand.register)
    if operand.space == "s" and operand.register not in _FIXED and not (operand.register % 2 and last):
        first = SCALAR_STEP * index
        text = f"s{first}" if not last else f"s[{first}:{first + last}]"
        return "s", _flagged(operand, text), 4 * operand.register
    if operand.space == "const" and kind in DTYPES:
        wide = DTYPES[kind].itemsize == 8
        word = int(constant(operand, kind).view(np.uint64)) if wide else constant_word(operand, kind)
        first = SCALAR_STEP * index
        text = f"s[{first}:{first + 1}]" if wide else f"s{first}"
        return "c", _flagged(operand, text), word - (word >> 63 << 64)
    return "-", operand.text, 0


def _flagged(operand: Operand, text: str) -> str:
    if operand.sext:
        return f"sext({text})"
    text = f"|{text}|" if operand.absolute else text
    return f"-{text}" if operand.negate else text


def _step(entry: Op | Builder, form: Form) -> Any:
    if isinstance(entry, Op):
        return build(entry, form.encoding, form.instruction, 0, form.varying)
    return entry.build(form.instruction, Context(form.arch, 0, [], form.varying))


class _Body:
    """The body of a form's function: scalars are loaded first, then parts of ``width`` lanes are computed in a loop."""

    def __init__(self, function: ir.Function, form: Form, width: int) -> None:
        wave, places = function.args
        self.entry = function.append_basic_block("entry")
        self.loop = function.append_basic_block("loop")
        self.done = function.append_basic_block("done")
        first = ir.IRBuilder(self.entry)
        first.position_at_end(self.entry)
        builder = ir.IRBuilder(self.loop)
        self.index = builder.phi(_I64)
        self.index.add_incoming(ir.Constant(_I64, 0), self.entry)
        self.builder, self.first, self.width = builder, first, width
        emitter = Emitter(function.module, builder, ufuncs.call, FUNCTIONS, width)
        self.file = RegisterFile(emitter, first, wave, places, form.kinds, self.index)

    def emit(self, step: Any) -> None:
        if step is not None:
            step(SymbolicWavefronts(self.file))
        self.file.finish()
        b = self.builder
        following = b.add(self.index, ir.Constant(_I64, self.width))
        self.index.add_incoming(following, self.loop)
        lanes = self.file.uses_lanes and self.width < LANES
        if lanes:
            b.cbranch(b.icmp_unsigned("<", following, ir.Constant(_I64, LANES)), self.loop, self.done)
        else:
            b.branch(self.done)
        self.first.branch(self.loop)
        ir.IRBuilder(self.done).ret(ir.Constant(_I64, 0))
