"""Hypothesis strategies for cases. Everything shrinks towards one element, rank 0 to rank 1, no mask pattern.

What selects another compiled kernel (block shape, mask form, order, modifiers, alignment) is drawn from small sets,
because a compile costs as much as ten cases; counts, offsets, ranks and mask patterns are free, because they are
run-time values.
"""

from __future__ import annotations

import math

from hypothesis import strategies as st

from harness.cases.atomic import AtomicCase
from harness.cases.dtypes import size_of, vector_of
from harness.cases.simple import MessageCase
from harness.cases.tracing import TraceCase
from harness.cases.transfer import LANES, MASKS, REGION, TransferCase

SHAPES = ((1, 1), (0, 4), (2, 2))
"""(size per thread, wavefronts) of the blocks; 0 stands for 16 bytes per thread."""


@st.composite
def rank_patterns(draw: st.DrawFn, ranks: int) -> tuple[tuple[int, ...], ...]:
    """For each rank, the ranks that it acts on: one pair, itself, neighbours, all on one, one on all, a permutation.

    Every kind makes the same draws: Hypothesis takes a shorter sequence of draws for a simpler case.
    """
    kind = draw(st.sampled_from(["pair", "neighbour", "self", "all_to_one", "one_to_all", "permutation"]))
    root = draw(st.integers(0, ranks - 1))
    code = draw(st.integers(0, math.factorial(ranks) - 1))
    step = (1 + code) % ranks
    nobody: tuple[int, ...] = ()
    if kind == "pair":
        return tuple(((root + step) % ranks,) if rank == root else nobody for rank in range(ranks))
    if kind == "neighbour":
        return tuple(((rank + step) % ranks,) for rank in range(ranks))
    if kind == "self":
        return tuple((rank,) for rank in range(ranks))
    if kind == "all_to_one":
        return tuple((root,) for _ in range(ranks))
    if kind == "one_to_all":
        return tuple(tuple(range(ranks)) if rank == root else nobody for rank in range(ranks))
    return tuple((peer,) for peer in _permutation(ranks, code))


def _permutation(ranks: int, code: int) -> list[int]:
    """The permutation with that number in the factorial number system."""
    left, chosen = list(range(ranks)), []
    for size in range(ranks, 0, -1):
        code, place = divmod(code, size)
        chosen.append(left.pop(place))
    return chosen


