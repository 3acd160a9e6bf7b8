"""Registers of one wavefront while code is emitted: symbolic counterparts of ``state.Wavefronts`` and its views.

A register is loaded at its first read, lives in an LLVM value while the code runs, and is stored once at the end if it
was written; intermediate values are never stored. A step that executes on ``state.Wavefronts`` is compiled by calling
it with ``SymbolicWavefronts``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from harness.emulator.program.compiled.values import BOOL, WAVES, Emitter, NotCompilable, Value
from harness.emulator.wavefront import state
from harness.emulator.wavefront.state import BROADCAST, DTYPES, EXEC, LANES, SCALAR, SCC, SGPRS, TYPES, key

_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_LANES32, _LANES64 = ir.VectorType(_I32, LANES), ir.VectorType(_I64, LANES)
_EXEC64 = key(SCALAR, EXEC, "u64")
# NumPy aligns its allocations to 16 bytes, and the size of a wavefront's registers is a multiple of that.
_ALIGN = 16


class SymbolicWavefronts:
    """Argument with which a step is called to compile it: ``view``, ``exec_mask``, ``exec_all``, ``refresh_exec``.

    Any lanes may be active: code for the case that all are active is hardly faster. ``wrote_exec``: EXEC was written,
    so the lane masks of the real wavefronts must be refreshed.
    """

    def __init__(self, file: RegisterFile) -> None:
        self.file = file
        self.view = _Views(file)
        self.exec_all = False
        self.wrote_exec = False
        self.exec_mask: Any = self.view[_EXEC64].unpacked()

    def __len__(self) -> int:
        return WAVES

    def refresh_exec(self) -> None:
        self.exec_mask = self.view[_EXEC64].unpacked()
        self.wrote_exec = True

    def save(self) -> Any:
        """Return all state that a step may change, for ``restore`` if the step turns out not to be compilable."""
        return self.exec_mask, self.exec_all, self.wrote_exec, self.file.save()

    def restore(self, saved: Any) -> None:
        self.exec_mask, self.exec_all, self.wrote_exec, registers = saved
        self.file.restore(registers)


class _Views(dict[int, Any]):
    """Views of registers by the keys of ``state.key``; a constant's key returns the constant."""

    def __init__(self, file: RegisterFile) -> None:
        super().__init__()
        self.file = file

    def __missing__(self, k: int) -> Any:
        self[k] = state.constant_of(k) if k > SCC else Register(self.file, k)
        return self[k]


class Register(Value):
    """A register as a view: reading returns the last value written, as a NumPy view does."""

    def __init__(self, file: RegisterFile, k: int) -> None:
        self.kind = TYPES[k & 15] if k != SCC else "scc"
        self.register = (k & (BROADCAST - 1)) >> 4
        self.scalar = k == SCC or bool(k & (BROADCAST | SCALAR))
        shape = (WAVES, LANES) if not self.scalar else (WAVES, 1) if k & BROADCAST and k != SCC else (WAVES,)
        super().__init__(file.emit, BOOL if k == SCC else DTYPES[self.kind], shape)
        self.file = file

    @property
    def ir(self) -> Any:
        file, b = self.file, self.emit.builder
        if self.kind == "scc":
            return file.scc()
        if self.dtype.itemsize == 8:
            return self.emit.bitcast(file.wide(self.register & ~1, not self.scalar), self.dtype)
        word = file.word(self.register, not self.scalar)
        if self.dtype.itemsize == 4:
            return self.emit.bitcast(word, self.dtype)
        if self.kind[0] == "h":
            word = b.lshr(word, self.emit.word(word, 16))
        half = b.trunc(word, self.emit.type(np.dtype(np.uint16), not self.scalar))
        return self.emit.bitcast(half, self.dtype)

    def __setitem__(self, index: Any, value: Any) -> None:
        if index is not Ellipsis:
            raise NotCompilable(f"writing elements {index!r} of a register")
        self.assign(value, True)

    def assign(self, value: Any, where: Any) -> None:
        """Write ``value`` to the lanes of ``where``."""
        file, b, lanes = self.file, self.emit.builder, not self.scalar
        if isinstance(value, Value) and value.lanes and self.scalar:
            raise NotCompilable("a vector for a scalar register")
        new = self.emit.lift(value, self.dtype, lanes)
        if where is not True:
            new = b.select(self.emit.lift(where, BOOL, lanes), new, self.ir)
        if self.kind == "scc":
            file.scc_value = new
            return
        bits = self.emit.bits(new, self.dtype)
        if self.dtype.itemsize == 8:
            file.set_wide(self.register & ~1, bits, lanes)
            return
        if self.dtype.itemsize == 2:
            old = file.word(self.register, lanes)
            high = self.kind[0] == "h"
            bits = b.zext(bits, old.type)
            bits = b.shl(bits, self.emit.word(old, 16)) if high else bits
            bits = b.or_(b.and_(old, self.emit.word(old, 0xFFFF if high else 0xFFFF0000)), bits)
        file.set_word(self.register, bits, lanes)


