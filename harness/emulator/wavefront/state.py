"""Registers of wavefronts that are at the same instruction.

A ``Wavefronts`` is the unit of execution: W wavefronts of 64 lanes, whose registers are contiguous so that one NumPy
operation executes an instruction for all of them.

Vector registers are kept in pairs, ``v[pair, wavefront, lane, half]``, because gfx90a and later align every 64-bit VGPR
operand to an even register (LLVM AMDGPUUsage, "gfx90a"): a 64-bit operand is then a view, without joining halves.
Accumulation registers follow at ``accum_offset``, as in the unified register file. Scalar registers are
``s[wavefront, register]``; 64-bit scalars are views too. Index 106 is VCC, 124 M0, 126 EXEC, as in the instruction
encoding.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.emulator.native import memory as native

LANES = 64
VCC, M0, EXEC = 106, 124, 126
# The MODE register: kept with the scalar registers, at an index that no operand uses. Its fields: see ``modes``.
MODE = 125
ROUNDING, DENORMALS_32, DENORMALS_16_64, DX10_CLAMP, IEEE, FP16_OVFL = 0xF, 3 << 4, 3 << 6, 1 << 8, 1 << 9, 1 << 23
SGPRS = 128

# Types of an operand, as spelled in the ops tables. The order is part of a view's key.
TYPES = ("u32", "i32", "f32", "u64", "i64", "f64", "u16", "i16", "f16", "h16", "hi16", "hf16")
_DTYPES = {
    "u32": np.uint32, "i32": np.int32, "f32": np.float32,
    "u64": np.uint64, "i64": np.int64, "f64": np.float64,
    "u16": np.uint16, "i16": np.int16, "f16": np.float16,
    "h16": np.uint16, "hi16": np.int16, "hf16": np.float16,
}  # fmt: skip
DTYPES = {t: np.dtype(d) for t, d in _DTYPES.items()}
CODE = {t: i for i, t in enumerate(TYPES)}
_SHIFT = 4

# The kind of register decides the shape of its view: [W, 64] for a vector register, [W, 1] for a scalar register that
# a vector instruction reads, [W] for a scalar register in a scalar instruction.
VECTOR, BROADCAST, SCALAR = 0, 1 << 14, 1 << 15

# SCC and constants are views too, so that a step reads every operand the same way.
SCC = (1 << 20) - 1
_CONSTANT = 1 << 20
_constants: list[np.ndarray] = []
_constant_keys: dict[tuple[str, bytes], int] = {}


def key(where: int, register: int, kind: str) -> int:
    """Return the key of a view in ``Wavefronts.view``; computed while decoding."""
    return where | register << _SHIFT | CODE[kind]


def constant_key(value: np.ndarray) -> int:
    """Return the key of a constant: a 0-d array of the operand's dtype; equal constants share one key."""
    identity = (value.dtype.str, value.tobytes())
    if identity not in _constant_keys:
        _constants.append(value)
        _constant_keys[identity] = _CONSTANT + len(_constants) - 1
    return _constant_keys[identity]


def constant_of(k: int) -> np.ndarray:
    """Return the constant of a ``constant_key``."""
    return _constants[k - _CONSTANT]


class _Views(dict[int, np.ndarray]):
    """Views of registers by key, created on first use."""

    __slots__ = ("s", "scc", "v")

    def __init__(self, v: np.ndarray, s: np.ndarray, scc: np.ndarray) -> None:
        super().__init__()
        self.v, self.s, self.scc = v, s, scc

    def __missing__(self, k: int) -> np.ndarray:
        if k >= SCC:
            array = self.scc if k == SCC else constant_of(k)
            self[k] = array
            return array
        kind = TYPES[k & 15]
        register = (k & (BROADCAST - 1)) >> _SHIFT
        dtype = DTYPES[kind]
        high = kind[0] == "h"
        per_word = 4 // dtype.itemsize or 1
        if k & (BROADCAST | SCALAR):
            column = register * per_word + high if dtype.itemsize < 8 else register >> 1
            array = self.s.view(dtype)[:, column]
            if k & BROADCAST:
                array = array[:, None]
        else:
            half = (register & 1) * per_word + high if dtype.itemsize < 8 else 0
            array = self.v[register >> 1].view(dtype)[:, :, half]
        self[k] = array
        return array