@st.composite
def counts(draw: st.DrawFn, block: int, most: int, step: int = 1) -> int:
    """Element counts that are multiples of ``step`` up to ``most``: 1 and few, 0, around a block's end, several
    blocks."""
    kind = draw(st.sampled_from(["few", "zero", "edge", "several"]))
    code = draw(st.integers(0, 4095))
    limit = max(1, most // step)
    if kind == "zero":
        return 0
    if kind == "few":
        return step * (1 + code % min(40, limit))
    if kind == "edge":
        return step * min(limit, max(1, block // step + code % 3 - 1))
    least = max(1, min(block, most) // step)
    return step * (least + code % (limit - least + 1))


@st.composite
def transfers(
    draw: st.DrawFn,
    ranks: int,
    dtype: str,
    *,
    other: bool = False,
    volatile: bool = False,
    direction: bool = False,
    form: str = "gluon",
) -> TransferCase:
    """Cases of put, store, get, load and copy in one ``form``. ``other``, ``volatile``, ``direction``: whether the op
    has such an argument."""
    targets = draw(rank_patterns(ranks))
    spt, warps = draw(st.sampled_from(SHAPES))
    mask = draw(st.sampled_from(["range", "none", *MASKS[2:]]))
    aligned = draw(st.booleans()) or mask == "none"
    block = (spt or vector_of(dtype)) * LANES * warps
    most = min(5 * block, REGION // size_of(dtype) - block - 64)
    n = draw(counts(block, most, 16 if aligned else 1))
    if mask == "none":
        n = block * min(max(1, most // block), max(1, -(-n // block)))
    step = vector_of(dtype) if aligned else 1
    return TransferCase(
        dtype=dtype,
        n=n,
        targets=targets,
        spt=spt,
        warps=warps,
        mask=mask,
        other=other and draw(st.booleans()) and mask != "none",
        src_offset=step * draw(st.integers(0, 64 // step)),
        dst_offset=step * draw(st.integers(0, 64 // step)),
        aligned=aligned,
        volatile=volatile and draw(st.sampled_from([False, False, False, True])),
        direction=draw(st.sampled_from(["to", "from"])) if direction else "to",
        retyped=direction and draw(st.sampled_from([False, False, True])),
        form=form,
        hinted=form != "gluon" and aligned and draw(st.booleans()),
    )


ORDERS = ((None, None), ("relaxed", "gpu"), ("acq_rel", "sys"), ("release", "sys"), ("acquire", "cta"))
_SAFE_SUM = {"fp16": 2048, "bf16": 256}
_ONE_BIT = {"int32": 31, "int64": 63}


def contributions_per_cell(op: str, dtype: str) -> int:
    """How many operations one cell may take so that every intermediate value is exact, and tells which ones came
    before."""
    if op in ("and", "or", "xor"):
        return _ONE_BIT[dtype]
    if op in ("add", "sub"):
        return _SAFE_SUM.get(dtype, 4096) // 4
    return 4096


@st.composite
def atomics(draw: st.DrawFn, ranks: int, op: str, dtype: str, form: str = "gluon") -> AtomicCase:
    """Cases of one atomic in one ``form``. Contention on a cell stays within ``contributions_per_cell``."""
    targets = draw(rank_patterns(ranks))
    # Triton 3.6 cannot compile a compare-and-swap of several elements per thread.
    spt, warps = draw(st.sampled_from([(1, 1), (0, 1), (1 if op == "cas" else 2, 4)]))
    sem, scope = draw(st.sampled_from(ORDERS))
    mask = draw(st.sampled_from(["range", "holes", "even", "all_false"]))
    mask = mask if spt and op != "cas" else "range"
    block = max(1, spt * LANES * warps)
    n = draw(counts(block, 2 * block))
    if op == "cas" and spt:
        n = block * max(1, n // block)  # atomic_cas takes no mask: only whole blocks
    elif not spt:
        n = 1 + n % 6
    actors = max((sum(peer in peers for peers in targets) for peer in range(ranks)), default=1)
    fewest = -(-n // max(1, contributions_per_cell(op, dtype) // max(1, actors)))
    cells = max(fewest, draw(st.sampled_from([1, 2, 3, 7, 64, max(1, n)])))
    return AtomicCase(
        op=op,
        dtype=dtype,
        n=n,
        cells=cells,
        targets=targets,
        spt=spt,
        warps=warps,
        mask=mask,
        returned=draw(st.sampled_from([True, True, True, False])),
        sem=sem,
        scope=scope,
        offset=draw(st.integers(0, 32)),
        high=draw(st.booleans()) if dtype.startswith("int") else False,
        form=form,
    )


@st.composite
def messages(draw: st.DrawFn, dtype: str, shape: str, form: str = "gluon") -> MessageCase:
    """Cases of message passing in one ``form``."""
    spt, warps = draw(st.sampled_from([(1, 1), (1, 4), (4, 4)]))
    late = draw(st.sampled_from(["nobody", "producer", "consumer"]))
    return MessageCase(
        dtype=dtype,
        blocks=draw(st.integers(1, 6)),
        spt=spt,
        warps=warps,
        tail=draw(st.integers(0, 63)),
        rounds=draw(st.integers(1, 3)),
        flag=draw(st.sampled_from(["cas", "xchg", "add"])),
        shape=shape,
        late=late,
        late_ms=draw(st.integers(1, 20)) if late != "nobody" else 0,
        form=form,
    )


TRACED = {
    "put": ((3,), "int32", 1, 1, True, True),
    "first": (tuple(range(7)), "fp16", 4, 4, True, True),
    "last": (tuple(range(13, 6, -1)), "fp64", 1, 4, False, False),
}
"""What traced kernels are compiled with: kinds, dtype, size per thread, wavefronts, whether a mask is told, and whether
events are ended. Each kind of event is in one of the last two."""


@st.composite
def traces(draw: st.DrawFn, ranks: int, form: str, kernel: str) -> TraceCase:
    """Cases of tracing; ``kernel`` is of ``TRACED``."""
    kinds, dtype, spt, warps, masked, ended = TRACED[kernel]
    grid = draw(st.integers(1, 6))
    launches = draw(st.integers(1, 3))
    count = grid * launches * len(kinds)
    return TraceCase(
        form=form,
        kinds=kinds,
        dtype=dtype,
        step=draw(st.integers(0, ranks - 1)),
        grid=grid,
        n=draw(counts(spt * 64 * warps, grid * spt * 64 * warps)),
        masked=masked,
        ended=ended,
        launches=launches,
        room=draw(st.sampled_from([count, count + 1, max(1, count - 1), max(1, count // 2), 1, 4096])),
        spt=spt,
        warps=warps,
    )
