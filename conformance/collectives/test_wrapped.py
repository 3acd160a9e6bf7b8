"""The counts of a group's turns and epochs may wrap: calls give their results when the counts pass 2^31 and 2^32.

No test can make that many calls, so the counts are set to a value just before. They are memory of the library, which
the bundled one sets by ``Iris.members().preset``: a library without it does not support this requirement.
"""

from conformance.collectives.calls import run
from conformance.collectives.operations import COLLECTIVES
from fixtures.requirement import requirement

WRAPS = (2**31, 0)
"""Counts that an int32 passes from its largest value, and from -1."""

BEFORE = (1, 5)
"""Distances of the first count from the wrap: in the first call, whose words are in no slot yet, or two calls later."""


def run_wrapping(env, case, start):
    env.iris.members().preset(start)
    env.settle()
    return run(env, case)


def cases(ranks, op):
    op = COLLECTIVES[op]
    plain = op.case(dtype="fp32", m=5, n=70, root=ranks - 1, calls=6, reuse=True, async_op=True, skewed=0, skew_ms=5)
    return [plain, *op.also_fast(plain, ranks)]


@requirement("CCL-WRAP-001", cases=cases, ranks=2, op=COLLECTIVES)
def test_wrapped_counts(check, case):
    for start in (wrap - before for wrap in WRAPS for before in BEFORE):
        check(run_wrapping, case, start=start)
