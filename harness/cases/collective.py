"""One or several calls of a collective."""

from __future__ import annotations

from dataclasses import dataclass

from harness.cases.registry import case_type


@case_type
@dataclass(frozen=True)
class GatherCase:
    """``calls`` all_gathers of an (m, n) tensor. ``group``: "world", "halves" (consecutive), "stride" (every second
    rank).

    ``in_pad`` and ``out_pad`` are elements between the rows of input and output. ``skewed`` delays that rank (-1:
    none) for ``skew_ms`` before each call. ``default``: no Config is passed, so block size and the like are the
    library's. ``reuse``: all calls use the same tensors, with a barrier of the caller between them; else each has
    its own and nothing stands between the calls. ``comm_sms`` work-groups (per member of the group where the variant
    is "partitioned"), ``warps`` wavefronts each. ``gluon``: the Gluon kernel, which is persistent, else Triton's.
    """

    dtype: str = "fp32"
    m: int = 1
    n: int = 1
    block_m: int = 8
    block_n: int = 64
    warps: int = 1
    comm_sms: int = 2
    swizzle: int = 4
    in_pad: int = 0
    out_pad: int = 0
    group: str = "world"
    calls: int = 1
    async_op: bool = False
    reuse: bool = False
    skewed: int = -1
    skew_ms: int = 0
    default: bool = False
    gluon: bool = True
    variant: str = "persistent"


def members_of(group: str, rank: int, ranks: int) -> tuple[int, ...]:
    """The global ranks of the group that ``rank`` is in. Every rank is in one, since collectives are matched by all."""
    if group == "halves" and ranks > 1:
        half = ranks // 2
        return tuple(range(half)) if rank < half else tuple(range(half, ranks))
    if group == "stride" and ranks > 1:
        return tuple(range(rank % 2, ranks, 2))
    return tuple(range(ranks))


def chunks_of(group: str, ranks: int) -> tuple[tuple[int, ...], ...]:
    """All groups of that kind, in order of their first rank: what every rank creates, in the same order."""
    return tuple(sorted({members_of(group, rank, ranks) for rank in range(ranks)}))
