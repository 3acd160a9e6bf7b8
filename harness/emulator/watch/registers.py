"""Transfer between registers and bytes, one wavefront at a time, for a watched mode that moves the data itself."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from harness.emulator.native import atomics as native_atomics
from harness.emulator.native import memory as native
from harness.emulator.operations.access import ATOMIC, LOAD, STORE, CopyAccess, GlobalAccess, ScratchAccess, TypedAccess
from harness.emulator.operations.atomics import pk_add_bf16, pk_add_f16
from harness.emulator.wavefront.state import Wavefronts


def locate(
    wf: Wavefronts, access: GlobalAccess | CopyAccess, addresses: np.ndarray, lanes: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return start and end of the allocation of each lane's address; raises the fault of the first bad lane."""
    starts, ends, _ = wf.chunk.table
    chosen = addresses[lanes]
    at = np.searchsorted(starts, chosen, side="right").astype(np.int64) - 1
    bad = (at < 0) | (chosen + np.uint64(access.size) > ends[np.maximum(at, 0)])
    misaligned = (chosen % np.uint64(access.size) != 0) if access.kind == ATOMIC else np.zeros(len(lanes), np.bool_)
    if (bad | misaligned).any():
        first = int(np.flatnonzero(bad | misaligned)[0])
        wf.chunk.memory_fault(
            wf, access.instruction, int(lanes[first]), int(chosen[first]), access.size, bool(misaligned[first])
        )
    return starts[at], ends[at]


def gather(wf: Wavefronts, access: GlobalAccess, lanes: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the stored bytes, uint8[lanes, size] (empty for a load), and a compare-and-swap's expected values."""
    if access.kind == LOAD:
        return np.zeros((len(lanes), access.size), np.uint8), None
    data = _words(wf, access.data, access.words, lanes)
    if access.kind != ATOMIC:
        if access.half == 2:
            data = data >> np.uint32(16)
        if isinstance(access, TypedAccess):
            data = access.element(data)
        return np.ascontiguousarray(data.view(np.uint8)[:, : access.size]), None
    compared = None
    if access.operation == native.CMPSWAP:
        compared = _words(wf, access.data + access.size // 4, access.size // 4, lanes).view(np.uint8)
    return data.view(np.uint8), compared


def deliver(wf: Wavefronts, access: GlobalAccess, lanes: np.ndarray | None, data: np.ndarray) -> None:
    """Write a load's bytes, uint8[lanes, size], to its destination registers."""
    words = _extended(data, access.size, access.signed)
    if isinstance(access, TypedAccess):
        words = access.loaded(words)
    if access.half:
        old = wf.v[access.data >> 1][0, lanes, access.data & 1][:, None]
        low, high = np.uint32(0xFFFF), np.uint32(0xFFFF0000)
        words = (old & high | words & low) if access.half == 1 else (old & low | words << np.uint32(16))
    _write(wf, access.data, lanes, words)


def deliver_to_share(wf: Wavefronts, access: CopyAccess, places: np.ndarray, data: np.ndarray) -> None:
    """Write the bytes of a load to LDS, uint8[lanes, size], to ``places``, int64[lanes] in the chunk's share."""
    words = np.ascontiguousarray(_extended(data, access.size, access.signed))
    wf.chunk.lds[places[:, None] + np.arange(access.slot)] = words.view(np.uint8)


def _extended(data: np.ndarray, size: int, signed: bool) -> np.ndarray:
    """Extend values of ``size`` bytes per lane to dwords."""
    if size >= 4:
        return data.view(np.uint32)
    narrow = data.view(np.uint8 if size == 1 else np.uint16)
    return narrow.view(f"i{size}").astype(np.int32).view(np.uint32) if signed else narrow.astype(np.uint32)


def deliver_old(wf: Wavefronts, access: GlobalAccess, lanes: np.ndarray | None, data: np.ndarray) -> None:
    """Write the old values of an atomic to its target registers."""
    _write(wf, access.target, lanes, data.view(np.uint32))


def clear(wf: Wavefronts, access: GlobalAccess, lanes: np.ndarray) -> None:
    """Write 0 to the registers of lanes whose buffer access is out of range."""
    if isinstance(access, TypedAccess):
        kept = {0: 0, 1: 0xFFFF0000, 2: 0xFFFF}[access.half]
        _write(wf, access.data, lanes, _words(wf, access.data, access.words, lanes) & np.uint32(kept))
    elif access.kind == LOAD:
        deliver(wf, access, lanes, np.zeros((len(lanes), access.size), np.uint8))
    elif access.target >= 0:
        deliver_old(wf, access, lanes, np.zeros((len(lanes), access.size), np.uint8))


def fold(access: GlobalAccess, old: np.ndarray, value: np.ndarray) -> np.ndarray:
    """Compute the new bytes of one read-modify-write: ``old``, ``value`` and the result are uint8[size]."""
    if access.operation in (native.SWAP, native.CMPSWAP):
        return value
    kind = np.uint32 if access.size == 4 else np.uint64
    a, b = old.view(kind), value.view(kind)
    if access.operation in (native.PK_ADD_F16, native.PK_ADD_BF16):
        add: Callable[..., np.ndarray] = pk_add_f16 if access.operation == native.PK_ADD_F16 else pk_add_bf16
        result = add(a, b)
    else:
        function = native_atomics.fold32 if access.size == 4 else native_atomics.fold64
        result = np.array([function(access.operation, a[0], b[0])], kind)
    return np.asarray(result).view(np.uint8)


def _words(wf: Wavefronts, register: int, count: int, lanes: np.ndarray) -> np.ndarray:
    """Read consecutive registers as uint32[lanes, count]."""
    return np.ascontiguousarray(np.stack([wf.v[r >> 1][0, lanes, r & 1] for r in range(register, register + count)], 1))


def _write(wf: Wavefronts, register: int, lanes: np.ndarray | None, words: np.ndarray) -> None:
    for i in range(words.shape[1]):
        wf.v[(register + i) >> 1][0, lanes, (register + i) & 1] = words[:, i]


def written(access: GlobalAccess | CopyAccess | ScratchAccess | None) -> frozenset[int]:
    """Return the vector registers that receive a load's data, or the old value of an atomic."""
    if access is None or isinstance(access, CopyAccess) or access.kind == STORE:
        return frozenset()
    first = access.data if access.kind == LOAD or isinstance(access, ScratchAccess) else access.target
    words = access.words if isinstance(access, GlobalAccess) else max(1, access.size // 4)
    return frozenset(range(first, first + words)) if first >= 0 else frozenset()
