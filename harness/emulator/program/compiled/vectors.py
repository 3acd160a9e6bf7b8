"""The vocabulary of code on vectors of 16 elements: registers, tables, loops."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
from llvmlite import ir

from harness.emulator.native import record

I1, I8, I32, I64 = (ir.IntType(bits) for bits in (1, 8, 32, 64))
F32, F64 = ir.FloatType(), ir.DoubleType()
FUNCTION = ir.FunctionType(I64, [I8.as_pointer(), I64.as_pointer()])
"""Of a form: it takes the record of a wavefront and the parameters of an operation."""
COLUMNS = 16


class Product(Protocol):
    """Operands of a form.

    ``element``: bits of an element and of its exponent; ``group``: number of k that are added before rounding;
    ``shape``: blocks, rows, columns and depth; ``maps``: places of A, B and D, see ``native.mfma``.
    """

    element: tuple[int, int]
    group: int
    shape: tuple[int, ...]
    maps: list[np.ndarray]
    name: str


class VectorCode:
    """The code of a form's function. ``b``: its builder; ``slow``: a block that calls the general function instead."""

    def __init__(self, function: ir.Function) -> None:
        self.function, self.module = function, function.module
        self.wave, self.places = function.args
        self.b = ir.IRBuilder(function.append_basic_block("entry"))
        self.slow = self.block("slow")
        slow = ir.IRBuilder(self.slow)
        general = slow.load(slow.gep(self.places, [self.i64(record.GENERAL)]))
        slow.ret(slow.call(slow.inttoptr(general, FUNCTION.as_pointer()), [self.wave, self.places]))

    # -- constants and vectors ---------------------------------------------------------------------------------------

    def i64(self, number: int) -> Any:
        return ir.Constant(I64, number)

    def vector(self, element: ir.Type) -> ir.VectorType:
        return ir.VectorType(element, COLUMNS)

    def all(self, number: int) -> Any:
        """Return a vector of one int32."""
        return ir.Constant(self.vector(I32), [number] * COLUMNS)

    def splat(self, value: Any, count: int = COLUMNS) -> Any:
        kind = ir.VectorType(value.type, count)
        if isinstance(value, ir.Constant):
            return ir.Constant(kind, [value.constant] * count)
        zeros = ir.Constant(kind, None)
        first = self.b.insert_element(zeros, value, ir.Constant(I32, 0))
        return self.b.shuffle_vector(first, zeros, ir.Constant(ir.VectorType(I32, count), None))

    def shuffle(self, vector: Any, picks: Sequence[int] | np.ndarray) -> Any:
        elements = ir.Constant(ir.VectorType(I32, len(picks)), [int(i) for i in picks])
        return self.b.shuffle_vector(vector, ir.Constant(vector.type, None), elements)

    def gather(self, vectors: Sequence[Any], picks: np.ndarray) -> Any:
        """Return elements of ``vectors``, which have one length, counted through all of them."""
        length = vectors[0].type.count
        sources = np.unique(picks // length)
        if len(sources) > 2:
            half = len(picks) // 2
            parts = [self.gather(vectors, part) for part in (picks[:half], picks[half:])]
            return self.b.shuffle_vector(*parts, ir.Constant(ir.VectorType(I32, len(picks)), list(range(len(picks)))))
        if len(sources) == 1:
            return self.shuffle(vectors[sources[0]], picks % length)
        elements = [int(i) for i in picks % length + length * (picks // length == sources[1])]
        one, other = (vectors[source] for source in sources)
        return self.b.shuffle_vector(one, other, ir.Constant(ir.VectorType(I32, len(picks)), elements))

    def max(self, x: Any, y: Any) -> Any:
        return self.b.select(self.b.icmp_signed(">", x, y), x, y)

    def min(self, x: Any, y: Any) -> Any:
        return self.b.select(self.b.icmp_signed("<", x, y), x, y)

    def reduce(self, name: str, vector: Any) -> Any:
        return self.intrinsic(f"llvm.vector.reduce.{name}.v{COLUMNS}i32", I32, [vector])

    def intrinsic(self, name: str, result: ir.Type, arguments: list[Any]) -> Any:
        function = self.module.globals.get(name)
        if function is None:
            function = ir.Function(self.module, ir.FunctionType(result, [a.type for a in arguments]), name)
        return self.b.call(function, arguments)

    # -- memory ------------------------------------------------------------------------------------------------------

    def parameter(self, index: int) -> Any:
        return self.b.load(self.b.gep(self.places, [self.i64(index)]))

    def row(self, register: Any) -> Any:
        """Return the address of an even register."""
        b = self.b
        at = b.mul(b.lshr(register, self.i64(1)), self.i64(record.PAIR_BYTES))
        return b.gep(self.wave, [b.add(at, self.i64(record.VECTORS))])

    def memory(self, element: ir.Type, count: int) -> Any:
        """Return the address of memory for the time of the call, aligned to 64 bytes."""
        with self.b.goto_entry_block():
            memory = self.b.alloca(ir.ArrayType(element, count))
            memory.align = 64
            return self.b.bitcast(memory, I8.as_pointer())

    def offset(self, base: Any, offset: Any, kind: ir.Type) -> Any:
        """Return a pointer to ``kind``, ``offset`` bytes after ``base``."""
        at = self.i64(offset) if isinstance(offset, int) else offset
        return self.b.bitcast(self.b.gep(base, [at]), kind.as_pointer())

    def table(self, name: str, numbers: np.ndarray) -> Any:
        """Return the address of int32 constants."""
        kind = ir.ArrayType(I32, len(numbers))
        table = ir.GlobalVariable(self.module, kind, name)
        table.global_constant, table.linkage, table.align = True, "internal", 64
        table.initializer = ir.Constant(kind, [int(n) for n in numbers])
        return table

    # -- control flow ------------------------------------------------------------------------------------------------

    def block(self, name: str) -> ir.Block:
        return self.function.append_basic_block(name)

    def slow_if(self, condition: Any) -> None:
        usual = self.block("usual")
        self.b.cbranch(condition, self.slow, usual)
        self.b.position_at_end(usual)

    @contextmanager
    def loop(self, count: int, values: Sequence[Any] = ()) -> Iterator[tuple[Any, list[Any]]]:
        """Repeat the code of the block for an int64 from 0 to ``count`` - 1; it gets that number and the ``values``.

        The block passes values to the next round by ``next``; after the loop, ``carried`` has the last ones.
        """
        b = self.b
        loop, done = self.block("loop"), self.block("done")
        before = b.block
        b.branch(loop)
        b.position_at_end(loop)
        phis = [b.phi(kind) for kind in (I64, *(value.type for value in values))]
        for phi, first in zip(phis, (self.i64(0), *values), strict=True):
            phi.add_incoming(first, before)
        self.carried: list[Any] = []
        yield phis[0], phis[1:]
        following = b.add(phis[0], self.i64(1))
        for phi, value in zip(phis, (following, *self.carried), strict=True):
            phi.add_incoming(value, b.block)
        b.cbranch(b.icmp_unsigned("<", following, self.i64(count)), loop, done)
        b.position_at_end(done)

    def next(self, *values: Any) -> None:
        self.carried = list(values)
