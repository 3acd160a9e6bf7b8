"""Hypothesis strategies for collectives. Everything shrinks towards one call of all ranks with one element.

A compile costs as much as ten cases. So the values that select a compiled kernel (tile, wavefronts, language, variant)
are drawn from the op's ``drawn_kernels``; shapes, strides, groups, roots and numbers of calls are drawn freely.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from conformance.collectives.cases import CollectiveCase
from conformance.collectives.operations import ALWAYS, SOMETIMES, Collective, Kernel, described, published
from fixtures import judged
from harness.cases import GROUPS, members_of
from harness.cases.contribution import reduce_ops
from harness.cases.dtypes import ALL, FURTHER, INTEGERS, size_of

ROOM = 400 * 1024
"""Maximum of bytes that the tensors of a case take on one rank's heap, without guards."""


LAYOUTS = (
    (0, 0, 0, ""), (0, 0, 0, ""), (16, 16, 0, ""), (0, 5, 0, ""), (3, 0, 1, ""), (0, 0, 0, "in"), (8, 0, 0, "out"),
    (2, 2, 1, "both"), (16, 16, 0, "both"),
)  # fmt: skip
"""Layouts (in_pad, out_pad, shift, turned) of a CollectiveCase."""

ACCUMULATING = {
    "ring": (Kernel(variant="ring"), Kernel(variant="ring", gluon=True), Kernel(4, 128, 4, variant="ring")),
    "atomic": (Kernel(variant="atomic"), Kernel(variant="atomic", gluon=True, swizzle=1)),
    "spinlock": (Kernel(variant="spinlock"), Kernel(4, 128, 4, variant="spinlock", gluon=True)),
}
"""The kernels of all_reduce that accumulate, instead of reading every member's input."""


def atomic_ops(dtype: str) -> tuple[str, ...]:
    """Return the reductions for which GPUs have an atomic operation: those of 4 and 8 bytes, and the sum of any
    float."""
    if dtype in INTEGERS:
        return ("sum", "min", "max", "band", "bor", "bxor") if size_of(dtype) >= 4 else ()
    return ("sum", "min", "max") if size_of(dtype) >= 4 else ("sum",)


def drawn(cases: st.SearchStrategy[CollectiveCase]) -> st.SearchStrategy[CollectiveCase]:
    """Return the strategy for the run's level."""
    return cases if judged.extended() else cases.map(published)


@st.composite
def accumulations(draw: st.DrawFn, ranks: int, variant: str) -> CollectiveCase:
    """Draw a case of a variant of ``ACCUMULATING``, with any element type that it supports."""
    dtype = draw(st.sampled_from([name for name in ALL if variant != "atomic" or atomic_ops(name)]))
    case = draw(collectives(ranks, "all_reduce", dtype, ACCUMULATING[variant]))
    if variant == "atomic":
        return replace(case, reduce=draw(st.sampled_from(atomic_ops(dtype))))
    if variant == "ring":
        rings = draw(st.sampled_from([1, 1, 2]))
        return replace(case, rings=rings, comm_sms=max(case.comm_sms, rings))
    return case


@st.composite
def moves(draw: st.DrawFn, ranks: int, op: str, width: int) -> CollectiveCase:
    """Draw a case of a collective that only moves data, with any element type of ``width`` bytes."""
    dtype = draw(st.sampled_from([name for name in (*ALL, *FURTHER) if size_of(name) == width]))
    return draw(collectives(ranks, op, dtype))


@st.composite
def collectives(
    draw: st.DrawFn, ranks: int, name: str, dtype: str, kernels: tuple[Kernel, ...] | None = None
) -> CollectiveCase:
    """Draw a case of one collective with one element type; ``kernels`` replaces those of the op."""
    op = described(name)
    chosen = kernels if kernels is not None else op.drawn_kernels(ranks)
    kernel = draw(st.sampled_from([one for one in chosen if size_of(dtype) <= 4 or not one.protocol]))
    group = draw(st.sampled_from(GROUPS)) if ranks > 1 else "world"
    # One call, several calls with their own tensors, or several calls on the same tensors.
    calls, reuse = draw(st.sampled_from([(1, False), (3, False), (4, True)]))
    in_pad, out_pad, shift, turned = draw(st.sampled_from(LAYOUTS))
    m = draw(extents(kernel.block_m, 40))
    n = draw(extents(kernel.block_n, 272))
    members = max(len(members_of(group, rank, ranks)) for rank in range(ranks))
    m, n = _fitting(op, m, n, members, max(in_pad, out_pad), ROOM // size_of(dtype) // (1 if reuse else calls))
    late = draw(st.sampled_from([False, False, True]))
    return CollectiveCase(
        op=name,
        dtype=dtype,
        reduce=draw(st.sampled_from(reduce_ops(dtype))) if op.reduces else "sum",
        m=m,
        n=n,
        block_m=kernel.block_m,
        block_n=kernel.block_n,
        warps=kernel.warps,
        comm_sms=draw(st.sampled_from([2, 1, 5])),
        swizzle=kernel.swizzle,
        in_pad=in_pad,
        out_pad=out_pad,
        shift=shift,
        turned=turned,
        in_place=op.in_place == ALWAYS or (op.in_place == SOMETIMES and draw(st.booleans())),
        group=group,
        root=draw(st.integers(0, ranks - 1)) if op.root else 0,
        calls=calls,
        reuse=reuse,
        async_op=draw(st.booleans()),
        skewed=draw(st.integers(0, ranks - 1)) if late else -1,
        skew_ms=draw(st.integers(1, 8)) if late else 0,
        default=kernel.default,
        gluon=kernel.gluon,
        variant=kernel.variant,
        protocol=kernel.protocol,
        distribution=draw(st.sampled_from([1, 0])) if op.has_distribution else 1,
    )


@st.composite
def messages(draw: st.DrawFn, ranks: int, dtype: str) -> CollectiveCase:
    """Draw a case of send and recv between pairs of a group, or of sendrecv in a ring.

    In the ring each member sends to the one 1 + ``root`` places after it.
    """
    case = draw(collectives(ranks, "send", dtype))
    op = draw(st.sampled_from(["send", "sendrecv", "sendrecv"]))
    return replace(case, op=op, root=draw(st.integers(0, ranks - 2)) if op == "sendrecv" else 0)


@st.composite
def extents(draw: st.DrawFn, tile: int, limit: int) -> int:
    """Draw a number of rows or columns: a few, none, whole tiles, one more or less than a tile, or any up to
    ``limit``."""
    kind = draw(st.sampled_from(["few", "whole", "edge", "any", "zero"]))
    code = draw(st.integers(0, 4095))
    if kind == "zero" and code % 4:  # An empty tensor does nothing, so that a few such cases are enough.
        kind = "edge"
    if kind == "zero":
        return 0
    if kind == "few":
        return 1 + code % 4
    if kind == "whole":
        return min(limit, tile * (1 + code % 3))
    if kind == "edge":
        return max(1, min(limit, tile * (1 + code % 2) + code // 2 % 3 - 1))
    return 1 + code % limit


def _fitting(op: Collective, m: int, n: int, members: int, pad: int, room: int) -> tuple[int, int]:
    """Return the shape, with fewer rows if input and output together would have more than ``room`` elements."""

    def takes(rows: int) -> int:
        # An upper bound: the padding belongs to rows or, in a transposed tensor, to columns.
        return sum((high + pad) * (wide + pad) for high, wide in op.shapes(rows, n, members))

    while m > 1 and takes(m) > room:
        m = max(1, m * 3 // 4)
    return m, n
