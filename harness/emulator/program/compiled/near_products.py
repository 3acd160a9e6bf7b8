"""Matrix products whose elements are near 1: exact float32 products, and sums in 32-bit integers.

The arithmetic is that of ``native.mfma.fused_sum``, bit for bit, for elements that are 0 or between 2**-``LIMIT`` and
2**``LIMIT`` + 1 (any finite f16), and addends that are 0 or at least 2**``LEAST``. Then each product of two elements
and each power of two below is a normal float32. In units of u = 2**(top - 24), where top is the greatest exponent of
a group's products:

- A product, truncated toward zero, is ``int(a * b * 2**(24 - top))``; eight of them sum to less than 2**29.
- While C is below 1.5 * 2**30 u, the rounded result is ``float(sum + floor(C / u)) * u``: steps 2 and 3 of ``mfma``
  align C and the sum without losing other bits, and the conversion of an int32 rounds to nearest even.
- A greater C is an integer multiple of 2**6 in units of U, 2**29 below C's leading one. The sum is rounded down at
  U / 4, as step 3 has it, and its last two bits only decide a tie: they become one bit of the integer that is rounded.

The exponents of 64 products are added and compared at once, in bytes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from harness.emulator.native import record
from harness.emulator.program.compiled.vectors import COLUMNS, F32, I8, I32, I64, Product, VectorCode

LIMIT = 38
"""Greatest exponent, up or down, of elements."""
LEAST = -82
"""Least exponent of a sum and of an addend that is not zero. Products are multiples of 2**-100, and what is left of
them next to a greater addend of 2**-106: a sum of no products keeps all bits of the addend, at this exponent as at
float32's least one."""
_ZERO = -128
"""Exponent of a zero: below ``LEAST`` when the greatest one is added."""
_BYTES = 64
_EXPONENT = 0xFF << 23
_BEYOND = (127 + 30) << 23 | 1 << 22
"""1.5 * 2**30 as float32: the least addend that may be too large for an int32 with a sum of 2**29 units."""
_REST = 3
"""The bits of a sum in units of U / 4 that are below U."""


