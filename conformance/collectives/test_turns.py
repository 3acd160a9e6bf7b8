"""Every program of a collective takes several tiles, one after the other, in every variant.

What a program keeps for a tile, such as slots, flags and counts, it uses again for a later one, while a slower member
may not have read it. Among the first cases of each variant are some in weak memory, and one under the race detector,
which fails if nothing orders the member that reads before the one that writes again.

Half of the cases have two programs, which a schedule may run in any order: one that waits for the other's words goes on
too early. The others have one, so that nothing hides what it does itself.

In one case the members make two calls with the same tensors, the second without waiting for others: a member that ends
its first call before the others have read its input overwrites that.

The variant "atomic" has a kernel for each reduction, whose atomics all other members access at the same time. A
variant that only drawn cases have, such as one whose programs divide the members among them, has a kernel of those
cases: for one row, which is a run of tiles.
"""

from dataclasses import replace

from conformance.collectives.calls import run
from conformance.collectives.operations import COLLECTIVES, published
from fixtures import judged
from fixtures.requirement import requirement

TURNS = 3
"""Least number of tiles of each program, if the members divide the tiles among them."""
TILE = 8 * 64
SHAPES = ((250, 1), (249, 3), (251, 2), (247, 1))
"""Columns of four tiles of 64, and programs: one each for a kind of weak memory, the race detector, the other kind of
weak memory and ordinary memory."""


def cases(ranks, op):
    from conformance.collectives.strategies import atomic_ops

    op = COLLECTIVES[op]
    plain = op.case(dtype="fp32", root=ranks - 1)
    kinds = [*(replace(plain, variant=variant.name) for variant in op.variants), *op.also_fast(plain, ranks)]
    atomics = [replace(kind, dtype="int32") for kind in kinds if kind.variant == "atomic"]
    kinds += [replace(kind, reduce=name) for kind in atomics for name in atomic_ops("int32") if name != kind.reduce]
    kinds = kinds if judged.extended() else list(dict.fromkeys(map(published, kinds)))
    # Each member takes all tiles in the variant "atomic", and its reductions differ in the atomic alone: the first has
    # as many tiles as other variants, the others have as few as will do.
    members = {kind: 1 if kind.reduce != plain.reduce else ranks for kind in kinds}
    lists = [
        [replace(kind, m=_rows(members[kind], programs), n=columns, comm_sms=programs) for columns, programs in SHAPES]
        for kind in kinds
    ]
    lists += [
        [replace(kind, n=TILE * TURNS * programs - 5, comm_sms=programs) for _, programs in SHAPES]
        for kind in _drawn_only(op, plain, ranks)
    ]
    return [[*others, replace(last, calls=2, reuse=True)] for *others, last in lists]


def _rows(ranks, programs):
    """Return rows of tiles of 8, the last one ragged, for all programs of all members."""
    return 8 * -(-TURNS * ranks * programs // 4) - 3


def _drawn_only(op, plain, ranks):
    """Return a case of one row for each variant that ``op.variants`` lacks, with a kernel that drawn cases have."""
    known = {"", *(variant.name for variant in op.variants)}
    row = replace(plain, m=1, dtype="fp64", group="halves" if ranks > 2 else "world")
    return [
        replace(row, variant=kernel.variant, swizzle=kernel.swizzle, warps=kernel.warps)
        for kernel in op.kernels
        if kernel.variant not in known
    ]


@requirement("CCL-TURNS-001", cases=cases, ranks=2, op=COLLECTIVES)
def test_turns(check, case):
    check(run, case)
