"""Hypothesis strategies for collectives. Everything shrinks towards one call of all ranks with one element.

What selects another compiled kernel (tile, wavefronts, language, variant) is drawn from ``KERNELS``, since a compile
costs as much as ten cases; shapes, strides, groups, roots and numbers of calls are free.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import strategies as st

from harness.cases.collective import GROUPS, REDUCTIONS, ROOTED, CollectiveCase, low_latency, members_of, shapes_of
from harness.cases.contribution import reduce_ops
from harness.cases.dtypes import ALL, FURTHER, INTEGERS, size_of

ROOM = 400 * 1024
"""Bytes of the heap that the tensors of a case take at most, of one rank and without guards."""


@dataclass(frozen=True)
class Kernel:
    """What a case's kernel is compiled with."""

    block_m: int = 8
    block_n: int = 64
    warps: int = 1
    gluon: bool = False
    variant: str = ""
    default: bool = False
    swizzle: int = 4
    protocol: str = ""


KERNELS = (Kernel(), Kernel(gluon=True, swizzle=1), Kernel(4, 128, 4), Kernel(32, 64, 4, default=True))

_LL = (Kernel(protocol="ll"), Kernel(gluon=True, swizzle=1, protocol="ll"))

LAYOUTS = (
    (0, 0, 0, ""), (0, 0, 0, ""), (16, 16, 0, ""), (0, 5, 0, ""), (3, 0, 1, ""), (0, 0, 0, "in"), (8, 0, 0, "out"),
    (2, 2, 1, "both"), (16, 16, 0, "both"),
)  # fmt: skip
"""Padding of input and output, shift, and what is turned."""

VARIANTS = {
    "all_gather": (
        *KERNELS[:2],
        Kernel(variant="partitioned", swizzle=1),
        Kernel(32, 64, 4, gluon=True),
        Kernel(32, 64, 4, default=True),
        *_LL,
    ),
    **dict.fromkeys(("all_to_all", "reduce_scatter", "broadcast"), (*KERNELS, *_LL)),
    "all_reduce": (
        Kernel(variant="two_shot"),
        Kernel(variant="one_shot", gluon=True),
        Kernel(variant="two_shot_push"),
        Kernel(variant="two_shot", gluon=True),
        Kernel(4, 128, 4, variant="one_shot"),
        Kernel(32, 64, 4, default=True),
        *(replace(kernel, variant="one_shot") for kernel in _LL),
    ),
}
"""The kernels of ops that have variants; the first one is the simplest."""


ACCUMULATING = {
    "ring": (Kernel(variant="ring"), Kernel(variant="ring", gluon=True), Kernel(4, 128, 4, variant="ring")),
    "atomic": (Kernel(variant="atomic"), Kernel(variant="atomic", gluon=True, swizzle=1)),
    "spinlock": (Kernel(variant="spinlock"), Kernel(4, 128, 4, variant="spinlock", gluon=True)),
}
"""The kernels of all_reduce that do not read everybody's input."""


def atomic_ops(dtype: str) -> tuple[str, ...]:
    """The reductions that GPUs have an atomic operation for: of 4 and 8 bytes, and the sum of all floats."""
    if dtype in INTEGERS:
        return ("sum", "min", "max", "band", "bor", "bxor") if size_of(dtype) >= 4 else ()
    return ("sum", "min", "max") if size_of(dtype) >= 4 else ("sum",)


@st.composite
def accumulations(draw: st.DrawFn, ranks: int, variant: str) -> CollectiveCase:
    """Cases of an all_reduce of ``ACCUMULATING``, with any element type that it has."""
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
    """Cases of a collective that only moves, with any element type of so many bytes: what is moved is words."""
    dtype = draw(st.sampled_from([name for name in (*ALL, *FURTHER) if size_of(name) == width]))
    return draw(collectives(ranks, op, dtype))


@st.composite
def collectives(
    draw: st.DrawFn, ranks: int, op: str, dtype: str, kernels: tuple[Kernel, ...] | None = None
) -> CollectiveCase:
    """Cases of one collective with one element type; ``kernels`` replaces those of the op."""
    chosen = kernels if kernels is not None else VARIANTS.get(op, KERNELS)
    low = size_of(dtype) <= 4 and low_latency(op, ranks)
    kernel = draw(st.sampled_from([one for one in chosen if low or not one.protocol]))
    group = draw(st.sampled_from(GROUPS)) if ranks > 1 else "world"
    # As "calls": several of the same tensors, or of their own.
    calls, reuse = draw(st.sampled_from([(1, False), (3, False), (4, True)]))
    in_pad, out_pad, shift, turned = draw(st.sampled_from(LAYOUTS))
    m = draw(extents(kernel.block_m, 40))
    n = draw(extents(kernel.block_n, 272))
    members = max(len(members_of(group, rank, ranks)) for rank in range(ranks))
    m, n = _fitting(op, m, n, members, max(in_pad, out_pad), ROOM // size_of(dtype) // (1 if reuse else calls))
    late = draw(st.sampled_from([False, False, True]))
    return CollectiveCase(
        op=op,
        dtype=dtype,
        reduce=draw(st.sampled_from(reduce_ops(dtype))) if op in REDUCTIONS else "sum",
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
        in_place=op == "broadcast" or (op in REDUCTIONS and draw(st.booleans())),
        group=group,
        root=draw(st.integers(0, ranks - 1)) if op in ROOTED else 0,
        calls=calls,
        reuse=reuse,
        async_op=draw(st.booleans()),
        skewed=draw(st.integers(0, ranks - 1)) if late else -1,
        skew_ms=draw(st.integers(1, 8)) if late else 0,
        default=kernel.default,
        gluon=kernel.gluon,
        variant=kernel.variant,
        protocol=kernel.protocol,
        distribution=draw(st.sampled_from([1, 0])) if op in ("all_reduce", "reduce_scatter") else 1,
    )


@st.composite
def messages(draw: st.DrawFn, ranks: int, dtype: str) -> CollectiveCase:
    """Cases of send and recv between pairs of a group, and of sendrecv round it, to the member 1 + ``root`` on."""
    case = draw(collectives(ranks, "send", dtype))
    op = draw(st.sampled_from(["send", "sendrecv", "sendrecv"]))
    return replace(case, op=op, root=draw(st.integers(0, ranks - 2)) if op == "sendrecv" else 0)


@st.composite
def extents(draw: st.DrawFn, tile: int, most: int) -> int:
    """Rows or columns: 1 and few, none, whole tiles, just beside them, any number up to ``most``."""
    kind = draw(st.sampled_from(["few", "whole", "edge", "any", "zero"]))
    code = draw(st.integers(0, 4095))
    if kind == "zero" and code % 4:  # One of several is enough: nothing happens there.
        kind = "edge"
    if kind == "zero":
        return 0
    if kind == "few":
        return 1 + code % 4
    if kind == "whole":
        return min(most, tile * (1 + code % 3))
    if kind == "edge":
        return max(1, min(most, tile * (1 + code % 2) + code // 2 % 3 - 1))
    return 1 + code % most


def _fitting(op: str, m: int, n: int, members: int, pad: int, room: int) -> tuple[int, int]:
    """The shape, with fewer rows if input and output together take more elements than ``room``."""

    def takes(rows: int) -> int:
        # A row or a column has the padding, whichever is turned.
        return sum((high + pad) * (wide + pad) for high, wide in shapes_of(op, rows, n, members))

    while m > 1 and takes(m) > room:
        m = max(1, m * 3 // 4)
    return m, n