class NearProducts:
    """Emits the code for one form. ``stored``: see ``products.stored_order``."""

    def __init__(self, code: VectorCode, form: Product, stored: tuple[np.ndarray, int, list[int]]) -> None:
        self.code, self.form = code, form
        self.order, self.a_step, self.a_of_k = stored
        self.blocks, self.rows, self.columns, self.depth = form.shape
        self.bits, self.exponent = form.element
        self.bias = (1 << (self.exponent - 1)) - 1
        self.half = self.exponent == 5
        (self.a_raw, a_near), (self.b_raw, b_near) = (self._exponents(i, form.maps[i - 1]) for i in (1, 2))
        self.near = code.b.and_(a_near, b_near)

    # -- operands ----------------------------------------------------------------------------------------------------

    def _exponents(self, operand: int, at: np.ndarray) -> tuple[Any, Any]:
        """Write the exponents of an operand's registers as bytes, in the order of the registers.

        Returns the bytes, and whether all elements are near 1.
        """
        code, b = self.code, self.code.b
        count = (int(at[:, 0].max()) // 2 + 1) * record.PAIR_BYTES * 8 // self.bits
        raw = code.memory(I8, count + _BYTES)
        base = code.row(code.parameter(operand))
        lanes = 512 // self.bits
        element = ir.IntType(self.bits)
        kind = ir.VectorType(element, lanes)

        def all_(number: int) -> Any:
            return ir.Constant(kind, [number & ((1 << self.bits) - 1)] * lanes)

        low, high = all_(-1), all_(0)
        for first in range(0, count, lanes):
            word = b.load(code.offset(base, first * self.bits // 8, kind), align=4)
            if self.bits == 32:
                word = b.and_(word, all_(~0x1FFF))
            doubled = b.shl(word, all_(1))  # without the sign
            field = b.lshr(doubled, all_(self.bits - self.exponent))
            if self.half:
                field = self._umax(field, all_(1))  # denormals are at the least exponent
            power = b.trunc(b.sub(field, all_(self.bias)), ir.VectorType(I8, lanes))
            zero = b.icmp_unsigned("==", doubled, all_(0))
            power = b.select(zero, ir.Constant(power.type, [_ZERO] * lanes), power)
            b.store(power, code.offset(raw, first, power.type), align=16)
            high = self._umax(high, doubled)
            if not self.half:
                doubled = b.sub(doubled, all_(1))  # of zero: the greatest number
                low = b.select(b.icmp_unsigned("<", low, doubled), low, doubled)
        shift = self.bits - self.exponent
        greatest = min(self.bias + LIMIT, (1 << self.exponent) - 2)
        near = b.not_(self._some(b.icmp_unsigned(">=", high, all_((greatest + 1) << shift))))
        if not self.half:
            least = ((self.bias - LIMIT) << shift) - 1
            near = b.and_(near, b.not_(self._some(b.icmp_unsigned("<", low, all_(least)))))
        return raw, near

    def check(self, addend: tuple[Any, Any]) -> tuple[Any, Any]:
        """Return whether C has an infinity or NaN, and whether it has a number below 2**``LEAST`` that is not zero."""
        code, b = self.code, self.code.b
        row, mask = addend
        at_once = 4 * COLUMNS
        start = [code.all(-1), code.all(0)]
        with code.loop(len(self.form.maps[2]) // at_once, start) as (index, (low, high)):
            for first in range(0, at_once, COLUMNS):
                at = b.and_(b.add(b.mul(index, code.i64(4 * at_once)), code.i64(4 * first)), mask)
                word = b.load(code.offset(row, at, code.vector(I32)), align=4)
                doubled = b.shl(word, code.all(1))
                high = self._umax(high, doubled)
                doubled = b.sub(doubled, code.all(1))
                low = b.select(b.icmp_unsigned("<", low, doubled), low, doubled)
            code.next(low, high)
        low, high = code.carried
        special = self._some(b.icmp_unsigned(">=", high, code.all(0xFF << 24)))
        tiny = self._some(b.icmp_unsigned("<", low, code.all(((127 + LEAST) << 24) - 1)))
        return special, tiny

    def addend(self) -> tuple[Any, Any]:
        """Return the address of C's first register and a mask of offsets from it: of a constant, 0."""
        code, b = self.code, self.code.b
        c = code.parameter(3)
        from_register = b.icmp_signed(">=", c, ir.Constant(I64, 0))
        memory = code.memory(I32, 2 * max(COLUMNS, self.columns))
        constant = b.trunc(code.parameter(14), I32)
        for first in range(0, 2 * self.columns, COLUMNS):
            b.store(code.splat(constant), code.offset(memory, 4 * first, code.vector(I32)), align=64)
        row = code.row(b.select(from_register, c, ir.Constant(I64, 0)))
        pointer = b.bitcast(memory, row.type)
        return b.select(from_register, row, pointer), b.sext(from_register, I64)

    def _values(self, operand: int, places: np.ndarray) -> Any:
        """Write elements as float32, in the order of ``places``, which are counted in elements of the registers."""
        code, b = self.code, self.code.b
        values = code.memory(F32, len(places))
        base = code.row(code.parameter(operand))
        element = ir.IntType(self.bits)
        window = 1024 // self.bits
        last = int(places.max()) + 1
        loaded: dict[int, Any] = {}
        for first in range(0, len(places), COLUMNS):
            picks = places[first : first + COLUMNS]
            start = int(picks.min())
            if (picks == start + np.arange(COLUMNS)).all():
                kind = ir.VectorType(element, COLUMNS)
                words = b.load(code.offset(base, start * self.bits // 8, kind), align=4)
            else:
                start = max(0, min(start, last - window))
                if start not in loaded:
                    kind = ir.VectorType(element, window)
                    loaded[start] = b.load(code.offset(base, start * self.bits // 8, kind), align=4)
                words = code.shuffle(loaded[start], picks - start)
            b.store(self._number(words), code.offset(values, 4 * first, code.vector(F32)), align=64)
        return values

    def _number(self, words: Any) -> Any:
        code, b = self.code, self.code.b
        if self.half:
            return b.fpext(b.bitcast(words, code.vector(ir.HalfType())), code.vector(F32))
        if self.bits == 16:
            words = b.shl(b.zext(words, code.vector(I32)), code.all(16))
        else:
            words = b.and_(words, code.all(~0x1FFF))
        return b.bitcast(words, code.vector(F32))

    def _arranged(self, raw: Any, places: np.ndarray) -> Any:
        """Write bytes of ``raw`` in the order of ``places``."""
        code, b = self.code, self.code.b
        if (places == np.arange(len(places))).all():
            return raw
        out = code.memory(I8, len(places) + _BYTES)
        window = 2 * _BYTES
        at_once = next(n for n in (64, 32, 16) if (np.ptp(places.reshape(-1, n), axis=1) < window).all())
        loaded: dict[int, Any] = {}
        for first in range(0, len(places), at_once):
            picks = places[first : first + at_once]
            start = int(picks.min())
            if start not in loaded:
                loaded[start] = b.load(code.offset(raw, start, ir.VectorType(I8, window)), align=1)
            value = code.shuffle(loaded[start], picks - start)
            b.store(value, code.offset(out, first, value.type), align=16)
        return out

    # -- the product -------------------------------------------------------------------------------------------------

    def emit(self, a_places: np.ndarray, b_places: np.ndarray, addend: tuple[Any, Any]) -> None:
        self.left, self.right = self._values(1, a_places), self._values(2, b_places)
        self._emit_tops(self._arranged(self.a_raw, a_places), self._arranged(self.b_raw, b_places))
        self._emit_rows(addend)

    def _emit_tops(self, a: Any, b_exponents: Any) -> None:
        """Write the greatest exponent of each group of products, as bytes [group, row, column]."""
        code, columns = self.code, self.columns
        rows = _BYTES // columns
        elements = self.blocks * self.rows * columns
        groups = self.depth // self.form.group
        self.tops = code.memory(I8, groups * elements)
        span = 1 << ((rows - 1) * self.a_step).bit_length()
        picks = np.arange(_BYTES) // columns * self.a_step
        with code.loop(self.blocks * self.rows // rows) as (index, _):
            b = code.b
            row = b.mul(index, code.i64(rows))
            b_block = b.mul(b.udiv(row, code.i64(self.rows)), code.i64(self.depth * columns))
            a_row = b.mul(row, code.i64(self.a_step))
            for group in range(groups):
                top = ir.Constant(ir.VectorType(I8, _BYTES), [LEAST] * _BYTES)
                for k in range(group * self.form.group, (group + 1) * self.form.group):
                    left = b.load(
                        code.offset(a, b.add(a_row, code.i64(self.a_of_k[k])), ir.VectorType(I8, span)), align=1
                    )
                    at = b.add(b_block, code.i64(k * columns))
                    right = b.load(code.offset(b_exponents, at, ir.VectorType(I8, columns)), align=16)
                    power = code.intrinsic(
                        f"llvm.sadd.sat.v{_BYTES}i8", top.type,
                        [code.shuffle(left, picks), code.shuffle(right, np.arange(_BYTES) % columns)],
                    )  # fmt: skip
                    top = b.select(b.icmp_signed(">", top, power), top, power)
                to = b.add(b.mul(row, code.i64(columns)), code.i64(group * elements))
                b.store(top, code.offset(self.tops, to, top.type), align=64)

    def _emit_rows(self, addend: tuple[Any, Any]) -> None:
        """Compute two rows at a time, which are in the registers of a pair."""
        code, columns = self.code, self.columns
        count = self.blocks * self.rows
        at = self.form.maps[2].reshape(count, columns, 3)[::2, 0]
        table = code.table(f"{self.form.name}_near_at", (at[:, 0] >> 1) * record.PAIR_BYTES + at[:, 1] * 8)
        to = code.row(code.parameter(0))
        wide = ir.VectorType(I32, 2 * COLUMNS)
        with code.loop(count // 2) as (index, _):
            b = code.b
            place = b.sext(b.load(b.gep(table, [code.i64(0), index])), I64)
            row = b.shl(index, code.i64(1))
            b_block = b.mul(b.udiv(row, code.i64(self.rows)), code.i64(self.depth * columns))
            for column in range(0, columns, COLUMNS):
                here = b.add(place, code.i64(8 * column))
                from_ = b.and_(place, addend[1])
                from_ = b.add(from_, code.i64(8 * column))
                pair = b.load(code.offset(addend[0], from_, wide), align=4)
                both = [code.shuffle(pair, np.arange(half, 2 * COLUMNS, 2)) for half in (0, 1)]
                values = [b.bitcast(word, code.vector(F32)) for word in both]
                for group in range(self.depth // self.form.group):
                    totals = self._totals(row, b_block, column, group)
                    values = [self._add(c, *total) for c, total in zip(values, totals, strict=True)]
                    b = code.b
                words = [b.bitcast(value, code.vector(I32)) for value in values]
                picks = [x for i in range(COLUMNS) for x in (i, COLUMNS + i)]
                b.store(b.shuffle_vector(*words, ir.Constant(wide, picks)), code.offset(to, here, wide), align=4)

    def _totals(self, row: Any, b_block: Any, column: int, group: int) -> list[tuple[Any, Any]]:
        """Return the sum of a group's products, and the scale 2**(24 - top), for two rows."""
        code, b, columns = self.code, self.code.b, self.columns
        scales = []
        first = group * self.blocks * self.rows * columns + column
        for i in (0, 1):
            at = b.add(b.mul(row, code.i64(columns)), code.i64(first + i * columns))
            top = b.sext(b.load(code.offset(self.tops, at, code.vector(I8)), align=16), code.vector(I32))
            scale = b.shl(b.sub(code.all(24 + 127), top), code.all(23))
            scales.append(b.bitcast(scale, code.vector(F32)))
        totals = [code.all(0), code.all(0)]
        for k in range(group * self.form.group, (group + 1) * self.form.group):
            of_b = b.shl(b.add(b_block, code.i64(k * columns + column)), code.i64(2))
            right = b.load(code.offset(self.right, of_b, code.vector(F32)), align=64)
            for i in (0, 1):
                of_a = b.add(b.mul(row, code.i64(self.a_step)), code.i64(i * self.a_step + self.a_of_k[k]))
                left = code.splat(b.load(code.offset(self.left, b.shl(of_a, code.i64(2)), F32)))
                product = b.fmul(b.fmul(left, right), scales[i])
                totals[i] = b.add(totals[i], b.fptosi(product, code.vector(I32)))
        return list(zip(totals, scales, strict=True))

    def _add(self, c: Any, total: Any, scale: Any) -> Any:
        """Add a group's sum to C and round: see the module's description."""
        code = self.code
        b = code.b
        vector = code.vector(F32)
        scaled = b.fmul(c, scale)
        size = b.and_(b.bitcast(scaled, code.vector(I32)), code.all(0x7FFFFFFF))
        beyond = b.icmp_signed(">=", size, code.all(_BEYOND))
        addend = self._floor(scaled)
        unit = b.bitcast(b.sub(code.all(254 << 23), b.bitcast(scale, code.vector(I32))), vector)
        near = b.fmul(b.sitofp(b.add(total, addend), vector), unit)
        before = b.block
        large, after = code.block("large"), code.block("added")
        b.cbranch(self._some(beyond), large, after)
        b.position_at_end(large)
        far = self._add_large(c, total, unit)
        b.branch(after)
        b.position_at_end(after)
        result = b.phi(vector)
        result.add_incoming(near, before)
        result.add_incoming(far, large)
        return result

    def _add_large(self, c: Any, total: Any, unit: Any) -> Any:
        """Add where some C is too large for ``_add``; others are added as there."""
        code, b = self.code, self.code.b
        vector, words = code.vector(F32), code.vector(I32)
        own = b.bitcast(unit, words)
        power = b.and_(b.bitcast(c, words), code.all(_EXPONENT))
        larger = code.max(own, b.sub(power, code.all(29 << 23)))
        steps = b.lshr(b.sub(larger, own), code.all(23))
        steps = b.select(b.icmp_unsigned("<", steps, code.all(31)), steps, code.all(31))
        inverse = b.bitcast(b.sub(code.all(254 << 23), larger), vector)
        addend = self._floor(b.fmul(c, inverse))
        quarters = b.ashr(b.shl(total, code.all(2)), steps)
        rest = b.icmp_signed("!=", b.and_(quarters, code.all(_REST)), code.all(0))
        exact = b.add(b.ashr(quarters, code.all(2)), addend)
        exact = b.select(rest, b.or_(exact, code.all(1)), exact)
        return b.fmul(b.sitofp(exact, vector), b.bitcast(larger, vector))

    # -- small parts -------------------------------------------------------------------------------------------------

    def _floor(self, value: Any) -> Any:
        code = self.code
        floor = code.intrinsic(f"llvm.floor.v{COLUMNS}f32", code.vector(F32), [value])
        return code.b.fptosi(floor, code.vector(I32))

    def _umax(self, x: Any, y: Any) -> Any:
        b = self.code.b
        return b.select(b.icmp_unsigned(">", x, y), x, y)

    def _some(self, flags: Any) -> Any:
        b = self.code.b
        bits = ir.IntType(flags.type.count)
        return b.icmp_unsigned("!=", b.bitcast(flags, bits), ir.Constant(bits, 0))
