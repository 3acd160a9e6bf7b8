"""Every program of a collective takes several tiles, one after the other, in every variant.

What a program keeps for a tile, such as slots, flags and counts, it uses again for a later one, while a slower member
may not have read it. Among the first cases of each variant are some in weak memory, and one under the race detector,
which fails if nothing orders the member that reads before the one that writes again.

The variant "atomic" has a kernel for each reduction, whose atomics all other members access at the same time.
"""

from dataclasses import replace

from conformance.collectives.calls import run
from conformance.collectives.operations import COLLECTIVES, published
from fixtures import judged
from fixtures.requirement import requirement

TURNS = 3
"""Least number of tiles of each program, if the members divide the tiles among them."""
COLUMNS = (250, 249, 251, 247)
"""Four tiles of 64: a shape each for both kinds of weak memory, the race detector and ordinary memory."""


def cases(ranks, op):
    from conformance.collectives.strategies import atomic_ops

    op = COLLECTIVES[op]
    rows = 8 * -(-TURNS * ranks // 4) - 3
    plain = op.case(dtype="fp32", m=rows, n=COLUMNS[0], root=ranks - 1, comm_sms=1)
    kinds = [*(replace(plain, variant=variant.name) for variant in op.variants), *op.also_fast(plain, ranks)]
    atomics = [replace(kind, dtype="int32") for kind in kinds if kind.variant == "atomic"]
    kinds += [replace(kind, reduce=name) for kind in atomics for name in atomic_ops("int32") if name != kind.reduce]
    kinds = kinds if judged.extended() else list(dict.fromkeys(map(published, kinds)))
    return [[replace(kind, n=columns) for columns in COLUMNS] for kind in kinds]


@requirement("CCL-TURNS-001", cases=cases, ranks=2, op=COLLECTIVES)
def test_turns(check, case):
    check(run, case)
