"""Native functions of memory and matrix instructions for translated code.

They call the functions of the other modules on the record of one wavefront.

Each returns 1 without an effect if the access is bad: the interpreter then executes the instruction, and raises.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import njit

from harness.emulator.native import atomics, lds, memory, mfma, record, scalar, scratch
from harness.emulator.native.execute import Function
from harness.emulator.native.raw import get64, pointer, put64

_inline = njit(inline="always")
carray: Any = numba.carray  # type: ignore[attr-defined]
_MOST_PAIRS = 256


def _of_kind(kind: str) -> Callable[[Callable[[int, int], int]], Function]:
    """Return a decorator for a general function that has faster forms for the usual case."""
    return lambda python: Function(python, kind)


@_inline
def _registers(wave):
    vectors = carray(pointer(wave + record.VECTORS), (_MOST_PAIRS, 1, 64, 2), np.uint32)
    return vectors, carray(pointer(wave), (1, 128), np.uint32)


@_inline
def _mask(wave):
    """Write EXEC as bool[1, 64]."""
    mask = carray(pointer(wave + record.MASK), (1, 64), np.bool_)
    word = np.uint64(get64(wave + record.EXEC_BYTES))
    for lane in range(64):
        mask[0, lane] = (word >> np.uint64(lane)) & np.uint64(1) != 0
    return mask


@_inline
def _table(wave):
    context = get64(wave + record.CONTEXT)
    n = get64(context + 8 * record.ALLOCATIONS)
    starts = carray(pointer(get64(context + 8 * record.STARTS)), (n,), np.uint64)
    ends = carray(pointer(get64(context + 8 * record.ENDS)), (n,), np.uint64)
    return starts, ends, carray(pointer(get64(context + 8 * record.PEERS)), (n,), np.int32)


@_inline
def _counts(wave, site):
    """Count an execution of an access site; return the array that collects its lanes."""
    context = get64(wave + record.CONTEXT)
    executions = get64(context + 8 * record.EXECUTIONS) + 8 * site
    put64(executions, get64(executions) + 1)
    return carray(pointer(get64(context + 8 * record.LANES) + 16 * site), (2,), np.int64)


@_inline
def _undo(wave, site, counts, local, peer):
    """Undo what a bad access has counted."""
    executions = get64(get64(wave + record.CONTEXT) + 8 * record.EXECUTIONS) + 8 * site
    put64(executions, get64(executions) - 1)
    counts[0], counts[1] = local, peer


@_inline
def _share(wave):
    """Return the arguments of functions of ``lds`` that describe the data share: of one work-group here."""
    number = carray(pointer(wave + record.NUMBER), (1,), np.int64)
    size = get64(get64(wave + record.CONTEXT) + 8 * record.SHARE_BYTES)
    return number, carray(pointer(get64(wave + record.SHARE)), (max(1, size),), np.uint8), size


@_inline
def _remember(wave, v, s, p, starts, ends, mask):
    """Note the allocation of the first lane that accesses memory."""
    form, areg, sreg, soffset, offset = _form(p)
    for lane in range(64):
        if mask[0, lane]:
            address, inside = memory._address(form, v, s, 0, lane, areg, sreg, soffset, offset, get64(p + 48))
            if inside:
                put64(p + 8 * record.HINT, memory.find_allocation(starts, ends, address, np.uint64(1), 0))
                return


@_inline
def _form(p):
    return get64(p), get64(p + 8), get64(p + 16), get64(p + 24), get64(p + 32)


@_of_kind("load")
def load(wave, p):
    v, s = _registers(wave)
    starts, ends, peer = _table(wave)
    form, areg, sreg, soffset, offset = _form(p)
    register, size, signed, half, site = get64(p + 40), get64(p + 48), get64(p + 56), get64(p + 64), get64(p + 72)
    counts = _counts(wave, site)
    before = counts[0], counts[1]
    mask = _mask(wave)
    _remember(wave, v, s, p, starts, ends, mask)
    lane = memory.load(
        v, s, mask, form, areg, sreg, soffset, offset, register, size, signed != 0, half, starts, ends, peer, counts
    )
    if lane >= 0:
        _undo(wave, site, counts, before[0], before[1])
        return 1
    return 0


@_of_kind("store")
def store(wave, p):
    v, s = _registers(wave)
    starts, ends, peer = _table(wave)
    form, areg, sreg, soffset, offset = _form(p)
    register, size, high, site = get64(p + 40), get64(p + 48), get64(p + 56), get64(p + 64)
    counts = _counts(wave, site)
    before = counts[0], counts[1]
    lane = memory.store(
        v, s, _mask(wave), form, areg, sreg, soffset, offset, register, size, high != 0, starts, ends, peer, counts
    )
    if lane >= 0:
        _undo(wave, site, counts, before[0], before[1])
        return 1
    _remember(wave, v, s, p, starts, ends, _mask(wave))
    return 0


@_inline
def _reachable(wave, v, s, mask, form, areg, sreg, soffset, offset, size):
    """Return True if every lane's access is inside an allocation and aligned: an atomic must not stop half-way."""
    starts, ends, _ = _table(wave)
    at = carray(pointer(wave + record.ADDRESSES), (1, 64), np.uint64)
    takes = carray(pointer(wave + record.TAKES), (1, 64), np.bool_)
    memory.addresses(v, s, form, areg, sreg, soffset, offset, size, at, takes)
    hint = 0
    for lane in range(64):
        if mask[0, lane] and takes[0, lane]:
            hint = memory.find_allocation(starts, ends, at[0, lane], np.uint64(size), max(hint, 0))
            if hint < 0 or at[0, lane] & np.uint64(size - 1):
                return False
    return True


