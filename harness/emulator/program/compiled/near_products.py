"""Matrix products whose elements are near 1: exact float32 products, and sums in 32-bit integers.

The arithmetic is that of ``native.mfma.fused_sum``, bit for bit, for elements that are 0 or have exponents from
``LOW`` to ``HIGH`` (any finite f16). Then each product of two elements and each power of two below is a normal float32.
In units of u = 2**(top - 24), where top is the greatest exponent of a group's products:

- A product, truncated toward zero, is ``int(a * b * 2**(24 - top))``; eight of them sum to less than 2**29. The
  elements of A are multiplied by 2**-``_SCALED``, so that 24 - top + ``_SCALED``, the *shift*, is from 1 to 126 and can
  be added to the exponent of a product as an integer. A product of 0 then becomes 1 / 2 at most, which is truncated.
- C is an integer in units of U: u, or 2**29 below C's leading one if that is greater, so that an int32 holds C and the
  sum. In units of u nothing is lost, and the conversion of an int32 to float32 rounds to nearest even.
- Where U is greater than u, C is a multiple of 2**6 U. The sum is rounded down at U / 4, as step 3 of ``mfma`` has it,
  and its last two bits only decide a tie: they become one bit of the integer that is rounded.

A group without products (zeros only) has the top ``LEAST``. An addend that is not zero must then be at least
2**``LEAST``, and so where a top reaches ``GREATEST``: otherwise C * 2**(24 - top) may lose bits.

Rows 2 i and 2 i + 1 of D are the two registers of a pair: their elements take turns in memory. A host vector is 8
columns of both, as in memory; rows of A and columns of B are arranged to fit. The exponents of 64 products are added
and compared at once, in bytes. Each step of the additions to C is emitted for all vectors of two rows before the next
one: a host waits for its results less often.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir

from harness.emulator.native import record
from harness.emulator.program.compiled import objects
from harness.emulator.program.compiled.vectors import COLUMNS, F32, I8, I32, I64, Product, VectorCode

LOW, HIGH = -38, 24
"""Exponents of elements."""
LEAST = -77
"""Top of a group of zeros, below those of products. The sum is 0, and keeps all bits of an addend of this exponent or
more."""
GREATEST = 25
"""Least top of which 2**(24 - top) makes a denormal addend zero."""
_SCALED = 25
_BIAS = 127 - _SCALED
"""The biased exponent of 2**(24 - top) less the shift."""
_ROOM = 29
"""Bits of C below its leading one, as an integer in units of U."""
_ZERO = -128
"""Exponent of a zero: below ``LEAST`` when the greatest one is added."""
_EXPONENT = 0xFF << 23
_REST = 3
"""The bits of a sum in units of U / 4 that are below U."""
_DOWN = 9
"""The rounding of ``cvtps2dq``: down, without exceptions."""
_FLOOR = "floor"
"""LLVM's function that rounds down, for hosts without this instruction."""
_BYTES = 64
_HALF = COLUMNS // 2
"""Columns in a host vector, of two rows."""


def converts_down() -> bool:
    """Return whether one instruction of the host rounds down and converts to int32."""
    return bool(objects.host().features.get("avx512f", False))


