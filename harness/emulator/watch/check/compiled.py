"""Checks of mode ``check`` for each lane of a memory instruction, compiled by numba; shapes as in ``emulator.native``.

Functions return the flat lane (wavefront * 64 + lane) of the first lane with an error, or -1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, types

from harness.emulator import compilation
from harness.emulator.native import memory as native

_jit = njit(cache=True, nogil=True)
_inline = njit(inline="always")

# A record of an access to one byte of LDS: the wavefront's count of accesses, wavefront + 1, instruction, and flags.
COUNT, WAVE, INSTRUCTION = 37, 22, 2
COUNT_MASK, WAVE_MASK, INSTRUCTION_MASK = (1 << 26) - 1, (1 << 15) - 1, (1 << 20) - 1
ATOMIC_FLAG, COPY_FLAG = 1, 2
READ, WRITE, ATOMIC = 0, 1, 2


@_inline
def _number(record):
    return (record >> WAVE & WAVE_MASK) - 1


@_inline
def _unordered(record, ordered):
    """Return True if an access may still be incomplete for another wavefront.

    ``ordered`` int64[2, waves] counts the accesses that are complete, of data share instructions and of copies to LDS.
    """
    copy = 1 if record & COPY_FLAG else 0
    return (record >> COUNT) > ordered[copy, _number(record)]


@_jit
def touch_lds(
    v, at, mask, wave, waves_per_group, first_group, group_bytes, size, kind, copy, instruction, data, high, lds,
    written, read, other_read, issued, published, conflict,
):  # fmt: skip
    """Record one part of an LDS access by byte, and look for an earlier, unordered access of another wavefront.

    ``at`` int64[W, 64], the lanes' addresses; ``kind`` READ, WRITE or ATOMIC, ``copy`` 1 for a copy from global
    memory; ``data`` the first data register of a write (-1: unknown), to let wavefronts write the same value;
    ``written``, ``read``, ``other_read`` int64[bytes] records; ``issued``, ``published`` int64[2, waves]: accesses so
    far, and those that were complete when the wavefront last passed an s_barrier. ``conflict[0]`` receives the record
    of the other access, ``conflict[1]`` the byte's address.
    """
    first = first_group * waves_per_group
    for w in range(mask.shape[0]):
        number = wave[w] - first
        base = (wave[w] // waves_per_group - first_group) * group_bytes
        flags = (ATOMIC_FLAG if kind == ATOMIC else 0) | (COPY_FLAG if copy else 0)
        record = issued[copy, number] << COUNT | (number + 1) << WAVE | instruction << INSTRUCTION | flags
        for lane in range(64):
            if not mask[w, lane]:
                continue
            inner = at[w, lane]
            if inner < 0 or inner + size > group_bytes:
                continue
            for i in range(size):
                byte_at = base + inner + i
                last = written[byte_at]
                racing = last != 0 and _number(last) != number and _unordered(last, published)
                if racing and kind == ATOMIC and last & ATOMIC_FLAG:
                    racing = False
                if kind == WRITE and data >= 0:
                    register = data + (i >> 2)
                    shift = 8 * (i & 3) + (16 if high else 0)
                    byte = np.uint8((v[register >> 1, w, lane, register & 1] >> np.uint32(shift)) & np.uint32(0xFF))
                    if racing and byte == lds[byte_at]:
                        continue  # wavefronts that hold the same element write the same value
                    # The instruction will write the byte too; write it now, so that the following wavefronts see the
                    # value.
                    lds[byte_at] = byte
                if racing:
                    conflict[0], conflict[1] = last, inner + i
                    return w * 64 + lane
                if kind == READ:
                    before = read[byte_at]
                    if before == 0 or _number(before) == number or not _unordered(before, published):
                        read[byte_at] = record
                    else:
                        other_read[byte_at] = record
                    continue
                for reader in (read[byte_at], other_read[byte_at]):
                    if reader != 0 and _number(reader) != number and _unordered(reader, published):
                        conflict[0], conflict[1] = reader, inner + i
                        return w * 64 + lane
                written[byte_at] = record
    return -1


@_jit
def load_bits(at, bits, mask, wave, waves_per_group, first_group, undefined, group_bytes, dst, size, signed, half):
    """Load the undefined bits of a ds_read to ``bits``; parameters as in ``native.load_lds``."""
    for w in range(mask.shape[0]):
        base = (wave[w] // waves_per_group - first_group) * group_bytes
        for lane in range(64):
            if not mask[w, lane]:
                continue
            inner = at[w, lane]
            if inner < 0 or inner + size > group_bytes:
                continue
            first = base + inner
            if size >= 4:
                for i in range(size >> 2):
                    word = np.uint32(0)
                    for k in range(4):
                        word |= np.uint32(undefined[first + 4 * i + k]) << np.uint32(8 * k)
                    bits[(dst + i) >> 1, w, lane, (dst + i) & 1] = word
                continue
            value = np.uint32(undefined[first])
            top = np.uint32(0x80)
            if size == 2:
                value |= np.uint32(undefined[first + 1]) << np.uint32(8)
                top = np.uint32(0x8000)
            if signed and value & top:
                value |= ~np.uint32(top + top - np.uint32(1))
            if half:
                old = bits[dst >> 1, w, lane, dst & 1]
                if half == 1:
                    value = np.uint32(old & np.uint32(0xFFFF0000)) | np.uint32(value & np.uint32(0xFFFF))
                else:
                    value = np.uint32(old & np.uint32(0xFFFF)) | np.uint32(value << np.uint32(16))
            bits[dst >> 1, w, lane, dst & 1] = value
    return -1


@_jit
def store_bits(at, bits, mask, wave, waves_per_group, first_group, undefined, group_bytes, src, size, high, keep):
    """Store the undefined bits of a ds_write; ``keep``: add them to the bits already there, as an atomic does."""
    for w in range(mask.shape[0]):
        base = (wave[w] // waves_per_group - first_group) * group_bytes
        for lane in range(64):
            if not mask[w, lane]:
                continue
            inner = at[w, lane]
            if inner < 0 or inner + size > group_bytes:
                continue
            for i in range(size):
                register = src + (i >> 2)
                shift = 8 * (i & 3) + (16 if high else 0)
                byte = np.uint8((bits[register >> 1, w, lane, register & 1] >> np.uint32(shift)) & np.uint32(0xFF))
                byte_at = base + inner + i
                undefined[byte_at] = undefined[byte_at] | byte if keep else byte
    return -1


@_jit
def forgotten_bits(addresses, lanes, size, start, state, memory, pattern, bits, dst, writes):
    """Process accesses to a forgotten region: ``state`` uint8[bytes] is 1 for bytes that were never written.

    A byte that no longer holds the region's ``pattern`` was written outside the emulator, and so was the rest of its
    aligned 16 bytes. ``writes``: the bytes become defined. Otherwise, if ``dst`` >= 0, the undefined bytes become
    undefined bits of the loaded registers. Returns the first lane that read an undefined byte.
    """
    first = -1
    for w in range(lanes.shape[0]):
        for lane in range(64):
            if not lanes[w, lane]:
                continue
            for i in range(size):
                at = np.int64(addresses[w, lane]) + i - start
                if at < 0 or at >= state.shape[0] or state[at] == 0:
                    continue
                if writes:
                    state[at] = 0
                    continue
                low = max(at & ~15, 0)
                high = min((at & ~15) + 16, state.shape[0])
                outside = False
                for k in range(low, high):
                    if state[k] and memory[k] != pattern[k]:
                        outside = True
                if outside:
                    state[low:high] = 0
                    continue
                if first < 0:
                    first = w * 64 + lane
                if dst >= 0:
                    register = dst + (i >> 2)
                    bits[register >> 1, w, lane, register & 1] |= np.uint32(0xFF) << np.uint32(8 * (i & 3))
    return first


_V, _MASK, _I, _B = native._V, native._MASK, types.int64, types.boolean
_BYTES, _RECORDS, _COUNTS = types.uint8[::1], types.int64[::1], types.int64[:, ::1]
_AT = _COUNTS
_SIGNATURES: dict[Any, tuple[Any, ...]] = {
    touch_lds: (_V, _AT, _MASK, _RECORDS, _I, _I, _I, _I, _I, _I, _I, _I, _B,
                _BYTES, _RECORDS, _RECORDS, _RECORDS, _COUNTS, _COUNTS, _RECORDS),
    load_bits: (_AT, _V, _MASK, _RECORDS, _I, _I, _BYTES, _I, _I, _I, _B, _I),
    store_bits: (_AT, _V, _MASK, _RECORDS, _I, _I, _BYTES, _I, _I, _I, _B, _B),
    forgotten_bits: (types.uint64[:, ::1], _MASK, _I, _I, _BYTES, _BYTES, _BYTES, _V, _I, _B),
}  # fmt: skip


def prepare() -> None:
    """Compile the functions above, or load them from the cache: only a process in mode ``check`` needs them."""
    compilation.compile_now(_SIGNATURES)


def parts_of(record: int) -> tuple[int, int, bool]:
    """Return a record's wavefront number in its chunk, instruction index, and whether it was a copy to LDS."""
    return (record >> WAVE & WAVE_MASK) - 1, record >> INSTRUCTION & INSTRUCTION_MASK, bool(record & COPY_FLAG)


def count_of(record: int) -> int:
    """Return a record's number of the access among those of its wavefront."""
    return record >> COUNT