@Function
def atomic32(wave, p):
    v, s = _registers(wave)
    starts, ends, peer = _table(wave)
    form, areg, sreg, soffset, offset = _form(p)
    operation, data, target, site = get64(p + 40), get64(p + 48), get64(p + 56), get64(p + 64)
    mask = _mask(wave)
    if not _reachable(wave, v, s, mask, form, areg, sreg, soffset, offset, 4):
        return 1
    counts = _counts(wave, site)
    atomics.atomic32(v, s, mask, form, areg, sreg, soffset, offset, operation, data, target, starts, ends, peer, counts)
    return 0


@Function
def atomic64(wave, p):
    v, s = _registers(wave)
    starts, ends, peer = _table(wave)
    form, areg, sreg, soffset, offset = _form(p)
    operation, data, target, site = get64(p + 40), get64(p + 48), get64(p + 56), get64(p + 64)
    mask = _mask(wave)
    if not _reachable(wave, v, s, mask, form, areg, sreg, soffset, offset, 8):
        return 1
    counts = _counts(wave, site)
    atomics.atomic64(v, s, mask, form, areg, sreg, soffset, offset, operation, data, target, starts, ends, peer, counts)
    return 0


@_of_kind("scalar")
def load_scalar(wave, p):
    _, s = _registers(wave)
    starts, ends, _ = _table(wave)
    target, words, base, soffset, offset = _form(p)
    address = (np.uint64(s[0, base]) | np.uint64(s[0, base + 1]) << np.uint64(32)) + np.uint64(offset)
    if soffset >= 0:
        address += np.uint64(s[0, soffset])
    if memory.load_scalar(s, target, words, base, soffset, offset, starts, ends) >= 0:
        return 1
    put64(p + 8 * record.HINT, memory.find_allocation(starts, ends, address, np.uint64(1), 0))
    return 0


@Function
def load_scalar_buffer(wave, p):
    _, s = _registers(wave)
    starts, ends, _ = _table(wave)
    bad = scalar.load_buffer(s, get64(p), get64(p + 8), get64(p + 16), get64(p + 24), get64(p + 32), starts, ends)
    return 1 if bad >= 0 else 0


@_inline
def _inside(wave, v, mask, areg, last):
    """Return True if every active lane's address, plus ``last`` bytes, is in the data share."""
    size = get64(get64(wave + record.CONTEXT) + 8 * record.SHARE_BYTES)
    row, half = v[areg >> 1, 0], areg & 1
    highest = np.int64(0)
    for lane in range(64):
        highest = max(highest, np.int64(row[lane, half]) if mask[0, lane] else np.int64(0))
    return highest + last <= size


@_of_kind("read")
def read_share(wave, p):
    v, _ = _registers(wave)
    mask = _mask(wave)
    number, share, size = _share(wave)
    areg, offset, second, register = get64(p), get64(p + 8), get64(p + 16), get64(p + 24)
    width, signed, half = get64(p + 32), get64(p + 40), get64(p + 48)
    if not _inside(wave, v, mask, areg, max(offset, second) + width):
        return 1
    lds.load(v, mask, number, 1, number[0], share, size, areg, offset, second, register, width, signed != 0, half)
    return 0


@_of_kind("write")
def write_share(wave, p):
    """Parameters: address register, bytes, upper half, number of parts, and for each part offset and register."""
    v, _ = _registers(wave)
    mask = _mask(wave)
    number, share, size = _share(wave)
    areg, width, high, parts = get64(p), get64(p + 8), get64(p + 16), get64(p + 24)
    for part in range(parts):
        if not _inside(wave, v, mask, areg, get64(p + 32 + 16 * part) + width):
            return 1
    for part in range(parts):
        at = p + 32 + 16 * part
        lds.store(v, mask, number, 1, number[0], share, size, areg, get64(at), get64(at + 8), width, high != 0)
    return 0


