"""Hypothesis strategies for collectives. Everything shrinks towards one call of all ranks with one element.

A compile costs as much as ten cases. So what selects a compiled kernel (tile, wavefronts, language, variant, layout,
reduction, group size, and whether sizes are 1 or multiples of 16) is a ``Build``, a row of a covering array; shapes,
groups, roots, calls, programs and delays are drawn freely, many times for each build. Sizes and layouts select no
kernel of a message: see ``_of_messages``.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import strategies as st

from conformance.collectives.cases import CollectiveCase
from conformance.collectives.operations import (
    ALWAYS,
    COLLECTIVES,
    KERNELS,
    MESSAGE_TYPES,
    MESSAGES,
    SOMETIMES,
    Collective,
    Kernel,
    described,
    published,
)  # fmt: skip
from fixtures import judged
from harness.cases import GROUPS, members_of
from harness.cases.contribution import reduce_ops
from harness.cases.covering import covering
from harness.cases.dtypes import ALL, FURTHER, INTEGERS, size_of

ROOM = 400 * 1024
"""Maximum of bytes that the tensors of a case take on one rank's heap, without guards."""


LAYOUTS = (
    (0, 0, 0, ""), (16, 16, 0, ""), (0, 5, 0, ""), (3, 0, 1, ""), (0, 0, 0, "in"), (8, 0, 0, "out"), (2, 2, 1, "both"),
    (16, 16, 0, "both"),
)  # fmt: skip
"""Layouts (in_pad, out_pad, shift, turned) of a CollectiveCase."""

EXTENTS = ("one", "ragged", "aligned", "whole", "row")
"""Kinds of shapes, by what a compiler may know of them: one element; neither sizes nor strides are 1 or multiples of
16; rows of a multiple of 16 elements; such rows and columns; one row."""

SMALL = ("one", "row")
"""Extents that are drawn in one layout: they show little of strides."""

PARTIES = (("world", "reversed"), ("halves", "stride"), ("uneven",))
"""Groups by their number of members, which kernels know."""

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


@dataclass(frozen=True)
class Build:
    """The values of a case that are compiled into its kernel. ``extent`` is one of ``EXTENTS``, or "any"."""

    kernel: Kernel
    layout: tuple[int, int, int, str]
    extent: str
    groups: tuple[str, ...]
    reduce: str = "sum"
    in_place: bool = False
    distribution: int = 1


Cases = st.SearchStrategy[CollectiveCase]


def drawn(ranks: int, op: str, dtype: str | int) -> list[Cases]:
    """Return a strategy for each build of one collective for the run's API.

    ``dtype`` is the element type, or for an op that only moves data its width in bytes: then the builds go round all
    types of that width, which may share kernels.
    """
    return [_published(_of_build(ranks, op, name, build)) for name, build in _typed(ranks, op, dtype)]


def _typed(ranks: int, op: str, dtype: str | int) -> list[tuple[str, Build]]:
    """Return the builds of ``drawn``, each with an element type."""
    builds = builds_of(ranks, op, dtype)
    dtypes = [name for name in (*ALL, *FURTHER) if dtype in (name, size_of(name))]
    return [(dtypes[k % len(dtypes)], builds[k % len(builds)]) for k in range(max(len(dtypes), len(builds)))]


def builds_of(ranks: int, op: str, dtype: str | int) -> Sequence[Build]:
    """Return the builds of one collective, the simplest first; ``dtype``: an element type, or its width in bytes."""
    reduces = COLLECTIVES[op].reduces
    some = [name for name in COLLECTIVES if COLLECTIVES[name].reduces == reduces]
    kernels = tuple((name, COLLECTIVES[name].drawn_kernels(ranks)) for name in some)
    return _builds(kernels, ranks > 1)[op, dtype if reduces or isinstance(dtype, int) else size_of(dtype)]


def accumulations(ranks: int, variant: str) -> list[Cases]:
    """Return a strategy for each build of a variant of ``ACCUMULATING``, with any element type that it supports."""
    rows = _accumulating(ranks, variant)
    return [_published(_accumulation(ranks, dtype, build)) for dtype, build in rows]


