"""Collectives are ordered by the stream: 64 calls with changing data are queued before one synchronization.

With the same tensors for all calls, the next input is enqueued directly after a call, and must not change data that
other ranks still read. After each call, a copy of the output is enqueued as well, and the next call of a faster rank
must not overwrite the output before that copy was made. With different tensors for each
call, nothing is enqueued between the calls. In weak memory and under the race detector, where 64 calls take too long,
it is a few calls.
"""

from dataclasses import replace

from conformance.collectives.calls import run
from conformance.collectives.operations import COLLECTIVES, NEVER, one_of_each_kind
from fixtures.requirement import requirement

CALLS, FEW_CALLS = 64, 6
FEW = (66, 65, 67)
"""Columns of the cases with few calls: those of the gate in weak memory, and under the race detector."""


def cases(ranks, op):
    op = COLLECTIVES[op]
    common = {"dtype": "fp32", "m": 3, "n": 66, "calls": CALLS, "async_op": True}
    same = op.case(**common, root=1, reuse=True)
    listed = [*(replace(same, calls=FEW_CALLS, n=n) for n in FEW), same, *op.also_fast(same, ranks)]
    if op.name in one_of_each_kind():
        few = {"in_place": op.in_place != NEVER, "variant": op.variants[0].name, "group": "uneven", "comm_sms": 1}
        listed.append(op.case(**common, **few))
    return listed


@requirement("CCL-STREAM-001", cases=cases, ranks=2, op=COLLECTIVES)
def test_queued(check, case):
    check(run, case)
