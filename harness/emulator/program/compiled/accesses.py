"""Forms of loads and stores: vector code for the usual cases, before the general native function.

The usual case of an access to global memory: the lanes that access memory all do so in one allocation, the one in which
the instruction accessed memory before. Of an access to the data share: all lanes are inside. The addresses are computed
and checked as vectors; neighbouring addresses are accessed as one block, others lane by lane if all lanes are active,
else by gathering and scattering, which takes longer on most processors. In any other case the function calls the
general one (``native.steps``), whose parameters it shares, and which remembers the allocation.

The usual case of a scalar load is that it reads the allocation that it read before.

Accesses stay whole: the host accesses an aligned element of up to 8 bytes of a vector at once.
"""

from __future__ import annotations

import hashlib
from typing import Any

from llvmlite import ir

from harness.emulator.native import record
from harness.emulator.native.memory import BUFFER, GLOBAL, GLOBAL_SADDR
from harness.emulator.operations.table import Native
from harness.emulator.program.compiled.lanes import FUNCTION, LaneCode
from harness.emulator.wavefront.state import LANES

_I1, _I8, _I16, _I32, _I64 = (ir.IntType(bits) for bits in (1, 8, 16, 32, 64))
_POINTER = _I8.as_pointer()
_GLOBAL_KINDS, _SHARE_KINDS = ("load", "store"), ("read", "write")


class AccessForm:
    """A kind of access: those that differ in registers and offsets only have the same form, identified by ``name``."""

    def __init__(self, kind: str, parts: tuple[int, ...]) -> None:
        self.kind, self.parts = kind, tuple(map(int, parts))
        self.name = "access_" + hashlib.sha256(repr((kind, parts)).encode()).hexdigest()[:24]

    def emit(self) -> ir.Module:
        """Return a module with the form's function."""
        module = ir.Module()
        body = _Body(ir.Function(module, FUNCTION, self.name))
        if self.kind == "scalar":
            body.load_scalar(*self.parts)
        elif self.kind in _GLOBAL_KINDS:
            body.access_global(self.kind, *self.parts)
        else:
            body.access_share(self.kind, *self.parts)
        return module


def access_form(native: Native) -> AccessForm | None:
    """Return the form of an access; None if it has only the general function."""
    kind, values = native.function.kind, native.parameters
    if kind == "scalar":
        return AccessForm(kind, (values[1], int(values[3] >= 0)))
    if kind in _GLOBAL_KINDS:
        form, areg, _, soffset, _, register, size = values[:7]
        signed, half = values[7:9] if kind == "load" else (0, 2 * values[7])
        unusual = form not in (GLOBAL, GLOBAL_SADDR, BUFFER) or areg < 0 or (form == GLOBAL and areg & 1)
        if unusual or size == 12 or (size >= 8 and register & 1):
            return None
        return AccessForm(kind, (form, size, signed, half, int(soffset >= 0)))
    if kind == "read":
        second, register, size, signed, half = values[2:7]
        if size == 12 or (size >= 8 and register & 1):
            return None
        return AccessForm(kind, (size, signed, half, int(second >= 0)))
    if kind == "write":
        size, high, parts = values[1:4]
        if size == 12 or (size >= 8 and any(register & 1 for register in values[5 : 4 + 2 * parts : 2])):
            return None
        return AccessForm(kind, (size, 0, 2 * high, parts - 1))
    return None


