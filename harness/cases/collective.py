"""One or several calls of a collective."""

from __future__ import annotations

from dataclasses import dataclass

from harness.cases.dtypes import DType
from harness.cases.registry import case_type

REDUCTIONS = ("all_reduce", "reduce", "reduce_scatter")
"""Collectives that combine what the members give."""

ROOTED = ("broadcast", "reduce", "scatter", "gather")
"""Collectives with a member that is unlike the others."""

COLLECTIVES = ("all_gather", "all_to_all", "all_reduce", "reduce_scatter", "broadcast", "reduce", "scatter", "gather")

LOW_LATENCY = ("all_gather", "all_to_all", "all_reduce", "reduce_scatter", "broadcast")
"""Those that may have a protocol for small sizes, whose Config field is not in the reference."""

LOW_LATENCY_MEMBERS = 8
"""Members of a group for which it is drawn: what one node has. A library may refuse it for more."""

GROUPS = ("world", "halves", "stride", "reversed", "uneven")


@case_type
@dataclass(frozen=True)
class CollectiveCase:
    """``calls`` calls of ``op``, of whose input and output (m, n) is the smaller: see ``shapes_of``.

    ``reduce``: "sum" and so on, of a reduction. ``variant``, ``distribution``, ``rings``: the fields of Config that the
    op has; an empty variant is Config's own. ``protocol``: likewise, and left out
    where Config has no such field. ``group``: of ``GROUPS``; ``root``: a place in it, modulo its size.

    ``in_pad`` and ``out_pad`` are elements between the rows of input and output, ``shift`` those by which both start
    beside a multiple of 1024 bytes. ``turned`` is "", "in", "out" or
    "both": which of them are transposed, so that it is the columns that are apart. ``in_place``: the output is the
    input. ``reuse``: all calls use the same tensors, and the next input is enqueued behind the call that reads the last
    one; else each call has its own. Nothing waits between the calls, unless ``async_op`` is false.

    ``skewed`` delays that rank (-1: none) for ``skew_ms`` before each call. ``default``: no Config is passed, so block
    size and the like are the library's. ``comm_sms`` work-groups (per member of the group where the variant is
    "partitioned"), ``warps`` wavefronts each. ``gluon``: the Gluon kernel, else Triton's.
    """

    op: str = "all_gather"
    dtype: DType = "fp32"
    reduce: str = "sum"
    m: int = 1
    n: int = 1
    block_m: int = 8
    block_n: int = 64
    warps: int = 1
    comm_sms: int = 2
    swizzle: int = 4
    in_pad: int = 0
    out_pad: int = 0
    shift: int = 0
    turned: str = ""
    in_place: bool = False
    group: str = "world"
    root: int = 0
    calls: int = 1
    reuse: bool = False
    async_op: bool = False
    skewed: int = -1
    skew_ms: int = 0
    default: bool = False
    gluon: bool = False
    variant: str = ""
    protocol: str = ""
    distribution: int = 1
    rings: int = 1


def low_latency(op: str, ranks: int) -> bool:
    """Whether cases of ``op`` among so many ranks use that protocol too."""
    return op in LOW_LATENCY and ranks <= LOW_LATENCY_MEMBERS


def shapes_of(op: str, m: int, n: int, members: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """The shapes of input and output among so many members."""
    many_rows, many_columns = (members * m, n), (m, members * n)
    return {
        "all_gather": ((m, n), many_rows),
        "gather": ((m, n), many_rows),
        "scatter": (many_rows, (m, n)),
        "all_to_all": (many_columns, many_columns),
    }.get(op, ((m, n), (m, n)))


def members_of(group: str, rank: int, ranks: int) -> tuple[int, ...]:
    """The global ranks of the group that ``rank`` is in, in the group's order; of "uneven", every third is in none.

    "halves" are consecutive, "stride" is every second rank, "reversed" is all of them, and "uneven" begins with its
    highest rank.
    """
    everyone = tuple(range(ranks))
    if ranks == 1:
        return everyone
    if group == "halves":
        half = ranks // 2
        return everyone[:half] if rank < half else everyone[half:]
    if group == "stride":
        return everyone[rank % 2 :: 2]
    if group == "reversed":
        return everyone[::-1]
    if group == "uneven":
        *first, last = (one for one in everyone if one % 3 != 2)
        return (last, *first) if rank % 3 != 2 else ()
    return everyone


def chunks_of(group: str, ranks: int) -> tuple[tuple[int, ...], ...]:
    """All groups of that kind, in order of their first rank: what every rank creates, in the same order."""
    return tuple(sorted({members_of(group, rank, ranks) for rank in range(ranks)} - {()}))