def _accumulating(ranks: int, variant: str) -> list[tuple[str, Build]]:
    """Return the builds of ``accumulations``, each with an element type."""
    builds = _builds(tuple(ACCUMULATING.items()), ranks > 1, few=True)
    return [(dtype, build) for (name, dtype), some in builds.items() for build in some if name == variant]


def neighbour(ranks: int, case: CollectiveCase) -> CollectiveCase:
    """Return two asynchronous calls of another kernel of ``accumulations``, for the same group as ``case``. If there is
    one, their elements have another size: the most different, or else the larger one."""

    def difference(row: tuple[str, Build]) -> tuple[float, int]:
        size = size_of(row[0])
        return abs(math.log2(size / size_of(case.dtype))), size

    rows = [row for row in _accumulating(ranks, case.variant) if case.group in row[1].groups]
    dtype, build = max(rows, key=difference)
    other = simplest(ranks, case.op, dtype, build, (20, 135))
    rings = 1 + (build.extent == "ragged") if build.kernel.variant == "ring" else 1
    other = replace(other, group=case.group, calls=2, async_op=True, comm_sms=5, rings=rings)
    return other if judged.extended() else published(other)


ENDS = ((1, 1), (2, 10), (3, 21), (4, 28), (8, 56), (5, 38), (6, 47), (7, 51))
"""Rows and columns of a ragged tile, for messages and the variants of ``ACCUMULATING``.

A kernel compares each element of a lane with limits of its own: every number of rows, of columns modulo 8, and of
elements modulo 4 occurs, and columns in all parts of a tile.
"""
SAME_ENDS = ((1, 4), (2, 12), (3, 20), (4, 30), (5, 36), (6, 44), (7, 52))
"""The same for all other collectives, whose kernels are compiled for the alignment of a member's part.

4 divides most of the columns, but not 8, where the kernel's ``extent`` allows. Kernels can also access the whole dword
in which a tensor ends: there most rows end with one.
"""


def ragged(ranks: int, op: str) -> list[list[CollectiveCase]]:
    """Return calls with each kernel of one collective that ``drawn`` and ``accumulations`` draw, for shapes whose last
    tiles are ragged, as far as the kernel's ``extent`` allows: three tiles in each dimension, then three rows of two.
    The last shape has one column of tiles, and more rows of them than follow one another in the order of tiles."""
    (values,) = COLLECTIVES[op].parameters.values()
    rows = [row for dtype in values for row in _typed(ranks, op, dtype)]
    accumulating = [variant.name for variant in COLLECTIVES[op].variants if variant.name in ACCUMULATING]
    rows += [row for variant in accumulating for row in _accumulating(ranks, variant)]
    kernels = [_ragged_of(ranks, op, dtype, build) for dtype, build in rows]
    if not judged.extended():
        kernels = [list(map(published, cases)) for cases in kernels]
    return list(map(list, dict.fromkeys(tuple(dict.fromkeys(cases)) for cases in kernels)))


