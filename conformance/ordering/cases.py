"""The case types of message passing and of litmus tests."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import triton

from harness.cases.dtypes import DType
from harness.cases.registry import case_type
from harness.cases.values import OneOf

_TRITON = tuple(map(int, triton.__version__.split(".")[:2]))
RELEASE_WAITS = _TRITON >= (3, 8)
"""True if Triton's release waits for its write-back on AMD GPUs. If it does not, a message fails in some schedules of
weak memory, which is not a fault of the library: see docs/memory-model.md."""
RELEASE_GATHERS = _TRITON >= (3, 9)
"""True if wavefronts pass a barrier before the release of one lane. Without it a flag may overtake the stores of the
other wavefronts, so a kernel has its own barrier there."""


@case_type
@dataclass(frozen=True)
class MessageCase:
    """Messages of blocks from producers to consumers: ``rounds`` messages of ``blocks`` blocks from each producer.

    ``flag`` is the atomic operation that sets a flag: "cas", "xchg" or "add". ``late`` is the side ("producer" or
    "consumer") that starts ``late_ms`` late. ``shape``: "pair" (even ranks produce for their right neighbour, odd ranks
    consume) or "ring" (every rank runs consumers and producers in one launch, the waiting work-groups first). ``form``:
    "gluon" or "context", as in ``forms.FORMS``.
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
        """Elements of a message; the last block has ``tail`` elements less."""
        return self.blocks * self.block - min(self.tail, self.block - 1)


@case_type
@dataclass(frozen=True)
class LitmusCase:
    """``instances`` runs of one litmus test.

    ``scope`` is that of the flags. Thread t is a work-group, of rank t % ranks with "sys" and of rank 0 with "gpu";
    with "cta" it is a wavefront of a work-group of rank 0, which has ``warps`` of them. ``write`` is the operation that
    writes data: "store", "put" or "atomic". ``home``: the rank whose heap has the locations. A tile has ``n`` elements
    (int32), which are masked from ``block``. ``release`` and ``acquire`` are the orders of a flag's writes and reads.
    ``skew``: thread t starts ``t * skew`` polls late; as a wavefront, it starts as many steps late, but at most two,
    and is wavefront (t + ``skew``) % ``warps``. ``packed``: a location begins where the one before ends, so that those
    of one element are neighbours in a cache line; otherwise each has a whole block.
    """

    test: str = "MP"
    write: str = "store"
    release: str = "release"
    acquire: str = "acquire"
    scope: Annotated[str, OneOf(("sys", "gpu", "cta"))] = "sys"
    spt: int = 1
    warps: int = 1
    tail: int = 0
    home: int = 0
    instances: int = 4
    skew: int = 0
    packed: bool = False

    @property
    def block(self) -> int:
        """Elements of a tile, those that are masked too."""
        return 64 if self.scope == "cta" else self.spt * 64 * self.warps

    @property
    def n(self) -> int:
        """Elements of a tile that are accessed."""
        return self.block - min(self.tail, self.block - 1)

    @property
    def stride(self) -> int:
        """Elements from a location to the next one."""
        return self.n if self.packed else self.block
