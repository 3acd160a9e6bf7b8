"""The case type of transfers: put, store, get, load and copy of one block between heaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from conformance.support.forms import FORMS
from conformance.support.masks import LANES, MASKS
from harness.cases.dtypes import DType, converted, size_of, vector_of
from harness.cases.registry import case_type
from harness.cases.values import OneOf

REGION = 24 * 1024
"""Maximum of bytes for a source or a destination slot."""


@case_type
@dataclass(frozen=True)
class TransferCase:
    """Transfer of ``n`` elements from one rank's source to another rank's slot for that source.

    ``targets[r]`` are the peers of rank r, which runs the op once for each peer: the destinations of a put or store, or
    the ranks that a get or load reads. A block has ``spt`` elements per thread (0 stands for 16 bytes) in ``warps``
    wavefronts. ``aligned``: the kernel is specialized on 16-byte aligned pointers and n divisible by 16, as it is for
    users who pass plain tensors; otherwise on neither. ``src_offset`` and ``dst_offset`` count elements. ``direction``:
    the caller of a copy copies "to" or "from" its peer. ``retyped``: the target pointer has another element type, to
    which values are converted. ``other``: the call passes ``other=``. ``form`` is one of ``FORMS``. ``hinted`` (Triton
    only): the kernel is compiled without any knowledge of the pointers except ``hint=16``; they must be ``aligned``.
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
        """The element type of the target pointer."""
        return converted(self.dtype) if self.retyped else self.dtype

    @property
    def block(self) -> int:
        """Elements per work-group."""
        return self.vector * LANES * self.warps

    @property
    def grid(self) -> int:
        """Number of work-groups; one even for no elements, so that the op is executed."""
        return max(1, -(-self.n // self.block))

    @property
    def span(self) -> int:
        """Bytes of the payload."""
        return self.n * size_of(self.dtype)
