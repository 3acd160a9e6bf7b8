"""Cases with few parameters: compiled code, message passing, host behaviour."""

from __future__ import annotations

from dataclasses import dataclass

from harness.cases.dtypes import DType, vector_of
from harness.cases.registry import case_type


@case_type
@dataclass(frozen=True)
class IsaCase:
    """Which code is looked at: an op with element type, mask form, order and modifiers. ``n`` elements are moved."""

    op: str
    dtype: DType = "fp16"
    n: int = 1024
    masked: bool = False
    warps: int = 1
    sem: str | None = None
    scope: str | None = None
    load_modifier: str | None = None
    store_modifier: str | None = None
    volatile: bool = False

    @property
    def block(self) -> int:
        """Elements per work-group, at 16 bytes per thread."""
        return vector_of(self.dtype) * 64 * self.warps


@case_type
@dataclass(frozen=True)
class MessageCase:
    """``rounds`` messages of ``blocks`` blocks from each producer; ``late`` is the side that comes ``late_ms`` late.

    ``shape``: "pair" (even ranks produce for their right neighbour, odd ones consume) or "ring" (every rank runs
    consumers and producers in one launch, the waiting work-groups first). ``form``: "gluon" or "context", as in
    ``transfer.FORMS``.
    """

    dtype: DType = "int32"
    blocks: int = 1
    spt: int = 1
    warps: int = 1
    tail: int = 0
    rounds: int = 1
    flag: str = "cas"
    shape: str = "pair"
    late: str = "nobody"
    late_ms: int = 0
    form: str = "gluon"

    @property
    def block(self) -> int:
        """Elements per block."""
        return self.spt * 64 * self.warps

    @property
    def n(self) -> int:
        """Elements of a message; the last block lacks ``tail``."""
        return self.blocks * self.block - min(self.tail, self.block - 1)


@case_type
@dataclass(frozen=True)
class HostCase:
    """One behaviour of the host side, by name, with up to three plain arguments and a rank that comes late."""

    what: str
    arguments: tuple[str | int | float | bool | tuple[int, ...] | None, ...] = ()
    late: int = -1
    late_ms: int = 0
