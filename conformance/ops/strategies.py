"""Hypothesis strategies for fused products. Everything shrinks towards one call with one element.

A compile costs as much as ten cases. So the values that select a compiled kernel (tile, bias, whether sizes are 1 or
multiples of 16, order in memory: one of ``KERNELS``; element type and variant) are rows of a covering array of all ops,
which has the kernels of ``edges``; all others are drawn freely, many times for each row.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from conformance.ops.cases import FusedCase
from conformance.ops.operations import DTYPES, PRODUCTS
from fixtures import judged
from harness.cases.covering import covering


@dataclass(frozen=True)
class Kernel:
    """The values with which a case's kernel is compiled. ``columns`` and ``inner`` are the sizes that it can run."""

    columns: tuple[int, ...]
    inner: tuple[int, ...]
    blocks: tuple[int, int, int] = (16, 32, 16)
    group_m: int = 1
    biased: bool = False
    pad: int = 0
    shift: int = 0
    turned: bool = False
    tf32: bool = True
    xcds: int = 1

    def case(self, op: str, dtype: str, **free: Any) -> FusedCase:
        """Return a case that runs this kernel; ``free`` are the other fields."""
        block_m, block_n, block_k = self.blocks
        return FusedCase(
            op, dtype, block_m=block_m, block_n=block_n, block_k=block_k, group_m=self.group_m, biased=self.biased,
            pad=self.pad, shift=self.shift, turned=self.turned, tf32=self.tf32, xcds=self.xcds, **free,
        )  # fmt: skip


KERNELS = (
    Kernel((1,), (1,)),
    Kernel((17, 2, 31, 33, 63), (15, 2, 9, 23, 40), biased=True, pad=3),
    Kernel((32, 16, 48, 64), (16, 48), biased=True, shift=1, tf32=False),
    Kernel((32, 16, 48), (32, 64), blocks=(32, 16, 32), group_m=2, turned=True, xcds=2),
)


LARGE = Kernel((64, 80), (64,), blocks=(32, 64, 32))
"""A kernel in whose tiles a lane holds other elements of a float32 tensor than of a float16 tensor."""


def published(case: FusedCase) -> FusedCase:
    """Return the case, changed to what the published API has: no bias of products that are summed, calls that are
    ordered by the caller's barriers, and where it refuses less, at least one whole block."""
    if PRODUCTS[case.op].whole_block:
        whole = {"m": max(case.m, case.block_m), "n": max(case.n, case.block_n), "k": max(case.k, case.block_k)}
        case = replace(case, **whole)
    return replace(case, calls=1, async_op=False, shift=0, biased=case.biased and not PRODUCTS[case.op].sums)


def edges(op: str) -> list[FusedCase]:
    """Return the cases that random drawing seldom gives.

    They have ragged tiles, several tiles for each program, tails of K, three queued calls of which the second one needs
    sums in float32, a late rank, every variant, and tiles in which a lane holds different elements of a float32 tensor
    than of a float16 tensor. In a ragged one the memory of B, padding included, is a whole number of 4 bytes: the
    emulated device does not notice an access beyond it in the same 4 bytes.
    """
    listed = [case for case, _ in _edges(op)]
    return listed if judged.extended() else list(dict.fromkeys(map(published, listed)))


def ragged(op: str) -> list[list[FusedCase]]:
    """Return calls with each kernel that ``fused`` draws: each of its columns and inner elements, and rows that end a
    tile at each place among the rows of a lane; one call without inner elements; and the edges."""
    listed = []
    for row in rows():
        if row["op"] != op:
            continue
        kernel = KERNELS[row["kernel"]]
        case = kernel.case(op, row["dtype"], variant=row["variant"], sms=2, calls=2)
        further = kernel.blocks[0] - 16  # a larger tile also ends in its second half
        turns = max(len(ENDS), len(kernel.columns), len(kernel.inner)) if row["kernel"] else 1
        # Of transposed matrices the rows are a stride, with all ranks' rows also that of up to eight.
        rows_of = [end | kernel.turned for end in ENDS]
        sizes = [
            (rows_of[k % len(ENDS)] + further * (k % 2), kernel.columns[k % len(kernel.columns)],
             kernel.inner[k % len(kernel.inner)])
            for k in range(turns)
        ]  # fmt: skip
        listed.append([replace(case, m=m, n=n, k=k) for m, n, k in sizes])
        if PRODUCTS[op].reached == "a" and kernel.turned:  # one row, which all programs gather
            listed[-1].append(replace(case, m=1, n=16, k=32))
        if (
            kernel.turned and judged.extended()
        ):  # without inner elements, a stride of a multiple of 16 comes from the padding
            listed[-1].append(replace(case, m=33, n=48, k=0, pad=16))
    whole = [case for case, _ in _edges(op)]
    listed.append([*whole, *(replace(case, m=48, n=80) for case in whole if case.block_n == LARGE.blocks[1])])
    if not judged.extended():
        listed = [list(dict.fromkeys(map(published, cases))) for cases in listed]
    return listed