def _ragged_of(ranks: int, op: str, dtype: str, build: Build) -> list[CollectiveCase]:
    """Return the calls of ``ragged`` with one kernel."""
    described, block_m = COLLECTIVES[op], build.kernel.block_m
    if build.kernel.variant in ACCUMULATING:
        return [_ragged(ranks, op, dtype, build, ENDS, end) for end in ENDS]
    if build.extent == "one" and described.shapes(1, 1, ranks) == ((1, ranks), (1, ranks)):
        # Members' columns lie side by side: many rows of one column have the kernel of one element, in any layout.
        ends: Sequence[tuple[int, int]] = [(row, 4) for row in range(1, block_m, max(1, block_m // 16))]
    else:  # in tiles of more rows than the ends have, each lies in another part
        ends = [(row + 8 * (k % max(1, block_m // 8)), column) for k, (row, column) in enumerate(SAME_ENDS)]
    cases = [_ragged(ranks, op, dtype, build, ends, end) for end in ends]
    cases = [case for case in cases if _multiples(case, ranks) == _multiples(cases[0], ranks)]
    if "root" in (described.inputs_at, described.outputs_at) and described.in_place != ALWAYS:
        # The root alone passes both tensors. The kernel of the others is that of two with the layout of the one that
        # they pass.
        cases += [_alike(described, case) for case in cases]
    return cases


def _multiples(case: CollectiveCase, ranks: int) -> list[bool]:
    """Return which sizes, strides and distances of parts are multiples of 16."""
    members = max(len(members_of(case.group, rank, ranks)) for rank in range(ranks))
    numbers = [case.m]
    for turned in (False, True):
        numbers += _numbers(case.m, case.n, (case.in_pad, case.out_pad), turned, members)
    return [number % 16 == 0 for number in numbers]


def _alike(described: Collective, case: CollectiveCase) -> CollectiveCase:
    """Return the case with both tensors in the layout of the one that every member passes."""
    side, pad = ("in", case.in_pad) if described.inputs_at != "root" else ("out", case.out_pad)
    return replace(case, in_pad=pad, out_pad=pad, turned="both" if case.turned in (side, "both") else "")


def _ragged(
    ranks: int, op: str, dtype: str, build: Build, ends: Sequence[tuple[int, int]], end: tuple[int, int]
) -> CollectiveCase:
    kernel = build.kernel
    whole = 16 if build.extent in ("whole", "aligned") else 0  # such a dimension ends at a multiple of 16
    tiles_m, tiles_n = {ends[0]: (2, 2), ends[-1]: (kernel.swizzle, 0)}.get(end, (2, 1))
    rows = tiles_m * kernel.block_m + (whole if build.extent == "whole" else end[0])
    columns = tiles_n * kernel.block_n + max(whole, end[1])
    if build.extent == "row":  # its tiles have as many columns as others have elements
        columns = columns * kernel.block_m + end[1]
    rings = 1 + (build.extent == "ragged") if kernel.variant == "ring" else 1
    case = simplest(ranks, op, dtype, build, (rows, columns))
    if case.in_place and COLLECTIVES[op].in_place == SOMETIMES:
        # The same kernel, on two tensors: in place a group of one has its result before the call.
        turned = "both" if case.turned in ("in", "both") else ""
        case = replace(case, in_place=False, out_pad=case.in_pad, turned=turned)
    side_by_side = COLLECTIVES[op].shapes(1, 1, ranks) == ((1, ranks), (1, ranks))
    if build.extent == "aligned" or (build.extent == "one" and side_by_side):
        case = replace(case, m=rows)
    return replace(case, rings=rings, root=ranks - 1)


def messages(ranks: int, dtype: str) -> list[Cases]:
    """Return a strategy for each kernel of send and recv between pairs of a group, or of sendrecv in a ring.

    In the ring each member sends to the one 1 + ``root`` places after it.
    """
    return [_message(ranks, op, dtype, kernel, is_shifted) for op, kernel, is_shifted in _of_messages(dtype)]


def ragged_messages(dtype: str) -> list[list[CollectiveCase]]:
    """Return calls with each kernel of ``messages`` whose last tiles end at other rows and columns, in each way that
    the bundled kernels move elements: all as one run, vectors of aligned rows and then the rest, and one by one."""
    return [list(_ragged_message(op, dtype, kernel, is_shifted)) for op, kernel, is_shifted in _of_messages(dtype)]


def _of_messages(dtype: str) -> list[tuple[str, Kernel, bool]]:
    """Return the kernels of messages, each with its op, and whether it is also called for tensors that do not begin at
    a multiple of 16 bytes, for which it may be compiled a second time.

    Sizes and strides select no kernel, but only the way in which it moves elements. Each width has every kernel of
    ``KERNELS``, and each of these has both ops, with different widths. Of bytes, the widest tiles are replaced by tiles
    that are narrower than 16 bytes.
    """
    number, ops = MESSAGE_TYPES.index(dtype), tuple(MESSAGES)
    kernels = [
        replace(kernel, block_m=64, block_n=8) if size_of(dtype) == 1 and kernel.block_n > 64 else kernel
        for kernel in KERNELS
    ]
    in_triton = [k for k, kernel in enumerate(kernels) if not kernel.gluon]
    in_gluon = [k for k, kernel in enumerate(kernels) if kernel.gluon and size_of(dtype) < 4]
    shifted = [in_triton[number % len(in_triton)], *in_gluon]
    # The first two kernels, one of each language, are those of other tests: they have sendrecv of fp16.
    return [(ops[(number + k // 2 + 1) % len(ops)], kernel, k in shifted) for k, kernel in enumerate(kernels)]


def _ragged_message(op: str, dtype: str, kernel: Kernel, is_shifted: bool) -> Iterator[CollectiveCase]:
    plain = CollectiveCase(
        op=op, dtype=dtype, block_m=kernel.block_m, block_n=kernel.block_n, warps=kernel.warps,
        swizzle=kernel.swizzle, gluon=kernel.gluon, default=kernel.default,
    )  # fmt: skip
    for k, (row, column) in enumerate(ENDS):
        m, n = 2 * kernel.block_m + row + 8 * (k % max(1, kernel.block_m // 8)), kernel.block_n + column
        yield replace(plain, m=m, n=n, in_pad=16 + -n % 16, out_pad=-n % 16)
        for shift in range(1 + is_shifted):
            yield replace(plain, m=1, n=m * kernel.block_n + column, shift=shift)
            yield replace(plain, m=m, n=n, in_pad=2, out_pad=2, shift=shift, turned="both")


def simplest(ranks: int, op: str, dtype: str, build: Build, shape: tuple[int, int] = (5, 70)) -> CollectiveCase:
    """Return one call with the kernel of ``build``, which ``drawn`` draws too, of all ranks or of a group. ``shape``:
    rows and columns, as far as the kernel's extent allows."""
    in_pad, out_pad, shift, turned = build.layout
    kernel, collective = build.kernel, COLLECTIVES[op]
    members = max(len(members_of(build.groups[0], rank, ranks)) for rank in range(ranks))
    parts = max(rows * columns for rows, columns in collective.shapes(1, 1, members))
    m, n = of_extent(build.extent, *shape, (in_pad, out_pad), bool(turned), parts)
    return collective.case(
        dtype=dtype, reduce=build.reduce, m=m, n=n, block_m=kernel.block_m, block_n=kernel.block_n, warps=kernel.warps,
        swizzle=kernel.swizzle, in_pad=in_pad, out_pad=out_pad, shift=shift, turned=turned,
        in_place=collective.in_place == ALWAYS or build.in_place, group=build.groups[0], default=kernel.default,
        gluon=kernel.gluon, variant=kernel.variant, protocol=kernel.protocol, distribution=build.distribution,
    )  # fmt: skip


@functools.cache
def _builds(
    kernels: tuple[tuple[str, tuple[Kernel, ...]], ...], grouped: bool, few: bool = False
) -> Mapping[tuple[str, str | int], Sequence[Build]]:
    """Return the builds for ops (or variants) and element types (or widths), the simplest first.

    ``kernels`` are those of each op. Every op has every kernel, layout, extent, element type, reduction and number of
    members. Every width of elements that are only moved has every kernel. Unless ``few``, every element type of a
    reduction has every operation, every algorithm and both languages.
    """
    of_op = dict(kernels)
    ops = {name: described(name) if name not in ACCUMULATING else COLLECTIVES["all_reduce"] for name in of_op}
    reduces = any(op.reduces for op in ops.values())

    def valid(row: Mapping[str, Any]) -> bool:
        if row["kernel"] >= len(of_op[row["op"]]):
            return False
        kernel, dtype = of_op[row["op"]][row["kernel"]], row["dtype"]
        if kernel.protocol and (size_of(dtype) if reduces else dtype) > 4:
            return False
        if reduces and row["reduce"] not in (atomic_ops(dtype) if kernel.variant == "atomic" else reduce_ops(dtype)):
            return False
        if row["extent"] in SMALL and row["layout"] not in (None, LAYOUTS[0]):
            return False
        return not row["in_place"] or ops[row["op"]].in_place == SOMETIMES

    parameters = {
        "op": tuple(of_op), "dtype": ALL if reduces else (1, 2, 4, 8),
        # A kernel for one element shows little, so that of few kernels only one is: first is the most frequent.
        "kernel": range(max(map(len, of_op.values()))), "extent": (*EXTENTS[few:], *EXTENTS[:few]),
        "reduce": reduce_ops("int32") if reduces else ("sum",), "in_place": (False, True)[: 1 + reduces],
        "layout": (None,) if reduces else LAYOUTS,
    }  # fmt: skip
    pairs = [("op", name) for name in parameters if name != "op"]
    if not few:
        pairs += [("dtype", "reduce"), ("dtype", "extent"), ("kernel", "extent")]
    if not reduces:
        pairs.append(("dtype", "kernel"))
    elif not few:
        # The kernels of one algorithm differ in the tile, which does not depend on the type of what is reduced.
        pairs += [("dtype", "algorithm"), ("dtype", "gluon")]
    derived = {
        "algorithm": lambda row: (of_op[row["op"]][row["kernel"]].variant, of_op[row["op"]][row["kernel"]].protocol),
        "gluon": lambda row: of_op[row["op"]][row["kernel"]].gluon,
    }
    rows = covering(parameters, strength=1, also=pairs, derived=derived, valid=valid)
    parties = PARTIES if grouped else (("world",),)
    builds: dict[tuple[str, str | int], list[Build]] = {}
    for name in of_op:
        for number, row in enumerate(row for row in rows if row["op"] == name):
            # Groups, shares and a reduction's layouts go round, at distances that have no common factor.
            plain = row["extent"] in SMALL
            layout = row["layout"] or LAYOUTS[0 if plain else number % len(LAYOUTS)]
            party = parties[number % len(parties)]
            build = Build(
                of_op[name][row["kernel"]], layout, row["extent"], party, row["reduce"], row["in_place"],
                1 - number // 2 % 2 * ops[name].has_distribution,
            )  # fmt: skip
            builds.setdefault((name, row["dtype"]), []).append(build)
    return builds


def _published(cases: Cases) -> Cases:
    return cases if judged.extended() else cases.map(published)


@st.composite
def _accumulation(
    draw: st.DrawFn, ranks: int, dtype: str, build: Build, limits: tuple[int, int] | None = None
) -> CollectiveCase:
    case = draw(_of_build(ranks, "all_reduce", dtype, build, limits))
    rings = 1 + (build.extent == "ragged") if build.kernel.variant == "ring" else case.rings
    return replace(case, rings=rings, comm_sms=max(case.comm_sms, rings))


@st.composite
def _message(draw: st.DrawFn, ranks: int, op: str, dtype: str, kernel: Kernel, is_shifted: bool) -> CollectiveCase:
    in_pad, out_pad, shift, turned = draw(st.sampled_from(LAYOUTS))
    build = Build(kernel, (in_pad, out_pad, shift * is_shifted, turned), "any", GROUPS if ranks > 1 else ("world",))
    kinds = [name for name in ALL if size_of(name) == size_of(dtype)]
    case = draw(_of_build(ranks, "send", draw(st.sampled_from(kinds)), build))
    if (case.in_pad, case.turned) == (16, "") and draw(st.booleans()):  # rows that begin, but do not end, at a vector
        case = replace(case, in_pad=-case.n % 16, out_pad=-case.n % 16)
    return replace(case, op=op, root=draw(st.integers(0, ranks - 2)) if op == "sendrecv" else 0)


@st.composite
def small(
    draw: st.DrawFn, ranks: int, op: str, variant: str, dtypes: Sequence[str], limits: tuple[int, int]
) -> CollectiveCase:
    """Draw one call of a collective with a kernel that ``drawn`` or, for a variant of ``ACCUMULATING``, that
    ``accumulations`` draws too, with at most ``limits`` rows and columns, or 16."""
    if variant:
        builds = _builds(tuple(ACCUMULATING.items()), ranks > 1, few=True)
        rows = [(dtype, build) for dtype in dtypes for build in builds.get((variant, dtype), ())]
    else:
        rows = [(dtype, build) for dtype in dtypes for build in builds_of(ranks, op, dtype)]
    dtype, build = draw(st.sampled_from(rows))
    cases = _accumulation(ranks, dtype, build, limits) if variant else _of_build(ranks, op, dtype, build, limits)
    return replace(draw(cases), calls=1, reuse=False)


@st.composite
def collectives(
    draw: st.DrawFn, ranks: int, name: str, dtype: str, kernels: tuple[Kernel, ...] | None = None
) -> CollectiveCase:
    """Draw a case of one collective with one element type and any build; ``kernels`` replaces those of the op."""
    op = described(name)
    chosen = kernels if kernels is not None else op.drawn_kernels(ranks)
    reductions = reduce_ops(dtype) if op.reduces else ("sum",)
    build = Build(
        kernel=draw(st.sampled_from([one for one in chosen if size_of(dtype) <= 4 or not one.protocol])),
        layout=draw(st.sampled_from(LAYOUTS)),
        extent="any",
        groups=GROUPS if ranks > 1 else ("world",),
        reduce=draw(st.sampled_from(reductions)),
        in_place=op.in_place == SOMETIMES and draw(st.booleans()),
        distribution=draw(st.sampled_from([1, 0])) if op.has_distribution else 1,
    )
    return draw(_of_build(ranks, name, dtype, build))


@st.composite
def _of_build(
    draw: st.DrawFn, ranks: int, name: str, dtype: str, build: Build, limits: tuple[int, int] | None = None
) -> CollectiveCase:
    """Draw a case of one collective that runs the kernel of ``build``. ``limits``: rows and columns of its shape."""
    op, kernel = described(name), build.kernel
    in_pad, out_pad, shift, turned = build.layout
    group = draw(st.sampled_from(build.groups))
    # One call, several calls with their own tensors, or several calls on the same tensors.
    calls, reuse = draw(st.sampled_from([(1, False), (3, False), (4, True)]))
    m = draw(extents(kernel.block_m, 40))
    n = draw(extents(kernel.block_n, 272))
    members = max(len(members_of(group, rank, ranks)) for rank in range(ranks))
    m, n = _fitting(op, m, n, members, max(in_pad, out_pad), ROOM // size_of(dtype) // (1 if reuse else calls))
    if limits is not None:
        m, n = min(m, limits[0]), min(n, limits[1])
    m, n = of_extent(build.extent, m, n, (in_pad, out_pad), bool(turned), members)
    late = draw(st.sampled_from([False, False, True]))
    return CollectiveCase(
        op=name,
        dtype=dtype,
        reduce=build.reduce,
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
        in_place=op.in_place == ALWAYS or build.in_place,
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
        distribution=build.distribution,
    )


def of_extent(
    extent: str, m: int, n: int, pads: tuple[int, int], turned: bool, members: int
) -> tuple[int, int]:  # fmt: skip
    """Return a shape of the kind ``extent`` that is near (m, n) and not larger, or has few elements. An empty tensor,
    which does nothing, stays empty, and has the kernel of others. ``members``: the parts of the larger one of input and
    output."""
    if extent == "any":
        return m, n
    if not m * n:
        rows, columns = of_extent(extent, max(m, 1), max(n, 1), pads, turned, members)
        return rows * (m > 0), columns * (n > 0)
    if extent == "one":
        return 1, 1
    if extent == "aligned":
        return _odd(m), max(16, n // 16 * 16)
    if extent == "whole":
        return max(16, m // 16 * 16), max(16, n // 16 * 16)

    def plain(rows: int, columns: int) -> bool:
        """Return whether no size, stride and distance of parts is a multiple of 16."""
        return all(number % 16 for number in _numbers(rows, columns, pads, turned, members))

    heights = (1,) if extent == "row" else tuple(rows for rows in (m, m - 1, 3) if rows > 1)
    shapes = [(rows, columns) for rows in heights for columns in (*range(n, 2, -1), 3, 7)]
    return next((shape for shape in shapes if plain(*shape)), shapes[-1])


def _numbers(rows: int, columns: int, pads: tuple[int, int], turned: bool, members: int) -> list[int]:
    """Return the sizes, strides and distances of parts that a kernel may be compiled for."""
    width = rows if turned else columns
    numbers = [columns, rows * columns]
    for pad in pads:
        numbers += [width + pad, width * members + pad, rows * (columns + pad), columns * (rows + pad)]
    return numbers


def _odd(size: int) -> int:
    """Return the greatest odd number from 3 to ``size``, or 3."""
    return max(3, size - 1 + size % 2)


@st.composite
def extents(draw: st.DrawFn, tile: int, limit: int) -> int:
    """Draw a number of rows or columns: a few, none, whole tiles, one more or less than a tile, or any up to
    ``limit``."""
    kind = draw(st.sampled_from(["few", "edge", "whole", "edge", "any", "zero"]))
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
