"""async_op=False: no member's call returns before its output is there, also when another member comes late.

Each output is looked at as soon as the call has returned, on a stream that waits for nothing.
"""

from dataclasses import replace

from conformance.collectives.calls import run
from fixtures.requirement import requirement
from harness.cases import COLLECTIVES, CollectiveCase, low_latency


def cases(ranks, op):
    found = [
        CollectiveCase(op=op, dtype="int32", m=5, n=70, in_place=op == "broadcast", root=late, skewed=late, skew_ms=60)
        for late in ((0, 1) if op == "all_gather" else (ranks - 1,))
    ]
    variant = "one_shot" if op == "all_reduce" else ""
    return found + [replace(found[-1], variant=variant, protocol="ll")] * (low_latency(op, ranks))


@requirement("CCL-WAIT-001", cases=cases, ranks=2, op=COLLECTIVES)
def test_waits(check, case):
    check(run, case)
