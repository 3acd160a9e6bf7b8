"""Collectives are ordered by the stream: 64 calls with changing data are queued before one synchronisation.

On the same tensors: the next input is enqueued right behind a call, so it may not change what the others still read;
a copy of the output is enqueued there too, so the next call of a faster rank may not change it. On tensors of its own
for each call, nothing stands between the calls.
"""

from dataclasses import replace

from conformance.collectives.calls import run
from fixtures.requirement import requirement
from harness.cases import COLLECTIVES, REDUCTIONS, CollectiveCase, low_latency

CALLS = 64


def cases(ranks, op):
    common = {"op": op, "dtype": "int32", "m": 3, "n": 66, "calls": CALLS, "async_op": True}
    in_place = op == "broadcast"
    same = CollectiveCase(**common, in_place=in_place, root=1, reuse=True)
    reduces, variant = op in REDUCTIONS, "one_shot" if op == "all_reduce" else ""
    few = CollectiveCase(**common, in_place=reduces, variant=variant, group="uneven", comm_sms=1)
    found = [same, few] if op in ("all_gather", "all_reduce") else [same]
    return found + [replace(same, variant=variant, protocol="ll")] * (low_latency(op, ranks))


@requirement("CCL-STREAM-001", cases=cases, ranks=2, op=COLLECTIVES)
def test_queued(check, case):
    check(run, case)
