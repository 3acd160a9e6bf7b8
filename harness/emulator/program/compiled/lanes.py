"""The vocabulary of code for accesses of 64 lanes: registers, the fields of a record, loops over lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from harness.emulator.native import record
from harness.emulator.wavefront.state import LANES

_I1, _I8, _I32, _I64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))
_POINTER = _I8.as_pointer()
FUNCTION = ir.FunctionType(_I64, [_POINTER, _I64.as_pointer()])
_UNROLLED = 8
"""Lanes in one round of a loop over lanes."""


def passes(kind: str, parts: int, elements: int) -> list[list[tuple[int, int]]]:
    """Return the (part, element) that each loop over the lanes accesses.

    Where lanes store to the same bytes, the last store decides, as in the general function: it stores the parts to the
    data share one after the other, and to global memory the elements.
    """
    every = [(part, i) for part in range(parts) for i in range(elements)]
    if kind == "store":
        return [[one] for one in every]
    if kind == "write":
        return [[one for one in every if one[0] == part] for part in range(parts)]
    return [every]


class LaneCode:
    """The code of a form's function. ``b``: its builder; ``slow``: a block that calls the general function instead."""

    def __init__(self, function: ir.Function) -> None:
        self.function, self.module = function, function.module
        self.wave, self.places = function.args
        self.b = ir.IRBuilder(function.append_basic_block("entry"))
        self.slow = function.append_basic_block("slow")
        slow = ir.IRBuilder(self.slow)
        general = slow.load(slow.gep(self.places, [self._i64(record.GENERAL)]))
        general = slow.inttoptr(general, FUNCTION.as_pointer())
        slow.ret(slow.call(general, [self.wave, self.places]))
        self.lanes = ir.Constant(ir.VectorType(_I64, LANES), list(range(LANES)))

    # -- lane by lane ------------------------------------------------------------------------------------------------

    def _lanes(
        self, kind: str, size: int, signed: int, addresses: Callable[[Any], list[Any]], registers: list[Any]
    ) -> None:
        """Emit loops over all lanes. ``addresses`` returns those of a lane, one for each of the ``registers``."""
        b = self.b
        _, count = self._elements(size)
        width = _I64 if size >= 8 else _I32
        rows = [
            [b.bitcast(self._row(b.add(register, self._i64(2 * i)), width, 1), _POINTER) for i in range(count)]
            for register in registers
        ]
        for accesses in passes(kind, len(registers), count):
            before = b.block
            loop, done = self.function.append_basic_block("lanes"), self.function.append_basic_block("done")
            b.branch(loop)
            b.position_at_end(loop)
            first = b.phi(_I64)
            first.add_incoming(self._i64(0), before)
            for lane in range(_UNROLLED):
                index = b.add(first, self._i64(lane))
                own = addresses(index)
                for part, i in accesses:
                    place = b.add(own[part], self._i64(8 * i))
                    self._element(kind, size, signed, place, b.gep(rows[part][i], [b.shl(index, self._i64(3))]))
            following = b.add(first, self._i64(_UNROLLED))
            first.add_incoming(following, loop)
            b.cbranch(b.icmp_unsigned("<", following, self._i64(LANES)), loop, done)
            b.position_at_end(done)
        b.ret(self._i64(0))

    def _element(self, kind: str, size: int, signed: int, address: Any, row: Any) -> None:
        """Emit the access of one lane to an element; ``row`` points to its register."""
        b = self.b
        element, _ = self._elements(size)
        place = b.inttoptr(address, element.as_pointer())
        register = b.bitcast(row, (_I64 if size >= 8 else _I32).as_pointer())
        if kind in ("load", "read"):
            value = b.load(place, align=1)
            if size < 4:
                value = (b.sext if signed else b.zext)(value, _I32)
            b.store(value, register, align=4)
        else:
            value = b.load(register, align=4)
            b.store(b.trunc(value, element) if size < 4 else value, place, align=1)

    def _elements(self, size: int) -> tuple[ir.Type, int]:
        """Return the type of an element that is accessed at once, and their number in a lane."""
        return (ir.IntType(8 * size), 1) if size <= 8 else (_I64, size // 8)

    # -- small parts -------------------------------------------------------------------------------------------------

    def _i64(self, number: int) -> Any:
        return ir.Constant(_I64, number)

    def _parameter(self, index: int) -> Any:
        return self.b.load(self.b.gep(self.places, [self._i64(index)]))

    def _field(self, offset: int) -> Any:
        return self.b.load(self.b.bitcast(self.b.gep(self.wave, [self._i64(offset)]), _I64.as_pointer()))

    def _place(self, address: Any, index: Any) -> Any:
        return self.b.gep(self.b.inttoptr(address, _I64.as_pointer()), [index])

    def _word(self, address: Any, index: Any) -> Any:
        return self.b.load(self._place(address, self._i64(index) if isinstance(index, int) else index))

    def _exec(self) -> Any:
        return self.b.bitcast(self._field(record.EXEC_BYTES), ir.VectorType(_I1, LANES))

    def _row(self, register: Any, element: ir.Type, count: int) -> Any:
        """Return a pointer to a register, or to its pair: ``count`` elements."""
        b = self.b
        at = b.mul(b.lshr(register, self._i64(1)), self._i64(record.PAIR_BYTES))
        at = b.add(at, b.mul(b.and_(register, self._i64(1)), self._i64(4)))
        at = b.add(at, self._i64(record.VECTORS))
        return b.bitcast(b.gep(self.wave, [at]), ir.VectorType(element, count).as_pointer())

    def _register(self, register: Any) -> Any:
        row = self.b.load(self._row(register, _I32, 2 * LANES), align=4)
        return self._shuffle(row, range(0, 2 * LANES, 2))

    def _pair(self, register: Any) -> Any:
        return self.b.load(self._row(register, _I64, LANES), align=4)

    def _shuffle(self, vector: Any, picks: Sequence[int]) -> Any:
        elements = ir.Constant(ir.VectorType(_I32, len(picks)), list(picks))
        return self.b.shuffle_vector(vector, ir.Constant(vector.type, None), elements)

    def _splat(self, value: Any) -> Any:
        if isinstance(value, ir.Constant):
            return ir.Constant(ir.VectorType(value.type, LANES), [value.constant] * LANES)
        zeros = ir.Constant(ir.VectorType(value.type, LANES), None)
        first = self.b.insert_element(zeros, value, ir.Constant(_I32, 0))
        return self.b.shuffle_vector(first, zeros, ir.Constant(ir.VectorType(_I32, LANES), None))

    def _slow_if(self, condition: Any) -> None:
        usual = self.function.append_basic_block("usual")
        self.b.cbranch(condition, self.slow, usual)
        self.b.position_at_end(usual)

    def _neighbours(self, word: Any, address: Any, lowest: Any, size: int) -> Any:
        """Return whether all lanes are active and access successive elements."""
        b = self.b
        steps = ir.Constant(ir.VectorType(_I64, LANES), [size * i for i in range(LANES)])
        differ = b.icmp_unsigned("!=", address, b.add(self._splat(lowest), steps))
        same = b.icmp_unsigned("==", b.bitcast(differ, _I64), self._i64(0))
        return b.and_(same, b.icmp_unsigned("==", word, self._i64(-1)))

    def _reduce(self, name: str, vector: Any) -> Any:
        return self._intrinsic(f"llvm.vector.reduce.{name}.v{LANES}i64", _I64, [vector])

    def _intrinsic(self, name: str, result: ir.Type, arguments: list[Any]) -> Any:
        function = self.module.globals.get(name)
        if function is None:
            function = ir.Function(self.module, ir.FunctionType(result, [a.type for a in arguments]), name)
        return self.b.call(function, arguments)

    def _masked_store(self, value: Any, pointer: Any, mask: Any, align: int) -> None:
        kind = value.type
        name = f"llvm.masked.store.v{kind.count}i{kind.element.width}.p0v{kind.count}i{kind.element.width}"
        self._intrinsic(name, ir.VoidType(), [value, pointer, ir.Constant(_I32, align), mask])
