"""Forms of matrix products: vector code for finite operands of f16, bf16 and xf32.

The arithmetic is that of ``native.mfma.fused_sum``, bit for bit. It is called for all else: infinities, NaNs,
exponents so large or so small that a product of two elements is not a normal float32, and shapes whose rows are no
whole host vectors. A row of D is computed at once, 16 columns to a host vector.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from llvmlite import ir

from harness.emulator.native import record
from harness.emulator.operations.table import Native

_I1, _I32, _I64, _F32, _F64 = ir.IntType(1), ir.IntType(32), ir.IntType(64), ir.FloatType(), ir.DoubleType()
_TYPE = ir.FunctionType(_I64, [ir.IntType(8).as_pointer(), _I64.as_pointer()])
_COLUMNS = 16
_F16, _BF16, _XF32 = (16, 5), (16, 8), (32, 8)
"""Bits of an element and of its exponent."""
_LIMIT = 38
"""Greatest exponent, up or down, of elements whose products are computed directly in float32."""
_LEAST = -82
"""Least exponent of a sum of such products and of an addend that is not zero. Products are multiples of 2**-100, and
what is left of them next to a greater addend of 2**-106: a sum of no products keeps all bits of the addend, at this
exponent as at float32's least one."""
_ZERO, _SPECIAL = -4000, 12000
_WINDOW = 128
"""Bytes of registers from which elements are unpacked at once."""


class ProductForm:
    """Products that differ in their registers only. ``name`` identifies the form."""

    def __init__(self, element: tuple[int, int], group: int, shape: tuple[int, ...], maps: list[np.ndarray]) -> None:
        self.element, self.group, self.shape, self.maps = element, group, shape, maps
        parts = (element, group, shape, [m.tobytes() for m in maps])
        self.name = "product_" + hashlib.sha256(repr(parts).encode()).hexdigest()[:24]

    def emit(self) -> ir.Module:
        """Return a module with the form's function."""
        module = ir.Module()
        _Body(ir.Function(module, _TYPE, self.name), self)
        return module


def product_form(native: Native) -> ProductForm | None:
    """Return the form of a matrix product; None if it has only the general function."""
    if native.function.kind != "product":
        return None
    registers, shape, (a_at, b_at, d_at, forms) = native.parameters[:4], native.parameters[4:8], native.keeps
    if len(forms) != 12 or (forms[:6] != forms[6:]).any():
        return None
    element = int(forms[0]), int(forms[2])
    d, a, b, c = registers
    words = len(d_at) // 64
    overlap = c >= 0 and c != d and c < d + words and d < c + words
    usual = not any(r & 1 for r in (d, a, b, max(c, 0))) and not overlap
    if element not in (_F16, _BF16, _XF32) or shape[2] % _COLUMNS or not usual or not _in_rows(shape, d_at):
        return None
    form = ProductForm(element, min(int(native.parameters[16]), shape[3]), shape, [a_at, b_at, d_at])
    return form if _stored_order(form) else None


def _in_rows(shape: tuple[int, ...], d_at: np.ndarray) -> bool:
    """Return True if the columns of each row are successive lanes of one register."""
    rows = d_at.reshape(-1, shape[2], 3)
    steps = np.arange(shape[2])
    return bool((rows[:, :, 0] == rows[:, :1, 0]).all() and (rows[:, :, 1] == rows[:, :1, 1] + steps).all())


def _places(at: np.ndarray, bits: int) -> np.ndarray:
    """Return the places of elements from the first register of an operand on, in elements."""
    offsets = (at[:, 0] >> 1) * record.PAIR_BYTES + at[:, 1] * 8 + (at[:, 0] & 1) * 4 + at[:, 2] // 8
    places: np.ndarray = offsets * 8 // bits
    return places


