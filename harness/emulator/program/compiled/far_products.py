"""Matrix products of bf16 and xf32 whose elements are not all near 1: see ``near_products``.

Each product is computed from significands below 2, and aligned by a power of two of its own; sums are float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir

from harness.emulator.native import record
from harness.emulator.program.compiled.vectors import COLUMNS, F32, F64, I32, I64, Product, VectorCode

_ZERO, _SPECIAL = -4000, 12000


class FarProducts:
    """Emits the code for one form. ``stored``: see ``products.stored_order``."""

    def __init__(self, code: VectorCode, form: Product, stored: tuple[np.ndarray, int, list[int]]) -> None:
        self.code, self.form = code, form
        _, self.a_step, self.a_of_k = stored

    def emit(self, a_places: np.ndarray, b_places: np.ndarray, addend: tuple[Any, Any]) -> None:
        code, b = self.code, self.code.b
        arrays = []
        lowest, highest = ir.Constant(I32, 0), ir.Constant(I32, 0)
        for operand, places in ((1, a_places), (2, b_places)):
            values, exponents = (code.memory(I32, len(places)) for _ in range(2))
            low, high = self._unpack(operand, places, values, exponents)
            lowest, highest = b.add(lowest, low), b.add(highest, high)
            arrays += [values, exponents]
        # The least exponent of float32: a zero among the products counts as it, see ``mfma._careful``.
        code.slow_if(b.icmp_signed("<", lowest, ir.Constant(I32, -126)))
        code.slow_if(b.icmp_signed(">=", highest, ir.Constant(I32, 126)))
        self.operands = arrays
        self._emit_rows(addend)

    def _unpack(self, operand: int, places: np.ndarray, values: Any, exponents: Any) -> tuple[Any, Any]:
        """Write the elements of an operand as float32, and their exponents; return the least and greatest exponent.

        The exponent of a denormal is its type's least one, of zero ``_ZERO``.
        """
        code, b = self.code, self.code.b
        low, high = code.all(1000), code.all(-1000)
        base = code.row(code.parameter(operand))
        for first in range(0, len(places), COLUMNS):
            word = self._word(base, places[first : first + COLUMNS], int(places.max()))
            power = b.sub(b.and_(b.lshr(word, code.all(23)), code.all(0xFF)), code.all(127))
            power = code.max(power, code.all(-126))
            special = b.icmp_signed("==", power, code.all(128))
            power = b.select(special, code.all(_SPECIAL), power)
            zero = b.icmp_signed("==", b.shl(word, code.all(1)), code.all(0))
            kind = code.vector(I32)
            b.store(word, code.offset(values, 4 * first, kind), align=64)
            b.store(b.select(zero, code.all(_ZERO), power), code.offset(exponents, 4 * first, kind), align=64)
            low = code.min(low, b.select(zero, code.all(1000), power))
            high = code.max(high, b.select(zero, code.all(-1000), power))
        return code.reduce("smin", low), code.reduce("smax", high)

    def _word(self, base: Any, places: np.ndarray, last: int) -> Any:
        """Return the bits of 16 elements as float32, picked from the registers around them."""
        code, b, bits = self.code, self.code.b, self.form.element[0]
        window = 1024 // bits
        start = max(0, min(int(places.min()), last + 1 - window))
        kind = ir.VectorType(ir.IntType(bits), window)
        words = code.shuffle(b.load(code.offset(base, start * bits // 8, kind), align=1), places - start)
        if bits == 16:
            return b.shl(b.zext(words, code.vector(I32)), code.all(16))
        return b.and_(words, code.all(~0x1FFF))

    # -- rows of the result ------------------------------------------------------------------------------------------

    def _emit_rows(self, addend: tuple[Any, Any]) -> None:
        """Compute two rows at a time, which are in the registers of a pair."""
        code = self.code
        blocks, rows, columns, depth = self.form.shape
        at = self.form.maps[2].reshape(blocks * rows, columns, 3)[::2, 0]
        table = code.table(f"{self.form.name}_far_at", (at[:, 0] >> 1) * record.PAIR_BYTES + at[:, 1] * 8)
        to = code.row(code.parameter(0))
        wide = ir.VectorType(I32, 2 * COLUMNS)
        with code.loop(blocks * rows // 2) as (index, _):
            b = code.b
            place = b.sext(b.load(b.gep(table, [code.i64(0), index])), I64)
            block = b.udiv(index, code.i64(rows // 2))
            b_block = b.mul(block, code.i64(depth * columns))
            for column in range(0, columns, COLUMNS):
                of_c = b.add(b.and_(place, addend[1]), code.i64(8 * column))
                pair = b.load(code.offset(addend[0], of_c, wide), align=4)
                values = []
                for i in (0, 1):
                    value = b.bitcast(code.shuffle(pair, np.arange(i, 2 * COLUMNS, 2)), code.vector(F32))
                    a_row = b.add(b.mul(index, code.i64(2 * self.a_step)), code.i64(i * self.a_step))
                    for first in range(0, depth, self.form.group):
                        value = self._group(a_row, b.add(b_block, code.i64(column)), first, value)
                    values.append(b.bitcast(value, code.vector(I32)))
                picks = [x for i in range(COLUMNS) for x in (i, COLUMNS + i)]
                here = b.add(place, code.i64(8 * column))
                b.store(b.shuffle_vector(*values, ir.Constant(wide, picks)), code.offset(to, here, wide), align=4)

    def _group(self, a_row: Any, b_column: Any, first: int, c: Any) -> Any:
        """Add the products of one group to ``c``: steps 1 to 3 of ``mfma``, with the same roundings."""
        code, b = self.code, self.code.b
        columns = self.form.shape[2]
        a, a_exponents, right, right_exponents = self.operands
        powers, lefts, rights = [], [], []
        for k in range(first, first + self.form.group):
            of_a = b.shl(b.add(a_row, code.i64(self.a_of_k[k])), code.i64(2))
            of_b = b.shl(b.add(b_column, code.i64(k * columns)), code.i64(2))
            left, a_power = (code.splat(b.load(code.offset(array, of_a, I32))) for array in (a, a_exponents))
            one, b_power = (
                b.load(code.offset(array, of_b, code.vector(I32)), align=64) for array in (right, right_exponents)
            )
            powers.append(b.add(a_power, b_power))
            lefts.append(b.bitcast(left, code.vector(F32)))
            rights.append(b.bitcast(one, code.vector(F32)))
        top = code.all(-126)  # lower tops do not occur: the sum is then 0
        for power in powers:
            top = code.max(top, power)
        total = code.all(0)
        for power, x, y in zip(powers, lefts, rights, strict=True):
            # An alignment by 100 or more leaves nothing.
            below = code.max(b.sub(power, top), code.all(-100))
            both = b.fmul(self._significand(x), self._significand(y))
            scale = b.bitcast(b.shl(b.add(below, code.all(24 + 127)), code.all(23)), code.vector(F32))
            total = b.add(total, b.fptosi(b.fmul(both, scale), code.vector(I32)))
        word = b.bitcast(c, code.vector(I32))
        field = b.and_(b.lshr(word, code.all(23)), code.all(0xFF))
        c_power = b.sub(field, code.all(127))
        both = code.max(top, code.max(c_power, code.all(-126)))
        wide = b.sitofp(total, code.vector(F64))
        aligned = self._floor(b.fmul(wide, self._power(b.add(b.sub(top, both), code.all(7)))))
        c_wide = b.fpext(c, code.vector(F64))
        c_aligned = self._floor(b.fmul(c_wide, self._power(b.sub(code.all(24), both))))
        exact = b.fadd(aligned, b.fmul(c_aligned, code.splat(ir.Constant(F64, 128.0))))
        result = b.fmul(exact, self._power(b.sub(both, code.all(31))))
        return b.fptrunc(result, code.vector(F32))

    def _significand(self, number: Any) -> Any:
        """Return a float32 divided by the power of two of its exponent; a zero or denormal one has exponent -126."""
        code, b = self.code, self.code.b
        word = b.bitcast(number, code.vector(I32))
        field = b.and_(b.lshr(word, code.all(23)), code.all(0xFF))
        denormal = b.icmp_signed("==", field, code.all(0))
        one = b.or_(b.and_(word, code.all(~0x7F800000)), code.all(127 << 23))
        scaled = b.fmul(number, code.splat(ir.Constant(F32, 2.0**126)))
        return b.select(denormal, scaled, b.bitcast(one, code.vector(F32)))

    def _power(self, exponents: Any) -> Any:
        """Return 2**exponent in float64, where that is a normal number."""
        code, b = self.code, self.code.b
        field = b.sext(b.add(exponents, code.all(1023)), code.vector(I64))
        shifted = b.shl(field, ir.Constant(code.vector(I64), [52] * COLUMNS))
        return b.bitcast(shifted, code.vector(F64))

    def _floor(self, value: Any) -> Any:
        code = self.code
        return code.intrinsic(f"llvm.floor.v{COLUMNS}f64", code.vector(F64), [value])
