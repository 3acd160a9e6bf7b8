"""The case type of message passing."""

from __future__ import annotations

from dataclasses import dataclass

from harness.cases.dtypes import DType
from harness.cases.registry import case_type


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
