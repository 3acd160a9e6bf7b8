"""Payloads whose elements identify their origin, in the dtype under test.

Terms: a *code* numbers (repetition, rank, element) without gaps; a dtype has ``base`` usable values; a code is sent
digit by digit in that base over *rounds*: round k carries digit k. One round is injective while codes < base; all
rounds combined are injective while codes < base ** rounds. Of every four neighbours of a float type, while the type
has them, one is a subnormal number or zero and one is a NaN or infinity, with any significand; the others have any
exponent. Signs vary in all. An op that moves such values must keep their bits.

Every element is a pure function of the arguments: every rank can compute every other rank's payload. The process keeps
the *schemes* of the payloads that it made last, so that a wrong element can be traced back to its rank and place; see
``harness.oracles.origin``.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from harness.cases.dtypes import of_name, size_of
from harness.cases.recent import Recent

_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_SIGNIFICANDS = {"fp16": 10, "bf16": 7, "fp32": 23, "fp64": 52}
"""Stored bits of the significand; above them are the exponent and the sign."""

_BASES = {
    "int8": 1 << 8, "int16": 1 << 16, "int32": 1 << 32, "int64": 1 << 62, "bool": 2,
    "fp16": 1 << 16, "bf16": 1 << 16, "fp32": 1 << 26, "fp64": 1 << 55,
}  # fmt: skip
_SPREAD = {
    "bool": 1,
    "int8": 0x9D,
    "int16": 0x9E37,
    "int32": 0x9E3779B1,
    "int64": 0x9E3779B97F4A7C15,
    "fp32": 0x5E3779,
    "fp64": 0x9E3779B97F4A7,
}


@dataclass(frozen=True)
class Scheme:
    """Arguments of ``payload`` that are the same on all ranks."""

    dtype: str
    count: int
    ranks: int
    round_: int
    repetition: int
    converted: bool

    def of_rank(self, rank: int) -> torch.Tensor:
        """Return the payload of ``rank``."""
        return _payload(self.dtype, self.count, rank, self.ranks, self.round_, self.repetition, self.converted)


SCHEMES: Recent[Scheme] = Recent(256)
"""Those whose payloads were made in this case."""


def base_of(dtype: str) -> int:
    """Return the number of distinct values that a payload element of ``dtype`` can have."""
    return _BASES[dtype]


def rounds_needed(dtype: str, codes: int) -> int:
    """Return the number of rounds needed to distinguish ``codes`` codes: 1 for wide dtypes, many for bool."""
    base = base_of(dtype)
    return 1 if codes <= base else 1 + rounds_needed(dtype, -(-codes // base))


def digits(dtype: str, codes: NDArray[Any], round_: int) -> NDArray[Any]:
    """Return digit ``round_`` of each code (int64), as bit patterns of ``dtype`` (unsigned integers of its size)."""
    base = base_of(dtype)
    digit = (codes // base**round_ % base if round_ else codes % base).astype(np.uint64)
    return _encode(dtype, digit)


def payload(
    dtype: str, count: int, *, rank: int, ranks: int, round_: int = 0, repetition: int = 0, converted: bool = False
) -> torch.Tensor:
    """Return the ``count`` elements of ``rank`` of ``ranks``: element i has code (repetition * ranks + rank) * count +
    i.

    Narrow dtypes need ``rounds_needed(dtype, repetitions * ranks * count)`` rounds to be injective. With ``converted``
    floats are for an op that converts them: their exponents are from -4 to 3, which every float type can represent, and
    some are equal. Calls with equal arguments return the same tensor: copy it, do not write to it.
    """
    scheme = Scheme(dtype, count, ranks, round_, repetition, converted)
    SCHEMES.add(scheme)
    return scheme.of_rank(rank)


@functools.lru_cache(maxsize=4096)
def _payload(
    dtype: str, count: int, rank: int, ranks: int, round_: int, repetition: int, converted: bool
) -> torch.Tensor:
    start = (repetition * ranks + rank) * count
    bits = digits(dtype, np.arange(start, start + count, dtype=np.int64), round_)
    if converted and dtype in _SIGNIFICANDS:
        bits = _near_one(dtype, bits)
    return torch.from_numpy(bits.view(np.uint8)).view(of_name(dtype))


def _encode(dtype: str, digit: NDArray[Any]) -> NDArray[Any]:
    """Map [0, base) one to one onto bit patterns. An odd factor modulo a power of two separates neighbours."""
    bits = _BITS[size_of(dtype)]
    if dtype in ("fp16", "bf16"):
        return np.asarray(_narrow_floats(dtype)[digit])
    with np.errstate(over="ignore"):
        if dtype in ("fp32", "fp64"):
            return np.asarray(_wide_floats(dtype, digit), dtype=bits)
        return np.asarray(digit * np.uint64(_SPREAD[dtype]), dtype=bits)


def _wide_floats(dtype: str, digit: NDArray[Any]) -> NDArray[Any]:
    """Return the bit pattern of each digit: its two lowest bits choose the kind of number, the next one the sign."""
    significand = np.uint64(_SIGNIFICANDS[dtype])
    largest = np.uint64((1 << (8 * size_of(dtype) - 1 - int(significand))) - 1)
    kind, sign, number = digit & np.uint64(3), digit >> np.uint64(2) & np.uint64(1), digit >> np.uint64(3)
    fraction = number * np.uint64(_SPREAD[dtype]) & np.uint64((1 << int(significand)) - 1)
    # 151 is coprime to both counts of exponents, 254 and 2046, so that each of them occurs.
    normal = (number * np.uint64(2) + (kind & np.uint64(1))) * np.uint64(151) % (largest - np.uint64(1)) + np.uint64(1)
    exponent = np.where(kind == 0, np.uint64(0), np.where(kind == 1, largest, normal))
    top = np.uint64(8 * size_of(dtype) - 1)
    return np.asarray(sign << top | exponent << significand | fraction)


@functools.cache
def _narrow_floats(dtype: str) -> NDArray[Any]:
    """Return all 65536 bit patterns of a 16-bit float type in the order of their digits."""
    # The odd factor is 1 modulo 8, so that zero comes first and neighbours differ in exponent.
    patterns = (np.arange(1 << 16, dtype=np.uint32) * np.uint32(0x9E39)).astype(np.uint16)
    exponent = patterns << 1 >> (_SIGNIFICANDS[dtype] + 1)
    lowest, highest = exponent == 0, exponent == exponent.max()
    place = np.empty(1 << 16)
    for chosen, first, step in ((lowest, 0, 4), (highest, 1, 4), (~lowest & ~highest, 2, 2)):
        members = np.flatnonzero(chosen)
        # Of the numbers of the kind, zero or infinity with both signs first.
        significand = patterns[members] & ((1 << _SIGNIFICANDS[dtype]) - 1)
        members = members[np.argsort(significand != 0, kind="stable")]
        place[members] = first + step * np.arange(len(members))
    return np.asarray(patterns[np.argsort(place, kind="stable")])


def _near_one(dtype: str, bits: NDArray[Any]) -> NDArray[Any]:
    """Return the bit patterns with exponents from -4 to 3 in place of their own."""
    significand = _SIGNIFICANDS[dtype]
    exponents = (1 << (8 * size_of(dtype) - 1 - significand)) - 1
    own = (bits >> bits.dtype.type(significand)) & bits.dtype.type(exponents)
    near = (own & bits.dtype.type(7)) + bits.dtype.type(exponents // 2 - 4)
    return np.asarray(bits ^ ((own ^ near) << bits.dtype.type(significand)))