class NearProducts:
    """Emits the code for one form."""

    def __init__(self, code: VectorCode, form: Product) -> None:
        self.code, self.form = code, form
        self.blocks, self.rows, self.columns, self.depth = form.shape
        self.bits, self.exponent = form.element
        self.bias = (1 << (self.exponent - 1)) - 1
        self.half = self.exponent == 5
        self.pairs = self.blocks * self.rows // 2
        (self.a_powers, a_near), (self.b_powers, b_near) = (self._exponents(i, form.maps[i - 1]) for i in (1, 2))
        self.near = code.b.and_(a_near, b_near)

    # -- operands ----------------------------------------------------------------------------------------------------

    def _exponents(self, operand: int, at: np.ndarray) -> tuple[list[Any], Any]:
        """Return the exponents of an operand's registers as vectors of bytes, and whether all elements are near 1."""
        code, b = self.code, self.code.b
        lanes = 512 // self.bits
        kind = ir.VectorType(ir.IntType(self.bits), lanes)

        def all_(number: int) -> Any:
            return ir.Constant(kind, [number & ((1 << self.bits) - 1)] * lanes)

        low, high = all_(-1), all_(0)
        powers = []
        for word in self._words(operand, int(at[:, 0].max())):
            if self.bits == 32:
                word = b.and_(word, all_(~0x1FFF))
            doubled = b.shl(word, all_(1))  # without the sign
            field = b.lshr(doubled, all_(self.bits - self.exponent))
            if self.half:
                field = self._umax(field, all_(1))  # denormals are at the least exponent
            power = b.trunc(b.sub(field, all_(self.bias)), ir.VectorType(I8, lanes))
            zero = b.icmp_unsigned("==", doubled, all_(0))
            powers.append(b.select(zero, ir.Constant(power.type, [_ZERO] * lanes), power))
            high = self._umax(high, doubled)
            if not self.half:
                doubled = b.sub(doubled, all_(1))  # of zero: the greatest number
                low = b.select(b.icmp_unsigned("<", low, doubled), low, doubled)
        shift = self.bits - self.exponent
        greatest = min(self.bias + HIGH, (1 << self.exponent) - 2)
        near = b.not_(self._some(b.icmp_unsigned(">=", high, all_((greatest + 1) << shift))))
        if not self.half:
            least = ((self.bias + LOW) << shift) - 1
            near = b.and_(near, b.not_(self._some(b.icmp_unsigned("<", low, all_(least)))))
        return [code.gather(powers, np.arange(i, i + _BYTES)) for i in range(0, len(powers) * lanes, _BYTES)], near

    def _words(self, operand: int, last: int) -> list[Any]:
        """Return the registers of an operand, up to the pair of the ``last`` one, as host vectors of elements."""
        code, b = self.code, self.code.b
        base = code.row(code.parameter(operand))
        kind = ir.VectorType(ir.IntType(self.bits), 512 // self.bits)
        end = (last // 2 + 1) * record.PAIR_BYTES
        return [b.load(code.offset(base, first, kind), align=4) for first in range(0, end, _BYTES)]

    def addend(self) -> tuple[Any, Any]:
        """Return the address of C's first register and a mask of offsets from it: of a constant, 0."""
        code, b = self.code, self.code.b
        c = code.parameter(3)
        from_register = b.icmp_signed(">=", c, ir.Constant(I64, 0))
        memory = code.memory(I32, 2 * self.columns)
        constant = b.trunc(code.parameter(14), I32)
        for first in range(0, 2 * self.columns, COLUMNS):
            b.store(code.splat(constant), code.offset(memory, 4 * first, code.vector(I32)), align=64)
        row = code.row(b.select(from_register, c, ir.Constant(I64, 0)))
        pointer = b.bitcast(memory, row.type)
        return b.select(from_register, row, pointer), b.sext(from_register, I64)

    def special(self, addend: tuple[Any, Any]) -> Any:
        """Return whether C has an infinity or NaN: 0 times it is a NaN."""
        code = self.code
        kind = code.vector(F32)
        zero = ir.Constant(kind, None)
        with self._addends(addend, [zero] * 4) as (words, sums):
            code.next(*(self._fma(code.b.bitcast(w, kind), zero, s) for w, s in zip(words, sums, strict=True)))
        total = code.carried[0]
        for other in code.carried[1:]:
            total = code.b.fadd(total, other)
        return self._some(code.b.fcmp_unordered("uno", total, total))

    def tiny(self, addend: tuple[Any, Any]) -> Any:
        """Return whether C has a number below 2**``LEAST`` that is not zero."""
        code = self.code
        with self._addends(addend, [code.all(-1)]) as (words, (low,)):
            b = code.b
            for word in words:
                below = b.sub(b.shl(word, code.all(1)), code.all(1))  # of zero: the greatest number
                low = b.select(b.icmp_unsigned("<", low, below), low, below)
            code.next(low)
        return self._some(code.b.icmp_unsigned("<", code.carried[0], code.all(((127 + LEAST) << 24) - 1)))

    @contextmanager
    def _addends(self, addend: tuple[Any, Any], start: list[Any]) -> Iterator[tuple[list[Any], list[Any]]]:
        """Repeat the code of the block for all of C, four vectors at a time; see ``VectorCode.loop``."""
        code = self.code
        row, mask = addend
        at_once = 4 * COLUMNS
        with code.loop(len(self.form.maps[2]) // at_once, start) as (index, values):
            b = code.b
            places = (b.add(b.mul(index, code.i64(4 * at_once)), code.i64(at)) for at in range(0, 4 * at_once, _BYTES))
            words = [b.load(code.offset(row, b.and_(at, mask), code.vector(I32)), align=4) for at in places]
            yield words, values

    def _arrange(self) -> None:
        """Write the elements and their exponents in the order in which the rows of D need them.

        A: float32[pair of rows, k, 2], bytes [k, pair of rows, 2]; B: float32 and bytes [block, k, column, 2], each
        element twice.
        """
        a = self._places(self.form.maps[0]).reshape(self.pairs, 2, self.depth)
        b = self._places(self.form.maps[1]).repeat(2)
        self.left = self._values(1, a.transpose(0, 2, 1).ravel(), 2.0**-_SCALED)
        self.right = self._values(2, b)
        self.a_exponents = self._bytes(self.a_powers, a.transpose(2, 0, 1).ravel())
        self.b_exponents = self._bytes(self.b_powers, b)

    def _places(self, at: np.ndarray) -> np.ndarray:
        """Return the places of elements from the first register of an operand on, in elements."""
        offsets = (at[:, 0] >> 1) * record.PAIR_BYTES + at[:, 1] * 8 + (at[:, 0] & 1) * 4 + at[:, 2] // 8
        places: np.ndarray = offsets * 8 // self.bits
        return places

    def _values(self, operand: int, places: np.ndarray, factor: float = 1) -> Any:
        """Write elements times ``factor`` as float32."""
        code, b = self.code, self.code.b
        values = code.memory(F32, len(places))
        words = self._words(operand, int(self.form.maps[operand - 1][:, 0].max()))
        for first in range(0, len(places), COLUMNS):
            number = self._number(code.gather(words, places[first : first + COLUMNS]))
            if factor != 1:
                number = b.fmul(number, code.splat(ir.Constant(F32, factor)))
            b.store(number, code.offset(values, 4 * first, number.type), align=64)
        return values

    def _number(self, words: Any) -> Any:
        """Return 16 elements as float32."""
        code, b = self.code, self.code.b
        if self.half:
            return b.fpext(b.bitcast(words, code.vector(ir.HalfType())), code.vector(F32))
        if self.bits == 16:
            words = b.shl(b.zext(words, code.vector(I32)), code.all(16))
        else:
            words = b.and_(words, code.all(~0x1FFF))
        return b.bitcast(words, code.vector(F32))

    def _bytes(self, vectors: list[Any], places: np.ndarray) -> Any:
        """Write bytes of ``vectors``."""
        code, b = self.code, self.code.b
        out = code.memory(I8, len(places))
        for first in range(0, len(places), _BYTES):
            value = code.gather(vectors, places[first : first + _BYTES])
            b.store(value, code.offset(out, first, value.type), align=64)
        return out

    # -- the product -------------------------------------------------------------------------------------------------

    def emit(self, addend: tuple[Any, Any], other: Any) -> None:
        """Emit the product; branch to ``other`` if C has numbers that are too small."""
        code, b = self.code, self.code.b
        self._arrange()
        unusual, check, usual = self._emit_shifts(), code.block("check"), code.block("usual")
        b.cbranch(unusual, check, usual)
        b.position_at_end(check)
        b.cbranch(self.tiny(addend), other, usual)
        b.position_at_end(usual)
        self._emit_rows(addend)

    def _emit_shifts(self) -> Any:
        """Write the shifts of all groups, as bytes [group, pair of rows, column, 2].

        Returns whether some top is ``LEAST``, or ``GREATEST`` or more.
        """
        code, columns = self.code, self.columns
        kind = ir.VectorType(I8, _BYTES)
        at_once = _BYTES // (2 * columns)
        groups = self.depth // self.form.group
        self.shifts = code.memory(I8, groups * self.pairs * 2 * columns)

        def all_(number: int) -> Any:
            return ir.Constant(kind, [number] * _BYTES)

        with code.loop(self.pairs // at_once, [all_(127), all_(LEAST)]) as (index, (low, high)):
            b = code.b
            pair = b.mul(index, code.i64(at_once))
            b_block = b.mul(b.udiv(pair, code.i64(self.rows // 2)), code.i64(self.depth * 2 * columns))
            for group in range(groups):
                top = all_(LEAST)
                for k in range(group * self.form.group, (group + 1) * self.form.group):
                    of_a = b.add(b.shl(pair, code.i64(1)), code.i64(2 * k * self.pairs))
                    left = self._repeated(self.a_exponents, of_a, at_once)
                    of_b = b.add(b_block, code.i64(2 * k * columns))
                    right = b.load(code.offset(self.b_exponents, of_b, ir.VectorType(I8, 2 * columns)), align=32)
                    right = code.shuffle(right, np.arange(_BYTES) % (2 * columns))
                    power = code.intrinsic(f"llvm.sadd.sat.v{_BYTES}i8", kind, [left, right])
                    top = b.select(b.icmp_signed(">", top, power), top, power)
                low = b.select(b.icmp_signed("<", top, low), top, low)
                high = b.select(b.icmp_signed(">", top, high), top, high)
                to = b.add(b.mul(pair, code.i64(2 * columns)), code.i64(2 * group * self.pairs * columns))
                b.store(b.sub(all_(24 + _SCALED), top), code.offset(self.shifts, to, kind), align=64)
            code.next(low, high)
        b = code.b
        low, high = code.carried
        return self._some(b.or_(b.icmp_signed("==", low, all_(LEAST)), b.icmp_signed(">=", high, all_(GREATEST))))

    def _repeated(self, exponents: Any, at: Any, pairs: int) -> Any:
        """Return the bytes of one or two pairs of rows, each repeated for all columns."""
        code, b = self.code, self.code.b
        word = b.load(code.offset(exponents, at, ir.IntType(16 * pairs)), align=2)
        words = code.splat(word, _BYTES // (2 * pairs))
        picks = np.arange(_BYTES) // (_BYTES // pairs) * 2 + np.arange(_BYTES) % 2
        return code.shuffle(b.bitcast(words, ir.VectorType(I8, _BYTES)), picks)

    def _emit_rows(self, addend: tuple[Any, Any]) -> None:
        """Compute two rows at a time, which are in the registers of a pair."""
        code, columns, group = self.code, self.columns, self.form.group
        at = self.form.maps[2].reshape(2 * self.pairs, columns, 3)[::2, 0]
        table = code.table(f"{self.form.name}_near_at", (at[:, 0] >> 1) * record.PAIR_BYTES + at[:, 1] * 8)
        to = code.row(code.parameter(0))
        kind = code.vector(F32)
        offsets = range(0, 8 * columns, _BYTES)
        with code.loop(self.pairs) as (pair, _):
            b = code.b
            place = b.sext(b.load(b.gep(table, [code.i64(0), pair])), I64)
            of_c = b.and_(place, addend[1])
            of_b = b.mul(b.udiv(pair, code.i64(self.rows // 2)), code.i64(8 * self.depth * columns))
            values = [b.load(code.offset(addend[0], b.add(of_c, code.i64(at)), kind), align=4) for at in offsets]
            for first in range(0, self.depth, group):
                values = self._add(values, *self._totals(pair, of_b, first))
            for value, offset in zip(values, offsets, strict=True):
                b.store(value, code.offset(to, b.add(place, code.i64(offset)), kind), align=4)

    def _totals(self, pair: Any, of_b: Any, first: int) -> tuple[list[Any], list[Any]]:
        """Return the sums of the group's products from k = ``first`` on, and the shifts: of two rows, as exponents."""
        code, b, columns = self.code, self.code.b, self.columns
        kind, words = code.vector(F32), code.vector(I32)
        lefts = []
        for k in range(first, first + self.form.group):
            at = b.add(b.mul(pair, code.i64(8 * self.depth)), code.i64(8 * k))
            both = b.load(code.offset(self.left, at, I64), align=8)
            lefts.append(b.bitcast(code.splat(both, _HALF), kind))
        totals, shifts = [], []
        of_shift = 2 * columns * self.pairs * (first // self.form.group)
        for offset in range(0, 8 * columns, _BYTES):
            at = b.add(b.mul(pair, code.i64(2 * columns)), code.i64(of_shift + offset // 4))
            shift = b.load(code.offset(self.shifts, at, code.vector(I8)), align=16)
            shift = b.shl(b.zext(shift, words), code.all(23))
            total = code.all(0)
            for k, left in enumerate(lefts, first):
                at = b.add(of_b, code.i64(8 * k * columns + offset))
                right = b.load(code.offset(self.right, at, kind), align=64)
                units = b.add(b.bitcast(b.fmul(left, right), words), shift)
                total = b.add(total, b.fptosi(b.bitcast(units, kind), words))
            totals.append(total)
            shifts.append(shift)
        return totals, shifts

    def _add(self, values: list[Any], totals: list[Any], shifts: list[Any]) -> list[Any]:
        """Add the sums of a group to vectors of C, and round."""
        code, b = self.code, self.code.b
        kind, words = code.vector(F32), code.vector(I32)
        powers = [b.and_(b.bitcast(c, words), code.all(_EXPONENT)) for c in values]
        room = [b.sub(code.all(254 + _ROOM - _BIAS << 23), power) for power in powers]
        inverse = [code.min(*both) for both in zip(shifts, room, strict=True)]  # of U, less _BIAS
        steps = [b.lshr(b.sub(*both), code.all(23)) for both in zip(shifts, inverse, strict=True)]
        steps = [b.select(b.icmp_unsigned("<", step, code.all(31)), step, code.all(31)) for step in steps]
        factors = [b.bitcast(b.add(x, code.all(_BIAS << 23)), kind) for x in inverse]
        addends = [self._floor(b.fmul(*both)) for both in zip(values, factors, strict=True)]
        quarters = [b.ashr(b.shl(x, code.all(2)), step) for x, step in zip(totals, steps, strict=True)]
        rests = [b.icmp_signed("!=", b.and_(x, code.all(_REST)), code.all(0)) for x in quarters]
        sums = [b.add(b.ashr(x, code.all(2)), addend) for x, addend in zip(quarters, addends, strict=True)]
        sums = [b.select(rest, b.or_(x, code.all(1)), x) for x, rest in zip(sums, rests, strict=True)]
        units = [b.bitcast(b.sub(code.all(254 - _BIAS << 23), x), kind) for x in inverse]
        return [b.fmul(b.sitofp(x, kind), unit) for x, unit in zip(sums, units, strict=True)]

    # -- small parts -------------------------------------------------------------------------------------------------

    def _floor(self, value: Any) -> Any:
        code = self.code
        if converts_down():
            words = code.vector(I32)
            all_lanes = ir.Constant(ir.IntType(16), -1)
            arguments = [value, ir.Constant(words, None), all_lanes, ir.Constant(I32, _DOWN)]
            return code.intrinsic("llvm.x86.avx512.mask.cvtps2dq.512", words, arguments)
        floor = code.intrinsic(f"llvm.{_FLOOR}.v{COLUMNS}f32", code.vector(F32), [value])
        return code.b.fptosi(floor, code.vector(I32))

    def _fma(self, x: Any, y: Any, z: Any) -> Any:
        return self.code.intrinsic(f"llvm.fma.v{COLUMNS}f32", z.type, [x, y, z])

    def _umax(self, x: Any, y: Any) -> Any:
        b = self.code.b
        return b.select(b.icmp_unsigned(">", x, y), x, y)

    def _some(self, flags: Any) -> Any:
        b = self.code.b
        bits = ir.IntType(flags.type.count)
        return b.icmp_unsigned("!=", b.bitcast(flags, bits), ir.Constant(bits, 0))