ENDS = (18, 23, 24, 29)
"""Rows that end in each four rows of a second tile of 16, and at each place of four."""


def _edges(op: str) -> list[tuple[FusedCase, Mapping[str, Any]]]:
    """Return each case of ``edges``, and the values that select its kernel: see ``rows``. ``kernel`` None is none of
    ``KERNELS``."""
    odd, even, turned = 1, 2, 3
    free = {"calls": 3, "async_op": True, "skewed": 0, "skew_ms": 5}
    variants = PRODUCTS[op].variants
    listed = [
        (LARGE.case(op, "fp16", m=64, n=64, k=64, sms=2, variant=variant, **free), {"kernel": None})
        for variant in variants
    ]
    (first, second, third), others = (variants * 3)[:3], variants[3:]
    chosen = [
        (turned, "bf16", first, {"m": 65, "n": 48, "k": 64, "sms": 5}),
        (even, "fp32", second, {"m": 33, "n": 64, "k": 48, "sms": 2}),
        (odd, "fp16", third, {"m": 33, "n": 62, "k": 39, "sms": 2}),
        *((odd, "fp16", one, {"m": 33, "n": 62, "k": 39, "sms": 5}) for one in others),
    ]
    if PRODUCTS[op].reached == "a":
        # As many programs as tiles: one of them gathers, and finds no tile left.
        chosen.insert(1, (turned, "bf16", first, {"m": 33, "n": 32, "k": 64, "sms": 4}))
    for kernel, dtype, variant, sizes in chosen:
        row = {"op": op, "dtype": dtype, "kernel": kernel, "variant": variant}
        listed.append((KERNELS[kernel].case(op, dtype, variant=variant, **sizes, **free), row))
    return listed


@functools.cache
def rows() -> tuple[Mapping[str, Any], ...]:
    """Return the op, element type ("dtype"), place in ``KERNELS`` and variant of each drawn kernel.

    Each op has every kernel, and every variant with every element type; every element type has every kernel.
    """
    known = [row for op in PRODUCTS for _, row in _edges(op) if row["kernel"] is not None]
    variants = dict.fromkeys(variant for op in PRODUCTS.values() for variant in op.variants)
    parameters = {
        "op": tuple(PRODUCTS), "dtype": DTYPES, "kernel": range(len(KERNELS)), "variant": tuple(variants),
    }  # fmt: skip
    also = [("op", "kernel"), ("dtype", "kernel"), ("op", "dtype", "variant")]
    others = covering(
        parameters,
        strength=1,
        also=also,
        having=known,
        valid=lambda row: row["variant"] in PRODUCTS[row["op"]].variants,
    )
    return tuple({str(row): row for row in (*known, *others)}.values())


def fused(ranks: int, op: str, dtype: str) -> list[st.SearchStrategy[FusedCase]]:
    """Return a strategy for each kernel of one op with one element type, for the run's API."""
    chosen = [row for row in rows() if (row["op"], row["dtype"]) == (op, dtype)]
    cases = [_of_kernel(ranks, op, dtype, KERNELS[row["kernel"]], row["variant"]) for row in chosen]
    return cases if judged.extended() else [each.map(published) for each in cases]


@st.composite
def _of_kernel(draw: st.DrawFn, ranks: int, op: str, dtype: str, kernel: Kernel, variant: str) -> FusedCase:
    """Draw a case that runs the kernel."""
    late = draw(st.sampled_from([False, False, True]))
    return kernel.case(
        op,
        dtype,
        m=draw(st.one_of(st.integers(1, 33), st.sampled_from([16, 33]))),
        n=draw(st.sampled_from(kernel.columns)),
        k=draw(st.sampled_from(kernel.inner)),
        sms=draw(st.sampled_from([2, 1, 5])),
        variant=variant,
        calls=draw(st.sampled_from([1, 4])),
        async_op=draw(st.booleans()),
        skewed=draw(st.integers(0, ranks - 1)) if late else -1,
        skew_ms=20 if late else 0,
    )
