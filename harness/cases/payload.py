"""Payloads whose elements identify their origin, in the dtype under test.

Terms: a *code* numbers (repetition, rank, element) without gaps; a dtype has ``base`` usable values; a code is sent
digit by digit in that base over *rounds*: round k carries digit k. One round is injective while codes < base; all
rounds combined are injective while codes < base ** rounds. Values are bit patterns without NaN and infinity, so
moving them is exact.

Each function is a pure function of its arguments: every rank can compute every other rank's payload.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from harness.cases.dtypes import of_name, size_of

_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_BASES = {
    "int8": 1 << 8, "int16": 1 << 16, "int32": 1 << 32, "int64": 1 << 62, "bool": 2,
    "fp16": 2 * 0x7C00, "bf16": 2 * 0x7F80, "fp32": 1 << 23, "fp64": 1 << 52,
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


def base_of(dtype: str) -> int:
    """Return the number of distinct values that a payload element of ``dtype`` can have."""
    return _BASES[dtype]


def rounds_needed(dtype: str, codes: int) -> int:
    """Return the number of rounds needed to distinguish ``codes`` codes: 1 for wide dtypes, many for bool."""
    rounds, reach = 1, base_of(dtype)
    while reach < codes:
        rounds, reach = rounds + 1, reach * base_of(dtype)
    return rounds


def digits(dtype: str, codes: NDArray[Any], round_: int) -> NDArray[Any]:
    """Return digit ``round_`` of each code (int64), as bit patterns of ``dtype`` (unsigned integers of its size)."""
    base = base_of(dtype)
    digit = (codes // base**round_ % base if round_ else codes % base).astype(np.uint64)
    return _encode(dtype, digit)


def payload(dtype: str, count: int, *, rank: int, ranks: int, round_: int = 0, repetition: int = 0) -> torch.Tensor:
    """Return the ``count`` elements of ``rank`` of ``ranks``: element i has code (repetition * ranks + rank) * count +
    i.

    Narrow dtypes need ``rounds_needed(dtype, repetitions * ranks * count)`` rounds to be injective. Calls with equal
    arguments return the same tensor: copy it, do not write to it.
    """
    return _payload(dtype, count, rank, ranks, round_, repetition)


@functools.lru_cache(maxsize=4096)
def _payload(dtype: str, count: int, rank: int, ranks: int, round_: int, repetition: int) -> torch.Tensor:
    start = (repetition * ranks + rank) * count
    bits = digits(dtype, np.arange(start, start + count, dtype=np.int64), round_)
    return torch.from_numpy(bits.view(np.uint8)).view(of_name(dtype))


def _encode(dtype: str, digit: NDArray[Any]) -> NDArray[Any]:
    """Map [0, base) one to one onto usable bit patterns. An odd factor modulo a power of two separates neighbours."""
    bits = _BITS[size_of(dtype)]
    if dtype in ("fp16", "bf16"):
        half = np.uint64(base_of(dtype) // 2)
        # 7 is coprime to both halves (0x7C00 = 31 * 2**10, 0x7F80 = 255 * 2**7), so the product stays a bijection.
        spread: NDArray[Any] = (digit % half) * np.uint64(7) % half
        return np.asarray(spread + (digit // half << np.uint64(15)), dtype=bits)
    with np.errstate(over="ignore"):
        spread = digit * np.uint64(_SPREAD[dtype])
    if dtype == "fp32":
        return np.asarray((spread & np.uint64((1 << 23) - 1)) + np.uint64(0x3F800000), dtype=bits)
    if dtype == "fp64":
        return np.asarray((spread & np.uint64((1 << 52) - 1)) + np.uint64(0x3FF << 52), dtype=bits)
    return spread.astype(bits)