class RegisterFile:
    """Registers as LLVM values.

    ``pointers``: to ``v``, ``s`` and ``scc`` of this wavefront in ``state``'s layout; ``stride`` is the distance in
    bytes between register pairs.
    """

    def __init__(self, emit: Emitter, pointers: Sequence[Any], stride: Any) -> None:
        self.emit = emit
        self.pointers = pointers
        self.stride = stride
        self.scc_value: Any = None
        self.words: dict[tuple[bool, int], Any] = {}
        # A pair as one 64-bit value, with the halves from which it was made or into which it was split.
        self.pairs: dict[tuple[bool, int], tuple[Any, Any, Any]] = {}
        self.written: set[tuple[bool, int]] = set()
        self.scc_loaded: Any = None

    def save(self) -> Any:
        return dict(self.words), dict(self.pairs), set(self.written), self.scc_value, self.scc_loaded

    def restore(self, saved: Any) -> None:
        self.words, self.pairs, self.written, self.scc_value, self.scc_loaded = saved

    def word(self, register: int, lanes: bool) -> Any:
        """Return a 32-bit register."""
        if (lanes, register) not in self.words:
            if lanes:
                self._load_pair(register & ~1)
            else:
                self.words[lanes, register] = self.emit.builder.load(self._scalar(register, _I32), align=4)
        return self.words[lanes, register]

    def wide(self, register: int, lanes: bool) -> Any:
        """Return an aligned pair of registers as one 64-bit value."""
        b = self.emit.builder
        low, high = self.word(register, lanes), self.word(register + 1, lanes)
        joined = self.pairs.get((lanes, register))
        if joined is None or joined[1] is not low or joined[2] is not high:
            kind = _LANES64 if lanes else _I64
            top = b.zext(high, kind)
            value = b.or_(b.zext(low, kind), b.shl(top, self.emit.word(top, 32)))
            joined = self.pairs[lanes, register] = (value, low, high)
        return joined[0]

    def set_word(self, register: int, value: Any, lanes: bool) -> None:
        self.words[lanes, register] = value
        self.written.add((lanes, register))

    def set_wide(self, register: int, value: Any, lanes: bool) -> None:
        low, high = self._split(value, lanes)
        self.set_word(register, low, lanes)
        self.set_word(register + 1, high, lanes)
        self.pairs[lanes, register] = (value, low, high)

    def scc(self) -> Any:
        if self.scc_value is None:
            octet = self.emit.builder.load(self.pointers[2])
            self.scc_value = self.scc_loaded = self.emit.cast(octet, np.dtype(np.uint8), BOOL)
        return self.scc_value

    def finish(self) -> None:
        """Store the registers that were written."""
        b = self.emit.builder
        for pair in sorted({register & ~1 for lanes, register in self.written if lanes}):
            b.store(self.wide(pair, True), self._vector(pair), align=_ALIGN)
        for lanes, register in sorted(self.written):
            if not lanes:
                b.store(self.words[lanes, register], self._scalar(register, _I32), align=4)
        if self.scc_value is not self.scc_loaded:
            b.store(b.zext(self.scc_value, _I8), self.pointers[2])

    def _load_pair(self, pair: int) -> None:
        """Load a pair; a half that was already written keeps its value."""
        value = self.emit.builder.load(self._vector(pair), align=_ALIGN)
        low, high = self._split(value, True)
        self.pairs[True, pair] = (value, low, high)
        self.words.setdefault((True, pair), low)
        self.words.setdefault((True, pair + 1), high)

    def _split(self, value: Any, lanes: bool) -> tuple[Any, Any]:
        b, kind = self.emit.builder, _LANES32 if lanes else _I32
        return b.trunc(value, kind), b.trunc(b.lshr(value, self.emit.word(value, 32)), kind)

    def _vector(self, pair: int) -> Any:
        b = self.emit.builder
        offset = b.mul(self.stride, ir.Constant(_I64, pair >> 1))
        return b.bitcast(b.gep(self.pointers[0], [offset]), _LANES64.as_pointer())

    def _scalar(self, register: int, kind: ir.Type) -> Any:
        assert register < SGPRS  # sanity check
        b = self.emit.builder
        return b.bitcast(b.gep(self.pointers[1], [ir.Constant(_I64, 4 * register)]), kind.as_pointer())
