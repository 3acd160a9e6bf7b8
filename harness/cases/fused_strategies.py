"""Hypothesis strategies for fused products. Everything shrinks towards one call with one element.

What selects another compiled kernel (tile, bias, whether sizes are 1 or multiples of 16, order in memory) is drawn from
``KERNELS``, since a compile costs as much as ten cases; the rest is free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from harness.cases.fused import FusedCase

VARIANTS = ("two_shot", "one_shot", "atomic", "spinlock")


@dataclass(frozen=True)
class Kernel:
    """What a case's kernel is compiled with; ``columns`` and ``inner`` are the sizes that it serves."""

    columns: tuple[int, ...]
    inner: tuple[int, ...]
    blocks: tuple[int, int, int] = (16, 32, 16)
    group_m: int = 1
    biased: bool = False
    pad: int = 0
    turned: bool = False
    tf32: bool = True
    xcds: int = 1

    def case(self, op: str, dtype: str, **free: Any) -> FusedCase:
        """A case that it serves."""
        block_m, block_n, block_k = self.blocks
        return FusedCase(
            op, dtype, block_m=block_m, block_n=block_n, block_k=block_k, group_m=self.group_m, biased=self.biased,
            pad=self.pad, turned=self.turned, tf32=self.tf32, xcds=self.xcds, **free,
        )  # fmt: skip


KERNELS = (
    Kernel((1,), (1,)),
    Kernel((17, 2, 31, 33, 63), (15, 2, 9, 23, 40), biased=True, pad=3),
    Kernel((32, 16, 48, 64), (16, 48), biased=True, tf32=False),
    Kernel((32, 16, 48), (32, 64), blocks=(32, 16, 32), group_m=2, turned=True, xcds=2),
)


def edges(op: str) -> list[FusedCase]:
    """What few drawn cases would seldom meet: ragged tiles, several for each program, tails of K, three calls queued
    behind each other of which the second one needs sums in float32, a late rank, every variant, and with tiles in which
    a lane has other elements of a float32 tensor than of a float16 one."""
    odd, even, turned = KERNELS[1:]
    large = Kernel((64,), (64,), blocks=(32, 64, 32))
    free = {"calls": 3, "async_op": True, "skewed": 0, "skew_ms": 5}
    variants = VARIANTS if op == "matmul_all_reduce" else ("two_shot",) * 3
    listed = [
        large.case(op, "fp16", m=64, n=64, k=64, sms=2, variant=variant, **free) for variant in dict.fromkeys(variants)
    ]
    listed += [
        turned.case(op, "bf16", m=65, n=48, k=64, sms=5, variant=variants[0], **free),
        even.case(op, "fp32", m=33, n=64, k=48, sms=2, variant=variants[1], **free),
        odd.case(op, "fp16", m=33, n=63, k=40, sms=2, variant=variants[2], **free),
    ]
    return listed + [odd.case(op, "fp16", m=33, n=63, k=40, sms=5, variant=one, **free) for one in variants[3:]]


@st.composite
def fused(draw: st.DrawFn, ranks: int, op: str, dtype: str) -> FusedCase:
    """Cases of one op with one element type."""
    kernel = draw(st.sampled_from(KERNELS))
    late = draw(st.sampled_from([False, False, True]))
    return kernel.case(
        op,
        dtype,
        m=draw(st.one_of(st.integers(1, 33), st.sampled_from([16, 33]))),
        n=draw(st.sampled_from(kernel.columns)),
        k=draw(st.sampled_from(kernel.inner)),
        sms=draw(st.sampled_from([2, 1, 5])),
        variant=draw(st.sampled_from(VARIANTS)) if op == "matmul_all_reduce" else "two_shot",
        calls=draw(st.sampled_from([1, 4])),
        async_op=draw(st.booleans()),
        skewed=draw(st.integers(0, ranks - 1)) if late else -1,
        skew_ms=20 if late else 0,
    )