class Wavefronts:
    """W wavefronts at the start of block ``block``.

    ``wave``       int64[W], the wavefront's number in the launch
    ``exec_mask``  bool[W, 64], EXEC by lane; ``exec_all`` is True when every lane is active; ``active`` counts them
    ``scc``        bool[W]
    ``chunk``      the ``execution.launch.Chunk`` of work-groups that they belong to (that package imports this one)
    ``turn``       how many scheduling quanta these wavefronts have used
    ``shadow``     per-register state of a watched mode, None otherwise; it is split and merged with the wavefronts
    """

    __slots__ = (
        "_addresses",
        "active",
        "block",
        "chunk",
        "exec_all",
        "exec_mask",
        "loops",
        "s",
        "scc",
        "shadow",
        "turn",
        "v",
        "view",
        "wave",
    )

    def __init__(
        self,
        chunk: Any,
        wave: np.ndarray,
        v: np.ndarray,
        s: np.ndarray,
        scc: np.ndarray,
        block: int = 0,
        turn: int = 0,
    ) -> None:
        self.chunk = chunk
        self.wave = wave
        self.v = v
        self.s = s
        self.scc = scc
        self.block = block
        self.turn = turn
        self.loops = 0
        self.shadow: Any = None
        self.view = _Views(v, s, scc)
        self._addresses: tuple[int, int, int, int] | None = None
        self.refresh_exec()

    def __len__(self) -> int:
        return len(self.wave)

    def addresses(self) -> tuple[int, int, int, int]:
        """Return the arguments of compiled code: the addresses of ``v``, ``s`` and ``scc``, and W."""
        if self._addresses is None:
            v, s, scc = (a.__array_interface__["data"][0] for a in (self.v, self.s, self.scc))
            self._addresses = (v, s, scc, len(self.wave))
        return self._addresses

    def refresh_exec(self) -> None:
        """Update the lane mask after EXEC was written."""
        # A new array, so that masks read earlier stay unchanged.
        self.exec_mask = np.empty((len(self.wave), LANES), np.bool_)
        self.active: int = native.lane_masks(self.s, EXEC, self.exec_mask)
        self.exec_all = self.active == self.exec_mask.size

    def select(self, rows: np.ndarray) -> Wavefronts:
        """Return a copy of the wavefronts ``rows`` (bool[W] or indices)."""
        indices = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        v = vector_registers(len(self.v), len(indices))
        part = Wavefronts(
            self.chunk,
            self.wave[rows],
            self.v.take(indices, axis=1, out=v, mode="clip"),
            self.s[rows],
            self.scc[rows],
            self.block,
            self.turn,
        )
        part.loops = self.loops
        if self.shadow is not None:
            part.shadow = self.shadow.select(rows)
        return part

    @staticmethod
    def merge(parts: list[Wavefronts]) -> Wavefronts:
        """Join wavefronts that are at the same block."""
        first = parts[0]
        v = vector_registers(len(first.v), sum(len(p) for p in parts))
        merged = Wavefronts(
            first.chunk,
            np.concatenate([p.wave for p in parts]),
            np.concatenate([p.v for p in parts], axis=1, out=v),
            np.concatenate([p.s for p in parts]),
            np.concatenate([p.scc for p in parts]),
            first.block,
            max(p.turn for p in parts),
        )
        merged.loops = max(p.loops for p in parts)
        if first.shadow is not None:
            merged.shadow = first.shadow.merge([p.shadow for p in parts])
        return merged


# Memory of unused registers, by size. Reusing it avoids the page faults of fresh memory, which take longer than many
# kernels.
_spare: dict[int, list[np.ndarray]] = {}
_MOST_SPARE = 4
_LINE = 64


class _Memory:
    """Memory of register arrays, returned to the spare list when the last array on it is gone."""

    def __init__(self, memory: np.ndarray, spare: list[np.ndarray]) -> None:
        self.__array_interface__ = memory.__array_interface__
        self.memory = memory
        self.spare = spare

    def __del__(self) -> None:
        if len(self.spare) < _MOST_SPARE:
            self.spare.append(self.memory)


def vector_registers(pairs: int, waves: int) -> np.ndarray:
    """Return uninitialised vector registers for ``waves`` wavefronts, aligned to a cache line."""
    size = pairs * waves * LANES * 2
    words = 1 << (size + _LINE // 4 - 1).bit_length()
    spare = _spare.setdefault(words, [])
    try:
        memory = spare.pop()
    except IndexError:
        memory = np.empty(words, np.uint32)
    first = -memory.ctypes.data % _LINE // 4
    return np.asarray(_Memory(memory, spare))[first : first + size].reshape(pairs, waves, LANES, 2)


def unpack(words: Any) -> Any:
    """Unpack uint64[W] lane masks to bool[W, 64], bit i = lane i."""
    if not isinstance(words, np.ndarray):
        return words.unpacked()  # symbolic: see harness.emulator.program.compiled
    octets = np.ascontiguousarray(words).view(np.uint8)
    return np.unpackbits(octets, bitorder="little").view(np.bool_).reshape(-1, LANES)


def pack(mask: Any) -> Any:
    """Pack bool[W, 64] to uint64[W] lane masks; the inverse of ``unpack``."""
    if not isinstance(mask, np.ndarray):
        return mask.packed()
    return np.packbits(mask.reshape(-1), bitorder="little").view(np.uint64)