def _stored_order(form: ProductForm) -> tuple[np.ndarray, int, list[int]] | None:
    """Return the order in which the elements of A are stored, and where element (row, k) is then, as
    ``row * step + of_k[k]``: the order of their places in the registers, or by row. None if elements that are unpacked
    together are not near each other in the registers."""
    blocks, rows, _, depth = form.shape
    places = _places(form.maps[0], form.element[0])
    if not _are_near(_places(form.maps[1], form.element[0]), form):
        return None
    for order in (np.argsort(places, kind="stable"), np.arange(len(places))):
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        table = rank.reshape(blocks * rows, depth)
        step = int(table[1, 0] - table[0, 0])
        regular = (table == table[0] + step * np.arange(blocks * rows)[:, None]).all()
        if regular and _are_near(places[order], form):
            return order, step, table[0].tolist()
    return None


def _are_near(places: np.ndarray, form: ProductForm) -> bool:
    window = 8 * _WINDOW // form.element[0]
    return bool((np.ptp(places.reshape(-1, _COLUMNS), axis=1) < window).all())


class _Body:
    def __init__(self, function: ir.Function, form: ProductForm) -> None:
        self.function, self.module, self.form = function, function.module, form
        self.wave, self.places = function.args
        self.b = ir.IRBuilder(function.append_basic_block("entry"))
        self.slow = function.append_basic_block("slow")
        slow = ir.IRBuilder(self.slow)
        general = slow.load(slow.gep(self.places, [ir.Constant(_I64, record.GENERAL)]))
        slow.ret(slow.call(slow.inttoptr(general, _TYPE.as_pointer()), [self.wave, self.places]))
        blocks, rows, columns, depth = form.shape
        a, a_exponents = self._memory(blocks * rows * depth), self._memory(blocks * rows * depth)
        b, b_exponents = self._memory(blocks * depth * columns), self._memory(blocks * depth * columns)
        stored = _stored_order(form)
        assert stored is not None  # sanity check
        order, self.a_step, self.a_of_k = stored
        a_range = self._unpack(1, form.maps[0][order], a, a_exponents)
        b_range = self._unpack(2, form.maps[1], b, b_exponents)
        lowest, highest = (self.b.add(x, y) for x, y in zip(a_range, b_range, strict=True))
        # The least exponent of float32: a zero among the products counts as it, see ``mfma._careful``.
        self._slow_if(self.b.icmp_signed("<", lowest, ir.Constant(_I32, -126)))
        self._slow_if(self.b.icmp_signed(">=", highest, ir.Constant(_I32, 126)))
        tiny = self._check_addend()
        near = self.b.and_(self._near(a_range, b_range), self.b.not_(tiny))
        self.operands = a, a_exponents, b, b_exponents
        fast, general_loop = (self.function.append_basic_block(n) for n in ("near", "far"))
        self.b.cbranch(near, fast, self.slow if form.element == _F16 else general_loop)
        for block, direct in ((fast, True), (general_loop, False)):
            self.b.position_at_end(block)
            if form.element == _F16 and not direct:
                self.b.unreachable()
                continue
            self._rows(direct)
            self.b.ret(ir.Constant(_I64, 0))

    # -- operands ----------------------------------------------------------------------------------------------------

    def _memory(self, count: int) -> Any:
        memory = self.b.alloca(ir.ArrayType(_I32, count))
        memory.align = 64
        return memory

    def _unpack(self, operand: int, at: np.ndarray, values: Any, exponents: Any) -> tuple[Any, Any]:
        """Write the elements of an operand as float32, and their exponents; return the least and greatest exponent.

        The exponent of a denormal is its type's least one, of zero ``_ZERO``.
        """
        b = self.b
        low, high = self._all(1000), self._all(-1000)
        base = self._row(self._parameter(operand))
        places = _places(at, self.form.element[0])
        for first in range(0, len(at), _COLUMNS):
            number = self._numbers(base, places[first : first + _COLUMNS], int(places.max()))
            word = b.bitcast(number, self._vector(_I32))
            power = b.sub(b.and_(b.lshr(word, self._all(23)), self._all(0xFF)), self._all(127))
            power = self._max(power, self._all(-14 if self.form.element == _F16 else -126))
            special = b.icmp_signed("==", power, self._all(128))
            power = b.select(special, self._all(_SPECIAL), power)
            zero = b.icmp_signed("==", b.shl(word, self._all(1)), self._all(0))
            index = ir.Constant(_I64, first)
            b.store(word, self._at(values, index), align=64)
            b.store(b.select(zero, self._all(_ZERO), power), self._at(exponents, index), align=64)
            low = self._min(low, b.select(zero, self._all(1000), power))
            high = self._max(high, b.select(zero, self._all(-1000), power))
        return self._reduce("smin", low), self._reduce("smax", high)

    def _numbers(self, base: Any, places: np.ndarray, last: int) -> Any:
        """Return 16 elements as float32, picked from the registers around them."""
        b, (bits, _) = self.b, self.form.element
        element = ir.IntType(bits)
        window = 8 * _WINDOW // bits
        start = max(0, min(int(places.min()), last + 1 - window))
        whole = b.bitcast(
            b.gep(base, [ir.Constant(_I64, start * bits // 8)]), ir.VectorType(element, window).as_pointer()
        )
        loaded = b.load(whole, align=1)
        picks = ir.Constant(self._vector(_I32), [int(place) - start for place in places])
        words = b.shuffle_vector(loaded, ir.Constant(loaded.type, None), picks)
        if self.form.element == _F16:
            return b.fpext(b.bitcast(words, self._vector(ir.HalfType())), self._vector(_F32))
        if bits == 16:
            return b.bitcast(b.shl(b.zext(words, self._vector(_I32)), self._all(16)), self._vector(_F32))
        return b.bitcast(b.and_(words, self._all(~0x1FFF)), self._vector(_F32))

    def _check_addend(self) -> Any:
        """Leave an infinity or NaN in C to the general function; return whether a number in C is below ``_LEAST``."""
        b = self.b
        c, infinity = self._parameter(3), 0xFF << 24  # without its sign
        from_register = b.icmp_signed(">=", c, ir.Constant(_I64, 0))
        constant = b.shl(b.trunc(self._parameter(14), _I32), ir.Constant(_I32, 1))
        special = b.icmp_unsigned(">=", constant, ir.Constant(_I32, infinity))
        one, least = ir.Constant(_I32, 1), ((127 + _LEAST) << 24) - 1
        tiny_constant = b.icmp_unsigned("<", b.sub(constant, one), ir.Constant(_I32, least))
        self._slow_if(b.and_(b.not_(from_register), special))
        lanes = 32
        kind = ir.VectorType(_I32, lanes)
        limit = ir.Constant(kind, [infinity] * lanes)
        row = self._row(b.select(from_register, c, ir.Constant(_I64, 0)))
        tiny_lanes = special_lanes = ir.Constant(ir.VectorType(_I1, lanes), [0] * lanes)
        ones, leasts = (ir.Constant(kind, [number] * lanes) for number in (1, least))
        for first in range(0, len(self.form.maps[2]), lanes):
            words = b.load(b.bitcast(b.gep(row, [ir.Constant(_I64, 4 * first)]), kind.as_pointer()), align=4)
            doubled = b.shl(words, ir.Constant(kind, [1] * lanes))
            special_lanes = b.or_(special_lanes, b.icmp_unsigned(">=", doubled, limit))
            tiny_lanes = b.or_(tiny_lanes, b.icmp_unsigned("<", b.sub(doubled, ones), leasts))
        none = ir.Constant(ir.IntType(lanes), 0)
        some, some_tiny = (
            b.icmp_unsigned("!=", b.bitcast(flags, ir.IntType(lanes)), none) for flags in (special_lanes, tiny_lanes)
        )
        self._slow_if(b.and_(from_register, some))
        return self.b.select(from_register, some_tiny, tiny_constant)

    def _near(self, *ranges: tuple[Any, Any]) -> Any:
        b, near = self.b, ir.Constant(_I1, 1)
        for low, high in ranges:
            near = b.and_(near, b.icmp_signed(">=", low, ir.Constant(_I32, -_LIMIT)))
            near = b.and_(near, b.icmp_signed("<=", high, ir.Constant(_I32, _LIMIT)))
        return near

    # -- rows of the result ------------------------------------------------------------------------------------------

    def _rows(self, direct: bool) -> None:
        b = self.b
        blocks, rows, columns, depth = self.form.shape
        at = self.form.maps[2].reshape(blocks * rows, columns, 3)[:, 0]
        offsets = (at[:, 0] >> 1) * record.PAIR_BYTES + at[:, 1] * 8 + (at[:, 0] & 1) * 4
        table = self._table(f"d_at{direct:d}", offsets)
        to = self._row(self._parameter(0))
        c = self._parameter(3)
        from_register = b.icmp_signed(">=", c, ir.Constant(_I64, 0))
        addend = self._row(b.select(from_register, c, ir.Constant(_I64, 0)))
        constant = self._splat(b.bitcast(b.trunc(self._parameter(14), _I32), _F32))
        loop, done = self.function.append_basic_block("row"), self.function.append_basic_block("done")
        before = b.block
        b.branch(loop)
        b.position_at_end(loop)
        row = b.phi(_I64)
        row.add_incoming(ir.Constant(_I64, 0), before)
        place = b.sext(b.load(b.gep(table, [ir.Constant(_I64, 0), row])), _I64)
        block = b.udiv(row, ir.Constant(_I64, rows))
        a_row = b.mul(row, ir.Constant(_I64, self.a_step))
        b_block = b.mul(block, ir.Constant(_I64, depth * columns))
        for column in range(0, columns, _COLUMNS):
            here = b.add(place, ir.Constant(_I64, 8 * column))
            doubled = b.load(self._lanes(addend, here), align=4)
            picks = ir.Constant(self._vector(_I32), list(range(0, 2 * _COLUMNS, 2)))
            words = b.shuffle_vector(doubled, ir.Constant(doubled.type, None), picks)
            value = b.select(from_register, b.bitcast(words, self._vector(_F32)), constant)
            for first in range(0, depth, self.form.group):
                value = self._group(a_row, b.add(b_block, ir.Constant(_I64, column)), first, value, direct)
            self._write(b.bitcast(value, self._vector(_I32)), self._lanes(to, here))
        following = b.add(row, ir.Constant(_I64, 1))
        row.add_incoming(following, b.block)
        b.cbranch(b.icmp_unsigned("<", following, ir.Constant(_I64, blocks * rows)), loop, done)
        b.position_at_end(done)

    def _group(self, a_row: Any, b_column: Any, first: int, c: Any, direct: bool) -> Any:
        """Add the products of one group to ``c``: steps 1 to 3 of ``mfma``, with the same roundings."""
        b = self.b
        columns = self.form.shape[2]
        a, a_exponents, right, right_exponents = self.operands
        powers, lefts, rights = [], [], []
        for k in range(first, first + self.form.group):
            of_a = b.add(a_row, ir.Constant(_I64, self.a_of_k[k]))
            of_b = b.add(b_column, ir.Constant(_I64, k * columns))
            powers.append(b.add(self._scalar(a_exponents, of_a), self._load(right_exponents, of_b)))
            lefts.append(b.bitcast(self._scalar(a, of_a), self._vector(_F32)))
            rights.append(b.bitcast(self._load(right, of_b), self._vector(_F32)))
        top = self._all(_LEAST if direct else -126)  # lower tops do not occur: the sum is then 0
        for power in powers:
            top = self._max(top, power)
        total = self._all(0)
        if direct:
            scale = b.shl(b.sub(self._all(24 + 127), top), self._all(23))
            scale = b.bitcast(scale, self._vector(_F32))
            for x, y in zip(lefts, rights, strict=True):
                total = b.add(total, b.fptosi(b.fmul(b.fmul(x, y), scale), self._vector(_I32)))
        else:
            for power, x, y in zip(powers, lefts, rights, strict=True):
                # An alignment by 100 or more leaves nothing.
                below = self._max(b.sub(power, top), self._all(-100))
                both = b.fmul(self._significand(x), self._significand(y))
                scale = b.bitcast(b.shl(b.add(below, self._all(24 + 127)), self._all(23)), self._vector(_F32))
                total = b.add(total, b.fptosi(b.fmul(both, scale), self._vector(_I32)))
        word = b.bitcast(c, self._vector(_I32))
        field = b.and_(b.lshr(word, self._all(23)), self._all(0xFF))
        c_power = b.sub(field, self._all(127))
        both = self._max(top, c_power if direct else self._max(c_power, self._all(-126)))
        aligned = self._floor(b.fmul(self._wide(total), self._power(b.add(b.sub(top, both), self._all(7)))))
        if direct:
            # Powers of two are normal numbers of float32 here, and so are all results: scaling them does not round.
            c_scaled = b.fmul(c, self._scale(b.sub(self._all(24), both)))
            c_floor = self._intrinsic(f"llvm.floor.v{_COLUMNS}f32", self._vector(_F32), [c_scaled])
            factor = self._splat(ir.Constant(_F64, 128.0))
            wide = self._vector(_F64)
            exact = self._intrinsic(f"llvm.fma.v{_COLUMNS}f64", wide, [b.fpext(c_floor, wide), factor, aligned])
            return b.fmul(b.fptrunc(exact, self._vector(_F32)), self._scale(b.sub(both, self._all(31))))
        c_wide = b.fpext(c, self._vector(_F64))
        c_aligned = self._floor(b.fmul(c_wide, self._power(b.sub(self._all(24), both))))
        exact = b.fadd(aligned, b.fmul(c_aligned, self._splat(ir.Constant(_F64, 128.0))))
        result = b.fmul(exact, self._power(b.sub(both, self._all(31))))
        return b.fptrunc(result, self._vector(_F32))

    def _significand(self, number: Any) -> Any:
        """Return a float32 divided by the power of two of its exponent; a zero or denormal one has exponent -126."""
        b = self.b
        word = b.bitcast(number, self._vector(_I32))
        field = b.and_(b.lshr(word, self._all(23)), self._all(0xFF))
        denormal = b.icmp_signed("==", field, self._all(0))
        one = b.or_(b.and_(word, self._all(~0x7F800000)), self._all(127 << 23))
        scaled = b.fmul(number, self._splat(ir.Constant(_F32, 2.0**126)))
        return b.select(denormal, scaled, b.bitcast(one, self._vector(_F32)))

    # -- small parts -------------------------------------------------------------------------------------------------

    def _vector(self, element: ir.Type) -> ir.VectorType:
        return ir.VectorType(element, _COLUMNS)

    def _all(self, number: int) -> Any:
        return ir.Constant(self._vector(_I32), [number] * _COLUMNS)

    def _splat(self, value: Any) -> Any:
        if isinstance(value, ir.Constant):
            return ir.Constant(self._vector(value.type), [value.constant] * _COLUMNS)
        zeros = ir.Constant(self._vector(value.type), None)
        first = self.b.insert_element(zeros, value, ir.Constant(_I32, 0))
        return self.b.shuffle_vector(first, zeros, ir.Constant(self._vector(_I32), None))

    def _parameter(self, index: int) -> Any:
        return self.b.load(self.b.gep(self.places, [ir.Constant(_I64, index)]))

    def _row(self, register: Any) -> Any:
        """Return the address of an even register."""
        b = self.b
        at = b.mul(b.lshr(register, ir.Constant(_I64, 1)), ir.Constant(_I64, record.PAIR_BYTES))
        return b.gep(self.wave, [b.add(at, ir.Constant(_I64, record.VECTORS))])

    def _lanes(self, base: Any, offset: Any) -> Any:
        return self.b.bitcast(self.b.gep(base, [offset]), ir.VectorType(_I32, 2 * _COLUMNS).as_pointer())

    def _table(self, name: str, numbers: np.ndarray) -> Any:
        kind = ir.ArrayType(_I32, len(numbers))
        table = ir.GlobalVariable(self.module, kind, f"{self.form.name}_{name}")
        table.global_constant, table.linkage, table.align = True, "internal", 64
        table.initializer = ir.Constant(kind, [int(n) for n in numbers])
        return table

    def _at(self, array: Any, index: Any) -> Any:
        place = self.b.gep(array, [ir.Constant(_I64, 0), index])
        return self.b.bitcast(place, self._vector(_I32).as_pointer())

    def _load(self, array: Any, index: Any) -> Any:
        return self.b.load(self._at(array, index), align=64)

    def _scalar(self, array: Any, index: Any) -> Any:
        return self._splat(self.b.load(self.b.gep(array, [ir.Constant(_I64, 0), index])))

    def _write(self, words: Any, place: Any) -> None:
        """Store a register's words; the other register of the pair keeps its own."""
        twice = [i >> 1 for i in range(2 * _COLUMNS)]
        wide = ir.VectorType(_I32, 2 * _COLUMNS)
        doubled = self.b.shuffle_vector(words, ir.Constant(words.type, None), ir.Constant(wide, twice))
        lanes = ir.Constant(ir.VectorType(_I1, 2 * _COLUMNS), [i % 2 == 0 for i in range(2 * _COLUMNS)])
        name = f"llvm.masked.store.v{2 * _COLUMNS}i32.p0v{2 * _COLUMNS}i32"
        self._intrinsic(name, ir.VoidType(), [doubled, place, ir.Constant(_I32, 4), lanes])

    def _max(self, x: Any, y: Any) -> Any:
        return self.b.select(self.b.icmp_signed(">", x, y), x, y)

    def _min(self, x: Any, y: Any) -> Any:
        return self.b.select(self.b.icmp_signed("<", x, y), x, y)

    def _reduce(self, name: str, vector: Any) -> Any:
        return self._intrinsic(f"llvm.vector.reduce.{name}.v{_COLUMNS}i32", _I32, [vector])

    def _wide(self, integers: Any) -> Any:
        return self.b.sitofp(integers, self._vector(_F64))

    def _power(self, exponents: Any) -> Any:
        """Return 2**exponent in float64, where that is a normal number."""
        b = self.b
        field = b.sext(b.add(exponents, self._all(1023)), self._vector(_I64))
        shifted = b.shl(field, ir.Constant(self._vector(_I64), [52] * _COLUMNS))
        return b.bitcast(shifted, self._vector(_F64))

    def _scale(self, exponents: Any) -> Any:
        """Return 2**exponent in float32, where that is a normal number."""
        b = self.b
        return b.bitcast(b.shl(b.add(exponents, self._all(127)), self._all(23)), self._vector(_F32))

    def _floor(self, value: Any) -> Any:
        return self._intrinsic(f"llvm.floor.v{_COLUMNS}f64", self._vector(_F64), [value])

    def _intrinsic(self, name: str, result: ir.Type, arguments: list[Any]) -> Any:
        function = self.module.globals.get(name)
        if function is None:
            function = ir.Function(self.module, ir.FunctionType(result, [a.type for a in arguments]), name)
        return self.b.call(function, arguments)

    def _slow_if(self, condition: Any) -> None:
        usual = self.function.append_basic_block("usual")
        self.b.cbranch(condition, self.slow, usual)
        self.b.position_at_end(usual)