@Function
def atomic_share(wave, p):
    v, _ = _registers(wave)
    mask = _mask(wave)
    number, share, size = _share(wave)
    areg, offset, operation, source = get64(p), get64(p + 8), get64(p + 16), get64(p + 24)
    second, target, width = get64(p + 32), get64(p + 40), get64(p + 48)
    if not _inside(wave, v, mask, areg, offset + width):
        return 1
    for lane in range(64):
        if mask[0, lane] and (np.int64(v[areg >> 1, 0, lane, areg & 1]) + offset) % width:
            return 1
    lds.atomic(v, mask, number, 1, number[0], share, size, areg, offset, operation, source, second, target, width)
    return 0


@_inline
def _private(wave):
    """Return the arguments of functions of ``scratch`` that describe the private segments, of one wavefront here."""
    number = carray(pointer(wave + record.NUMBER), (1,), np.int64)
    size = get64(get64(wave + record.CONTEXT) + 8 * record.PRIVATE_BYTES)
    return number, carray(pointer(get64(wave + record.PRIVATE)), (max(1, 64 * size),), np.uint8), size


@_inline
def _fits(v, s, mask, areg, sreg, offset, width, size):
    for lane in range(64):
        if mask[0, lane] and scratch._inner(v, s, 0, lane, areg, sreg, offset) + width > size:
            return False
    return True


@Function
def load_private(wave, p):
    v, s = _registers(wave)
    mask = _mask(wave)
    number, memory_, size = _private(wave)
    areg, sreg, offset, register = get64(p), get64(p + 8), get64(p + 16), get64(p + 24)
    width, signed, half = get64(p + 32), get64(p + 40), get64(p + 48)
    if not _fits(v, s, mask, areg, sreg, offset, width, size):
        return 1
    scratch.load(v, s, mask, number, number[0], memory_, size, areg, sreg, offset, register, width, signed != 0, half)
    return 0


@Function
def store_private(wave, p):
    v, s = _registers(wave)
    mask = _mask(wave)
    number, memory_, size = _private(wave)
    areg, sreg, offset, register = get64(p), get64(p + 8), get64(p + 16), get64(p + 24)
    width, high = get64(p + 32), get64(p + 40)
    if not _fits(v, s, mask, areg, sreg, offset, width, size):
        return 1
    scratch.store(v, s, mask, number, number[0], memory_, size, areg, sreg, offset, register, width, high != 0)
    return 0


@Function
def permute(wave, p):
    """ds_bpermute_b32: parameters target, address and data register, offset."""
    v, _ = _registers(wave)
    mask = _mask(wave)
    target, address, data, offset = get64(p), get64(p + 8), get64(p + 16), get64(p + 24)
    value = carray(pointer(wave + record.ADDRESSES), (64,), np.uint32)
    for lane in range(64):
        value[lane] = v[data >> 1, 0, lane, data & 1] if mask[0, lane] else np.uint32(0)
    for lane in range(64):
        if mask[0, lane]:
            source = (np.int64(v[address >> 1, 0, lane, address & 1]) + offset) >> 2 & 63
            v[target >> 1, 0, lane, target & 1] = value[source]
    return 0


@_inline
def _places(p, at):
    return carray(pointer(get64(p + 8 * at)), (get64(p + 8 * at + 8), 3), np.int32)


@_inline
def _matrix(p):
    registers = get64(p), get64(p + 8), get64(p + 16), get64(p + 24)
    shape = get64(p + 32), get64(p + 40), get64(p + 48), get64(p + 56)
    return registers, shape, _places(p, 8), _places(p, 10), _places(p, 12), np.uint64(get64(p + 112))


@_inline
def _float_form(at):
    return get64(at), get64(at + 8), get64(at + 16), get64(at + 24), get64(at + 32), get64(at + 40)


@_of_kind("product")
def fused_sum(wave, p):
    v, _ = _registers(wave)
    registers, shape, a_at, b_at, d_at, constant = _matrix(p)
    forms = get64(p + 120)
    unscaled = carray(pointer(wave), (0, 64), np.int32)
    mfma.fused_sum(
        v, registers, shape, a_at, b_at, d_at, constant, _float_form(forms), _float_form(forms + 48), get64(p + 128),
        get64(p + 136), unscaled, unscaled,
    )  # fmt: skip
    return 0


@Function
def chain_f32(wave, p):
    v, _ = _registers(wave)
    registers, shape, a_at, b_at, d_at, constant = _matrix(p)
    mfma.chain_f32(v, registers, shape, a_at, b_at, d_at, constant)
    return 0


@Function
def chain_f64(wave, p):
    v, _ = _registers(wave)
    registers, shape, a_at, b_at, d_at, constant = _matrix(p)
    mfma.chain_f64(v, registers, shape, a_at, b_at, d_at, constant, get64(p + 120))
    return 0


@Function
def wrapping_i8(wave, p):
    v, _ = _registers(wave)
    registers, shape, a_at, b_at, d_at, constant = _matrix(p)
    mfma.wrapping_i8(v, registers, shape, a_at, b_at, d_at, constant)
    return 0
