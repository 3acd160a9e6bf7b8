"""Hypothesis strategies for fused products. Everything shrinks towards one call with one element.

What selects another compiled kernel (tile, bias, whether sizes are 1 or multiples of 16, order in memory) is drawn from
``KERNELS``, since a compile costs as much as ten cases; the rest is free.
"""

from __future__ import annotations

from dataclasses import dataclass

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


KERNELS = (
    Kernel((1,), (1,)),
    Kernel((17, 2, 31, 33, 63), (15, 2, 9, 23, 40), biased=True, pad=3),
    Kernel((32, 16, 48, 64), (16, 48), biased=True, tf32=False),
    Kernel((32, 16, 48), (32, 64), blocks=(32, 16, 32), group_m=2, turned=True, xcds=2),
)


@st.composite
def fused(draw: st.DrawFn, ranks: int, op: str, dtype: str) -> FusedCase:
    """Cases of one op with one element type."""
    kernel = draw(st.sampled_from(KERNELS))
    late = draw(st.sampled_from([False, False, True]))
    return FusedCase(
        op=op,
        dtype=dtype,
        m=draw(st.one_of(st.integers(1, 33), st.sampled_from([16, 33]))),
        n=draw(st.sampled_from(kernel.columns)),
        k=draw(st.sampled_from(kernel.inner)),
        block_m=kernel.blocks[0],
        block_n=kernel.blocks[1],
        block_k=kernel.blocks[2],
        group_m=kernel.group_m,
        sms=draw(st.sampled_from([2, 1, 5])),
        variant=draw(st.sampled_from(VARIANTS)) if op == "matmul_all_reduce" else "two_shot",
        biased=kernel.biased,
        pad=kernel.pad,
        turned=kernel.turned,
        tf32=kernel.tf32,
        xcds=kernel.xcds,
        calls=draw(st.sampled_from([1, 4])),
        async_op=draw(st.booleans()),
        skewed=draw(st.integers(0, ranks - 1)) if late else -1,
        skew_ms=20 if late else 0,
    )
