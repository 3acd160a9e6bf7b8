"""async_op=False: no member's call returns before its output is complete, even if another member calls late.

Each output is read as soon as the call has returned, on a stream that waits for no other work.
"""

from conformance.collectives.calls import run
from conformance.collectives.operations import COLLECTIVES
from fixtures.requirement import requirement


def cases(ranks, op):
    op = COLLECTIVES[op]
    listed = [op.case(dtype="fp32", m=5, n=70, root=late, skewed=late, skew_ms=60) for late in (0, ranks - 1)]
    return listed + op.also_fast(listed[-1], ranks)


@requirement("CCL-WAIT-001", cases=cases, ranks=2, op=COLLECTIVES)
def test_waits(check, case):
    check(run, case)