class _Body(LaneCode):
    # -- global memory -----------------------------------------------------------------------------------------------

    def access_global(self, kind: str, form: int, size: int, signed: int, half: int, scalar_offset: int) -> None:
        if not half:
            self._access_block(kind, form, size, signed, scalar_offset)
        b = self.b
        mask = self._exec()
        address, outside = self._address(form, size, bool(scalar_offset))
        takes = mask
        if outside is not None:
            out = b.and_(mask, outside)
            takes = b.and_(mask, b.not_(outside))
            if size >= 8:  # each dword is checked by itself: only the general function does that
                self._slow_if(b.icmp_unsigned("!=", b.bitcast(out, _I64), self._i64(0)))
        context = self._field(record.CONTEXT)
        index = b.load(b.gep(self.places, [self._i64(record.HINT)]))
        self._slow_if(b.icmp_unsigned(">=", index, self._word(context, record.ALLOCATIONS)))
        start = self._word(self._word(context, record.STARTS), index)
        end = self._word(self._word(context, record.ENDS), index)
        word = b.bitcast(takes, _I64)
        count = self._intrinsic("llvm.ctpop.i64", _I64, [word])
        nobody = b.icmp_unsigned("==", count, self._i64(0))
        none, least = self._splat(self._i64(-1)), self._splat(self._i64(0))
        lowest = self._reduce("umin", b.select(takes, address, none))
        highest = self._reduce("umax", b.select(takes, address, least))
        inside = b.and_(
            b.icmp_unsigned(">=", lowest, start),
            b.and_(
                b.icmp_unsigned("<=", highest, end),
                b.icmp_unsigned("<=", self._i64(size), b.sub(end, highest)),
            ),
        )
        self._slow_if(b.not_(b.or_(inside, nobody)))
        site = b.load(b.gep(self.places, [self._i64(9 if kind == "load" else 8)]))
        self._count(context, site, index, count)
        neighbours = self._neighbours(word, address, lowest, size)
        if not half:
            self._access_each(kind, size, signed, word, neighbours, address)
        if kind == "load":
            value = self._read(address, takes, lowest, neighbours, size)
            # Lanes outside the buffer read 0.
            self._write(value, self._parameter(5), mask, size, signed, half)
        else:
            self._store(address, takes, lowest, neighbours, 5, size, half)
        self.b.ret(self._i64(0))

    def _access_block(self, kind: str, form: int, size: int, signed: int, scalar_offset: int) -> None:
        """Emit the access of all lanes to successive elements: their bounds are those of the first and the last one."""
        b = self.b
        other = self.function.append_basic_block("other")
        first, same = self._first(form, size)
        self._unless(b.and_(same, b.icmp_signed("==", self._field(record.EXEC_BYTES), self._i64(-1))), other)
        sreg, offset = self._parameter(2), self._parameter(4)
        lowest = b.add(first, offset)
        if form != GLOBAL:
            last = b.add(first, self._i64((LANES - 1) * size))
            self._unless(b.icmp_unsigned("<=", last, self._i64(0xFFFFFFFF)), other)
            base = b.load(b.bitcast(b.gep(self.wave, [b.mul(sreg, self._i64(4))]), _I64.as_pointer()), align=4)
            if form == BUFFER:
                self._unless(b.icmp_signed(">=", base, self._i64(0)), other)  # not swizzled
                base = b.and_(base, self._i64((1 << 48) - 1))
                if scalar_offset:
                    lowest = b.add(lowest, self._scalar(self._parameter(3)))
                records = self._scalar(b.add(sreg, self._i64(2)))
                end = b.add(lowest, self._i64(LANES * size))
                self._unless(b.icmp_unsigned("<=", end, records), other)
            lowest = b.add(lowest, base)
        context = self._field(record.CONTEXT)
        index = b.load(b.gep(self.places, [self._i64(record.HINT)]))
        self._unless(b.icmp_unsigned("<", index, self._word(context, record.ALLOCATIONS)), other)
        start = self._word(self._word(context, record.STARTS), index)
        end = self._word(self._word(context, record.ENDS), index)
        room = b.icmp_unsigned(">=", b.sub(end, lowest), self._i64(LANES * size))
        inside = b.and_(b.icmp_unsigned(">=", lowest, start), b.icmp_unsigned("<=", lowest, end))
        self._unless(b.and_(inside, room), other)
        site = b.load(b.gep(self.places, [self._i64(9 if kind == "load" else 8)]))
        self._count(context, site, index, self._i64(LANES))
        element, count = self._elements(size)
        place = b.inttoptr(lowest, ir.VectorType(element, LANES * count).as_pointer())
        register = self._parameter(5)
        if kind == "load":
            whole = b.load(place, align=1)
            if size >= 8:
                for i in range(count):
                    value = whole if count == 1 else self._shuffle(whole, range(i, LANES * count, count))
                    b.store(value, self._row(b.add(register, self._i64(2 * i)), _I64, LANES), align=4)
            else:
                if size < 4:
                    whole = (b.sext if signed else b.zext)(whole, ir.VectorType(_I32, LANES))
                self._write_half(whole, register)
        else:
            if size >= 8:
                values = [self._pair(b.add(register, self._i64(2 * i))) for i in range(count)]
            else:
                word = self._half_of(register)
                values = [word if size == 4 else b.trunc(word, ir.VectorType(element, LANES))]
            whole = values[0]
            if count == 2:
                picks = [x for i in range(LANES) for x in (i, LANES + i)]
                whole = b.shuffle_vector(*values, ir.Constant(ir.VectorType(_I32, len(picks)), picks))
            b.store(whole, place, align=1)
        b.ret(self._i64(0))
        b.position_at_end(other)

    def _first(self, form: int, size: int) -> tuple[Any, Any]:
        """Return the first lane's address register, and whether those of the others follow it by ``size`` each."""
        b = self.b
        steps = [size * i for i in range(LANES)]
        address = self._pair(self._parameter(1)) if form == GLOBAL else self._half_of(self._parameter(1))
        first = b.extract_element(address, ir.Constant(_I32, 0))
        following = b.add(self._splat(first), ir.Constant(address.type, steps))
        differ = b.bitcast(b.icmp_unsigned("!=", address, following), _I64)
        same = b.icmp_unsigned("==", differ, self._i64(0))
        return first if form == GLOBAL else b.zext(first, _I64), same

    def _half_of(self, register: Any) -> Any:
        """Return a register, read with its pair: the processor forwards whole stores to loads of the same bytes."""
        b = self.b
        pair = b.load(self._row(b.and_(register, self._i64(~1)), _I64, LANES), align=4)
        shifted = b.lshr(pair, self._splat(self._shift(register)))
        return b.trunc(shifted, ir.VectorType(_I32, LANES))

    def _write_half(self, word: Any, register: Any) -> None:
        """Write all lanes of a register, with the other one of its pair as it is."""
        b = self.b
        place = self._row(b.and_(register, self._i64(~1)), _I64, LANES)
        shift = self._shift(register)
        keep = self._splat(b.lshr(self._i64(0xFFFFFFFF00000000), shift))
        new = b.shl(b.zext(word, ir.VectorType(_I64, LANES)), self._splat(shift))
        b.store(b.or_(b.and_(b.load(place, align=4), keep), new), place, align=4)

    def _shift(self, register: Any) -> Any:
        return self.b.shl(self.b.and_(register, self._i64(1)), self._i64(5))

    def _scalar(self, register: Any) -> Any:
        b = self.b
        place = b.bitcast(b.gep(self.wave, [b.mul(register, self._i64(4))]), _I32.as_pointer())
        return b.zext(b.load(place, align=4), _I64)

    def _unless(self, condition: Any, other: Any) -> None:
        """Go to the block ``other`` if the condition does not hold."""
        usual = self.function.append_basic_block("usual")
        self.b.cbranch(condition, usual, other)
        self.b.position_at_end(usual)

    def _address(self, form: int, size: int, scalar_offset: bool) -> tuple[Any, Any]:
        """Return the lanes' addresses, and which of them are outside a buffer; None if that cannot be."""
        b = self.b
        areg, sreg, offset = self._parameter(1), self._parameter(2), self._parameter(4)
        if form == GLOBAL:
            return b.add(self._pair(areg), self._splat(offset)), None
        lane = b.zext(self._register(areg), ir.VectorType(_I64, LANES))
        place = b.bitcast(b.gep(self.wave, [b.mul(sreg, self._i64(4))]), _I64.as_pointer())
        base = b.load(place, align=4)
        if form == GLOBAL_SADDR:
            return b.add(lane, self._splat(b.add(base, offset))), None
        self._slow_if(b.icmp_signed("<", base, self._i64(0)))  # swizzled
        base = b.and_(base, self._i64((1 << 48) - 1))
        if scalar_offset:
            outer = b.gep(self.wave, [b.mul(self._parameter(3), self._i64(4))])
            offset = b.add(offset, b.zext(b.load(b.bitcast(outer, _I32.as_pointer()), align=4), _I64))
        records = b.bitcast(b.gep(self.wave, [b.add(b.mul(sreg, self._i64(4)), self._i64(8))]), _I32.as_pointer())
        end = b.zext(b.load(records, align=4), _I64)
        inner = b.add(lane, self._splat(offset))
        outside = b.icmp_unsigned(">", b.add(inner, self._splat(self._i64(size))), self._splat(end))
        return b.add(inner, self._splat(base)), outside

    def _count(self, context: Any, site: Any, index: Any, lanes: Any) -> None:
        b = self.b
        executions = self._place(self._word(context, record.EXECUTIONS), site)
        b.store(b.add(b.load(executions), self._i64(1)), executions)
        peers = b.inttoptr(self._word(context, record.PEERS), _I32.as_pointer())
        peer = b.zext(b.load(b.gep(peers, [index])), _I64)
        counter = self._place(self._word(context, record.LANES), b.add(b.mul(site, self._i64(2)), peer))
        b.store(b.add(b.load(counter), lanes), counter)

    def load_scalar(self, words: int, scalar_offset: int) -> None:
        """Emit the load of ``words`` dwords to scalar registers."""
        b = self.b
        base = b.bitcast(b.gep(self.wave, [b.mul(self._parameter(2), self._i64(4))]), _I64.as_pointer())
        address = b.add(b.load(base, align=4), self._parameter(4))
        if scalar_offset:
            address = b.add(address, self._scalar(self._parameter(3)))
        address = b.and_(address, self._i64(~3))
        context = self._field(record.CONTEXT)
        index = b.load(b.gep(self.places, [self._i64(record.HINT)]))
        self._slow_if(b.icmp_unsigned(">=", index, self._word(context, record.ALLOCATIONS)))
        start = self._word(self._word(context, record.STARTS), index)
        end = self._word(self._word(context, record.ENDS), index)
        within = b.and_(b.icmp_unsigned(">=", address, start), b.icmp_unsigned("<=", address, end))
        room = b.icmp_unsigned(">=", b.sub(end, address), self._i64(4 * words))
        self._slow_if(b.not_(b.and_(within, room)))
        kind = (ir.VectorType(_I32, words) if words > 1 else _I32).as_pointer()
        value = b.load(b.inttoptr(address, kind), align=4)
        target = b.bitcast(b.gep(self.wave, [b.mul(self._parameter(0), self._i64(4))]), kind)
        b.store(value, target, align=4)
        b.ret(self._i64(0))

    # -- local data share --------------------------------------------------------------------------------------------

    def access_share(self, kind: str, size: int, signed: int, half: int, two: int) -> None:
        b = self.b
        if kind == "read":
            offsets = [self._parameter(1)] + [self._parameter(2)] * two
        else:
            offsets = [self._parameter(4 + 2 * part) for part in range(1 + two)]
        if not half:
            self._access_share_each(kind, size, signed, offsets)
        mask = self._exec()
        lane = b.zext(self._register(self._parameter(0)), ir.VectorType(_I64, LANES))
        highest = self._reduce("umax", b.select(mask, lane, self._splat(self._i64(0))))
        limit = self._word(self._field(record.CONTEXT), record.SHARE_BYTES)
        for offset in offsets:
            last = b.add(b.add(highest, offset), self._i64(size))
            self._slow_if(b.icmp_unsigned(">", last, limit))
        share = self._field(record.SHARE)
        word = b.bitcast(mask, _I64)
        values = []
        for part, offset in enumerate(offsets):
            address = b.add(lane, self._splat(b.add(share, offset)))
            lowest = b.extract_element(address, ir.Constant(_I32, 0))
            neighbours = self._neighbours(word, address, lowest, size)
            if kind == "write" and size > 8:
                # Lanes may store to the same bytes, and scattering is one element after the other.
                self._slow_if(b.not_(neighbours))
            if kind == "read":
                values.append(self._read(address, mask, lowest, neighbours, size))
            else:
                self._store(address, mask, lowest, neighbours, 5 + 2 * part, size, half)
        b = self.b
        register = self._parameter(3)
        for part, value in enumerate(values):
            first = b.add(register, self._i64(part * max(1, size // 4)))
            self._write(value, first, mask, size, signed, half)
        self.b.ret(self._i64(0))

    # -- data --------------------------------------------------------------------------------------------------------

    def _access_each(self, kind: str, size: int, signed: int, word: Any, neighbours: Any, address: Any) -> None:
        """Emit an access to global memory lane by lane, for the case that all are active and not neighbours."""
        b = self.b
        other = self.function.append_basic_block("other")
        self._unless(b.and_(b.icmp_unsigned("==", word, self._i64(-1)), b.not_(neighbours)), other)
        with b.goto_entry_block():
            memory = b.alloca(ir.ArrayType(_I64, LANES))
            memory.align = 64
        b.store(address, b.bitcast(memory, address.type.as_pointer()), align=64)
        self._lanes(
            kind, size, signed, lambda lane: [b.load(b.gep(memory, [self._i64(0), lane]))], [self._parameter(5)]
        )
        b.position_at_end(other)

    def _access_share_each(self, kind: str, size: int, signed: int, offsets: list[Any]) -> None:
        """Emit an access to the data share lane by lane, for the case that all are active and not neighbours.

        A lane's address is read before its results are written: they may be in the same register.
        """
        b = self.b
        other = self.function.append_basic_block("other")
        self._unless(b.icmp_signed("==", self._field(record.EXEC_BYTES), self._i64(-1)), other)
        register = self._parameter(0)
        inner = self._half_of(register)
        first = b.extract_element(inner, ir.Constant(_I32, 0))
        following = b.add(self._splat(first), ir.Constant(inner.type, [size * i for i in range(LANES)]))
        differ = b.bitcast(b.icmp_unsigned("!=", inner, following), _I64)
        self._unless(b.icmp_unsigned("!=", differ, self._i64(0)), other)
        highest = b.zext(self._intrinsic(f"llvm.vector.reduce.umax.v{LANES}i32", _I32, [inner]), _I64)
        limit = self._word(self._field(record.CONTEXT), record.SHARE_BYTES)
        for offset in offsets:
            self._slow_if(b.icmp_unsigned(">", b.add(b.add(highest, offset), self._i64(size)), limit))
        share = self._field(record.SHARE)
        bases = [b.add(share, offset) for offset in offsets]
        row = b.bitcast(self._row(register, _I32, 1), _POINTER)
        if kind == "read":
            words = max(1, size // 4)
            registers = [b.add(self._parameter(3), self._i64(words * part)) for part in range(len(offsets))]
        else:
            registers = [self._parameter(5 + 2 * part) for part in range(len(offsets))]

        def addresses(lane: Any) -> list[Any]:
            place = b.bitcast(b.gep(row, [b.shl(lane, self._i64(3))]), _I32.as_pointer())
            own = b.zext(b.load(place, align=4), _I64)
            return [b.add(base, own) for base in bases]

        self._lanes(kind, size, signed, addresses, registers)
        b.position_at_end(other)

    def _read(self, address: Any, takes: Any, lowest: Any, neighbours: Any, size: int) -> list[Any]:
        """Return the elements of each lane, as vectors; 0 in lanes that do not take part."""
        element, count = self._elements(size)
        vector = ir.VectorType(element, LANES)
        block, gather, after = (self.function.append_basic_block(n) for n in ("block", "gather", "loaded"))
        b = self.b
        b.cbranch(neighbours, block, gather)
        b.position_at_end(block)
        whole = b.load(b.inttoptr(lowest, ir.VectorType(element, LANES * count).as_pointer()), align=1)
        blocks = [whole] if count == 1 else [self._shuffle(whole, range(i, LANES * count, count)) for i in range(count)]
        b.branch(after)
        b.position_at_end(gather)
        scattered = []
        for i in range(count):
            at = b.add(address, self._splat(self._i64(8 * i))) if i else address
            pointers = b.inttoptr(at, ir.VectorType(element.as_pointer(), LANES))
            name = f"llvm.masked.gather.v{LANES}i{element.width}.v{LANES}p0i{element.width}"
            scattered.append(
                self._intrinsic(name, vector, [pointers, ir.Constant(_I32, 1), takes, ir.Constant(vector, None)])
            )
        b.branch(after)
        b.position_at_end(after)
        values = []
        for one, other in zip(blocks, scattered, strict=True):
            phi = b.phi(vector)
            phi.add_incoming(one, block)
            phi.add_incoming(other, gather)
            values.append(phi)
        return values

    def _write(self, value: list[Any], register: Any, mask: Any, size: int, signed: int, half: int) -> None:
        """Write elements to the registers of the lanes of ``mask``."""
        b = self.b
        if size >= 8:
            for i, each in enumerate(value):
                place = self._row(b.add(register, self._i64(2 * i)), _I64, LANES)
                self._masked_store(each, place, mask, 4)
            return
        (word,) = value
        if size < 4:
            word = (b.sext if signed else b.zext)(word, ir.VectorType(_I32, LANES))
        if half:
            old = self._register(register)
            keep, shift = (0xFFFF0000, 0) if half == 1 else (0xFFFF, 16)
            word = b.shl(word, self._splat(ir.Constant(_I32, shift)))
            word = b.and_(word, self._splat(ir.Constant(_I32, ~keep & 0xFFFFFFFF)))
            word = b.or_(b.and_(old, self._splat(ir.Constant(_I32, keep))), word)
        doubled = self._shuffle(word, [i >> 1 for i in range(2 * LANES)])
        lanes = self._shuffle(mask, [i >> 1 for i in range(2 * LANES)])
        first = ir.Constant(ir.VectorType(_I1, 2 * LANES), [i % 2 == 0 for i in range(2 * LANES)])
        self._masked_store(doubled, self._row(register, _I32, 2 * LANES), b.and_(lanes, first), 4)

    def _store(self, address: Any, takes: Any, lowest: Any, neighbours: Any, place: int, size: int, half: int) -> None:
        b = self.b
        element, count = self._elements(size)
        register = self._parameter(place)
        if size >= 8:
            values = [self._pair(b.add(register, self._i64(2 * i))) for i in range(count)]
        else:
            word = self._register(register)
            if half:
                word = b.lshr(word, self._splat(ir.Constant(_I32, 16)))
            values = [word if size == 4 else b.trunc(word, ir.VectorType(element, LANES))]
        block, scatter, after = (self.function.append_basic_block(n) for n in ("block", "scatter", "stored"))
        b.cbranch(neighbours, block, scatter)
        b.position_at_end(block)
        whole = values[0]
        if count == 2:
            picks = [x for i in range(LANES) for x in (i, LANES + i)]
            whole = b.shuffle_vector(*values, ir.Constant(ir.VectorType(_I32, len(picks)), picks))
        b.store(whole, b.inttoptr(lowest, whole.type.as_pointer()), align=1)
        b.branch(after)
        b.position_at_end(scatter)
        for i, value in enumerate(values):
            at = b.add(address, self._splat(self._i64(8 * i))) if i else address
            pointers = b.inttoptr(at, ir.VectorType(element.as_pointer(), LANES))
            name = f"llvm.masked.scatter.v{LANES}i{element.width}.v{LANES}p0i{element.width}"
            self._intrinsic(name, ir.VoidType(), [value, pointers, ir.Constant(_I32, 1), takes])
        b.branch(after)
        self.b.position_at_end(after)
