"""Registers of one wavefront while code is emitted: symbolic counterparts of ``state.Wavefronts`` and its views.

A register is loaded at its first read, lives in an LLVM value while the code runs, and is stored once at the end if it
was written. A step that executes on ``state.Wavefronts`` is compiled by calling it with ``SymbolicWavefronts``.
Registers have the canonical numbers of ``forms``; their places are parameters of the function that is emitted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from harness.emulator.native import record
from harness.emulator.program.compiled.values import BOOL, WAVES, Emitter, NotCompilable, PartOfMask, Value
from harness.emulator.wavefront import state
from harness.emulator.wavefront.state import BROADCAST, DTYPES, EXEC, LANES, SCALAR, SCC, TYPES

VECTOR_STEP, SCALAR_STEP = 32, 8
"""An operand's first vector or scalar register has the operand's index times this as its canonical number."""
_CANONICAL = 96
"""Scalar registers from this number on are the real ones."""
_I1, _I8, _I32, _I64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))


class SymbolicWavefronts:
    """Argument with which a step is called to compile it: ``view``, ``exec_mask``, ``exec_all``, ``refresh_exec``.

    Any lanes may be active: code for the case that all are active is hardly faster.
    """

    def __init__(self, file: RegisterFile) -> None:
        self.file = file
        self.view = _Views(file)
        self.exec_all = False
        self._mask: Any = None

    def __len__(self) -> int:
        return WAVES

    @property
    def exec_mask(self) -> Any:
        if self._mask is None:  # most scalar instructions do not read it
            self._mask = self.file.mask(EXEC)
        return self._mask

    @exec_mask.setter
    def exec_mask(self, mask: Any) -> None:
        self._mask = mask

    def refresh_exec(self) -> None:
        """Nothing: the next instruction reads EXEC itself."""


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

    def unpacked(self) -> Any:
        if self.dtype.itemsize != 8 or self.lanes:
            raise NotCompilable("a lane mask of another type")
        return self.file.mask(self.register)

    def assign(self, value: Any, where: Any) -> None:
        """Write ``value`` to the lanes of ``where``."""
        if isinstance(value, PartOfMask):
            if self.lanes or self.dtype.itemsize != 8 or where is not True:
                raise NotCompilable("a lane mask of another type")
            self.file.set_mask(self.register, value.part)
            return
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
    """Registers of one wavefront, in its record ``wave``, as LLVM values.

    ``first`` emits the code that is executed once, before the loop over parts of the wavefront: it loads the
    parameters, at ``places``, and the scalars. ``kinds`` has the kind of each operand, see ``forms.Form``; ``index`` is
    the first lane of the part.
    """

    def __init__(self, emit: Emitter, first: ir.IRBuilder, wave: Any, places: Any, kinds: str, index: Any) -> None:
        self.emit, self.first, self.wave, self.kinds, self.index = emit, first, wave, kinds, index
        self.places = places
        self.uses_lanes = False
        self.scc_value: Any = None
        self._scc_loaded: Any = None
        self._parameters: dict[int, Any] = {}
        self._rows: dict[tuple[int, int], tuple[Any, Any]] = {}
        self._words: dict[tuple[bool, int], Any] = {}
        self._pairs: dict[tuple[bool, int], tuple[Any, Any, Any]] = {}
        self._written: list[tuple[bool, int]] = []
        self._masks: dict[int, Any] = {}

    # -- places ------------------------------------------------------------------------------------------------------

    def _parameter(self, index: int) -> Any:
        if index not in self._parameters:
            place = self.first.gep(self.places, [ir.Constant(_I64, index)])
            self._parameters[index] = self.first.load(place, align=8)
        return self._parameters[index]

    def _scalar_place(self, builder: ir.IRBuilder, register: int, kind: ir.Type) -> Any:
        index, inner = divmod(register, SCALAR_STEP)
        if index < len(self.kinds) and register < _CANONICAL:
            if self.kinds[index] != "s":
                raise NotCompilable(f"scalar register {register} is not of an operand")
            at = self.first.add(self._parameter(index), ir.Constant(_I64, 4 * inner))
        else:
            at = ir.Constant(_I64, 4 * register)
        return builder.bitcast(builder.gep(self.wave, [at]), kind.as_pointer())

    def _row(self, register: int) -> tuple[Any, Any, bool]:
        """Return pointers to a lane pair of this part, and to the register in it, and whether it is the upper half."""
        index, inner = divmod(register, VECTOR_STEP)
        if index >= len(self.kinds) or self.kinds[index] != "v":
            raise NotCompilable(f"vector register {register} is not of an operand")
        self.uses_lanes = True
        b, key = self.emit.builder, (index, inner >> 1)
        if key not in self._rows:
            at = b.add(self._parameter(index), ir.Constant(_I64, (inner >> 1) * record.PAIR_BYTES))
            at = b.add(at, b.mul(self.index, ir.Constant(_I64, 8)))
            pointer = b.bitcast(b.gep(self.wave, [at]), ir.VectorType(_I32, 2 * self.emit.width).as_pointer())
            self._rows[key] = pointer, b.load(pointer, align=4)
        pointer, loaded = self._rows[key]
        return pointer, loaded, bool(inner & 1)

    # -- reading -----------------------------------------------------------------------------------------------------

    def word(self, register: int, lanes: bool) -> Any:
        key = lanes, register
        if key not in self._words:
            if lanes:
                _, loaded, upper = self._row(register)
                self._words[key] = self._pick(loaded, [2 * i + upper for i in range(self.emit.width)])
            else:
                index, inner = divmod(register, SCALAR_STEP)
                if index < len(self.kinds) and self.kinds[index] == "c" and register < _CANONICAL:
                    value = self._parameter(index)
                    value = self.first.lshr(value, ir.Constant(_I64, 32)) if inner else value
                    self._words[key] = self.first.trunc(value, _I32)
                else:
                    self._words[key] = self.first.load(self._scalar_place(self.first, register, _I32), align=4)
        return self._words[key]

    def _pick(self, vector: Any, elements: list[int]) -> Any:
        picks = ir.Constant(ir.VectorType(_I32, len(elements)), elements)
        return self.emit.builder.shuffle_vector(vector, ir.Constant(vector.type, None), picks)

    def wide(self, register: int, lanes: bool) -> Any:
        low, high = self.word(register, lanes), self.word(register + 1, lanes)
        joined = self._pairs.get((lanes, register))
        if joined is None or joined[1] is not low or joined[2] is not high:
            b, kind = self.emit.builder, ir.VectorType(_I64, self.emit.width) if lanes else _I64
            untouched = lanes and (lanes, register) not in self._written and (lanes, register + 1) not in self._written
            if untouched:
                value = b.bitcast(self._row(register)[1], kind)
            else:
                top = b.zext(high, kind)
                value = b.or_(b.zext(low, kind), b.shl(top, self.emit.word(top, 32)))
            joined = self._pairs[lanes, register] = (value, low, high)
        return joined[0]

    def mask(self, register: int) -> Any:
        """Return the part of a lane mask that belongs to these lanes."""
        emit, b = self.emit, self.emit.builder
        self.uses_lanes = True
        part = ir.IntType(emit.width)
        if register not in self._masks:
            place = self._mask_place(register, part)
            self._masks[register] = b.load(place, align=1)
        bits = b.bitcast(self._masks[register], ir.VectorType(_I1, emit.width))
        return Value(emit, BOOL, (WAVES, LANES), bits)

    def _mask_place(self, register: int, part: ir.IntType) -> Any:
        b = self.emit.builder
        whole = self._scalar_place(self.first, register, _I8)
        place = b.gep(whole, [b.lshr(self.index, ir.Constant(_I64, 3))])
        return b.bitcast(place, part.as_pointer())

    def scc(self) -> Any:
        if self.scc_value is None:
            place = self.first.gep(self.wave, [ir.Constant(_I64, record.SCC)])
            octet = self.first.load(place)
            self.scc_value = self._scc_loaded = self.emit.cast(octet, np.dtype(np.uint8), BOOL)
        return self.scc_value

    # -- writing -----------------------------------------------------------------------------------------------------

    def set_word(self, register: int, value: Any, lanes: bool) -> None:
        if lanes:
            self._row(register)
        self._words[lanes, register] = value
        if (lanes, register) not in self._written:
            self._written.append((lanes, register))

    def set_wide(self, register: int, value: Any, lanes: bool) -> None:
        b, kind = self.emit.builder, ir.VectorType(_I32, self.emit.width) if lanes else _I32
        low = b.trunc(value, kind)
        high = b.trunc(b.lshr(value, self.emit.word(value, 32)), kind)
        self.set_word(register, low, lanes)
        self.set_word(register + 1, high, lanes)
        self._pairs[lanes, register] = (value, low, high)

    def set_mask(self, register: int, part: Any) -> None:
        self.uses_lanes = True
        self._masks[register] = part
        if (False, register) not in self._written:
            self._written.append((False, register))

    def finish(self) -> None:
        """Store what was written, after everything has been read."""
        b = self.emit.builder
        for pair in sorted({register & ~1 for lanes, register in self._written if lanes}):
            self._store_pair(pair)
        for lanes, register in self._written:
            if lanes:
                continue
            if register in self._masks and (False, register) not in self._words:
                part = self._masks[register]
                b.store(part, self._mask_place(register, part.type), align=1)
            else:
                if self.uses_lanes and self.emit.width < LANES:
                    raise NotCompilable("a scalar result of a part of the lanes")
                b.store(self._words[False, register], self._scalar_place(b, register, _I32), align=4)
        if self.scc_value is not self._scc_loaded:
            place = b.gep(self.wave, [ir.Constant(_I64, record.SCC)])
            b.store(b.zext(self.scc_value, _I8), place)

    def _store_pair(self, pair: int) -> None:
        b, width = self.emit.builder, self.emit.width
        pointer, old, _ = self._row(pair)
        joined = self._pairs.get((True, pair))
        low, high = self._words.get((True, pair)), self._words.get((True, pair + 1))
        if joined is not None and joined[1] is low and joined[2] is high:
            b.store(b.bitcast(joined[0], old.type), pointer, align=4)
            return
        if (True, pair) in self._written and (True, pair + 1) in self._written:
            picks = [x for i in range(width) for x in (i, width + i)]
            b.store(b.shuffle_vector(low, high, self._indices(picks)), pointer, align=4)
            return
        # Only the written half is touched: the other one may be the register of another operand.
        upper = (True, pair) not in self._written
        doubled = self._pick(high if upper else low, [i >> 1 for i in range(2 * width)])
        lanes = ir.Constant(ir.VectorType(_I1, 2 * width), [i % 2 == upper for i in range(2 * width)])
        kind = ir.FunctionType(ir.VoidType(), [doubled.type, pointer.type, _I32, lanes.type])
        name = f"llvm.masked.store.v{2 * width}i32.p0v{2 * width}i32"
        module = self.emit.module
        store = module.globals.get(name) or ir.Function(module, kind, name)
        b.call(store, [doubled, pointer, ir.Constant(_I32, 4), lanes])

    def _indices(self, elements: list[int]) -> Any:
        return ir.Constant(ir.VectorType(_I32, len(elements)), elements)
