"""One block moved between heaps: put, store, get, load and copy."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from harness.cases.dtypes import DType, converted, size_of, vector_of
from harness.cases.registry import case_type
from harness.cases.values import OneOf

LANES = 64
FORMS = ("gluon", "context", "function")
"""Which kernel acts: Gluon's with ``IrisDeviceCtx``, Triton's with ``DeviceContext``, or Triton's with functions."""

MASKS = ("none", "range", "even", "odd", "last", "holes", "all_false")
"""``none``: no mask argument, n is a multiple of the block; ``range``: only offsets < n; the others also switch off
lanes below n, by a pattern that differs from rank to rank."""

REGION = 24 * 1024
"""Bytes that a source, or a destination slot, may occupy."""


@case_type
@dataclass(frozen=True)
class TransferCase:
    """``n`` elements from one rank's source to another rank's slot for that source.

    ``targets[r]`` are the ranks at the other end for rank r, which runs the op once for each: the destinations of a
    put or store, the ranks read by a get or load. ``spt`` elements per thread (0 stands for 16 bytes) in ``warps``
    wavefronts make a block. ``aligned``: the kernel is specialised on 16-byte pointers and n divisible by 16, as it
    is for users who pass plain tensors; else it knows neither. ``src_offset`` and ``dst_offset`` count elements.
    ``direction`` is which end of a copy the caller is; ``retyped``: its target pointer has another element
    type, to which values are converted. ``other``: pass ``other=``. ``form`` is one of ``FORMS``; ``hinted``, for
    Triton's: the kernel knows nothing of the pointers but what ``hint=16`` says; they must be ``aligned``.
    """

    dtype: DType = "int32"
    n: int = 1
    targets: tuple[tuple[int, ...], ...] = ((1,), ())
    spt: int = 1
    warps: int = 1
    mask: Annotated[str, OneOf(MASKS)] = "range"
    other: bool = False
    src_offset: int = 0
    dst_offset: int = 0
    aligned: bool = False
    load_modifier: str | None = None
    store_modifier: str | None = None
    volatile: bool = False
    direction: str = "to"
    retyped: bool = False
    form: Annotated[str, OneOf(FORMS)] = "gluon"
    hinted: bool = False

    @property
    def vector(self) -> int:
        """Elements per thread."""
        return self.spt or vector_of(self.dtype)

    @property
    def target_dtype(self) -> str:
        """The element type of the pointer that is written through."""
        return converted(self.dtype) if self.retyped else self.dtype

    @property
    def block(self) -> int:
        """Elements per work-group."""
        return self.vector * LANES * self.warps

    @property
    def grid(self) -> int:
        """Work-groups; one even for no elements, so that the op does run."""
        return max(1, -(-self.n // self.block))

    @property
    def span(self) -> int:
        """Bytes of the payload."""
        return self.n * size_of(self.dtype)


def kept_lanes(pattern: str, count: int, rank: int) -> NDArray[Any]:
    """Which of ``count`` elements the acting ``rank`` moves: booleans, shared between calls, not to be written."""
    return _kept(pattern, count, rank)


@functools.lru_cache(maxsize=2048)
def _kept(pattern: str, count: int, rank: int) -> NDArray[Any]:
    index = np.arange(count)
    if pattern in ("none", "range"):
        return np.ones(count, dtype=bool)
    if pattern in ("even", "odd"):
        return np.equal((index + rank + (pattern == "odd")) % 2, 0)
    if pattern == "last":
        return np.equal(index, count - 1)
    if pattern == "holes":
        # Runs of 1 to 3 lanes between gaps, so that masks change inside and across a thread's elements.
        return np.less((index * 7 + rank * 3) % 11, 6)
    return np.zeros(count, dtype=bool)
