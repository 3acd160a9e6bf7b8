"""Hypothesis strategies for fused products. Everything shrinks towards one call with one element.

A compile costs as much as ten cases. So the values that select a compiled kernel (tile, bias, whether sizes are 1 or
multiples of 16, order in memory) are drawn from ``KERNELS``; all others are drawn freely.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from conformance.ops.cases import FusedCase
from conformance.ops.operations import PRODUCTS
from fixtures import judged


@dataclass(frozen=True)
class Kernel:
    """The values with which a case's kernel is compiled. ``columns`` and ``inner`` are the sizes that it can run."""

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
        """Return a case that runs this kernel; ``free`` are the other fields."""
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


def published(case: FusedCase) -> FusedCase:
    """Return the case, changed to what the published API has: no bias of products that are summed, calls that are
    ordered by the caller's barriers, and where it refuses less, at least one whole block."""
    if PRODUCTS[case.op].whole_block:
        whole = {"m": max(case.m, case.block_m), "n": max(case.n, case.block_n), "k": max(case.k, case.block_k)}
        case = replace(case, **whole)
    return replace(case, calls=1, async_op=False, biased=case.biased and not PRODUCTS[case.op].sums)


def edges(op: str) -> list[FusedCase]:
    """Return the cases that random drawing seldom gives.

    They have ragged tiles, several tiles for each program, tails of K, three queued calls of which the second one needs
    sums in float32, a late rank, every variant, and tiles in which a lane holds different elements of a float32 tensor
    than of a float16 tensor.
    """
    odd, even, turned = KERNELS[1:]
    large = Kernel((64,), (64,), blocks=(32, 64, 32))
    free = {"calls": 3, "async_op": True, "skewed": 0, "skew_ms": 5}
    variants = PRODUCTS[op].variants
    listed = [large.case(op, "fp16", m=64, n=64, k=64, sms=2, variant=variant, **free) for variant in variants]
    (first, second, third), others = (variants * 3)[:3], variants[3:]
    listed += [
        turned.case(op, "bf16", m=65, n=48, k=64, sms=5, variant=first, **free),
        even.case(op, "fp32", m=33, n=64, k=48, sms=2, variant=second, **free),
        odd.case(op, "fp16", m=33, n=63, k=40, sms=2, variant=third, **free),
    ]
    listed += [odd.case(op, "fp16", m=33, n=63, k=40, sms=5, variant=one, **free) for one in others]
    return listed if judged.extended() else list(dict.fromkeys(map(published, listed)))


def fused(ranks: int, op: str, dtype: str) -> st.SearchStrategy[FusedCase]:
    """Return the strategy for cases of one op with one element type, for the run's API."""
    cases = _fused(ranks, op, dtype)
    return cases if judged.extended() else cases.map(published)


@st.composite
def _fused(draw: st.DrawFn, ranks: int, op: str, dtype: str) -> FusedCase:
    """Draw a case of one op with one element type."""
    kernel = draw(st.sampled_from(KERNELS))
    late = draw(st.sampled_from([False, False, True]))
    return kernel.case(
        op,
        dtype,
        m=draw(st.one_of(st.integers(1, 33), st.sampled_from([16, 33]))),
        n=draw(st.sampled_from(kernel.columns)),
        k=draw(st.sampled_from(kernel.inner)),
        sms=draw(st.sampled_from([2, 1, 5])),
        variant=draw(st.sampled_from(PRODUCTS[op].variants)),
        calls=draw(st.sampled_from([1, 4])),
        async_op=draw(st.booleans()),
        skewed=draw(st.integers(0, ranks - 1)) if late else -1,
        skew_ms=20 if late else 0,
    )
