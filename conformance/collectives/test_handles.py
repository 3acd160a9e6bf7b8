"""async_op=True: the call returns a handle before the operation is done, and the handle waits for it.

001  ``wait()`` lets what another stream holds from then on run behind the operation, without holding up the host;
     ``synchronize()`` holds up the host until it is done; ``is_completed()`` says whether it is, and waits for nothing.
     A rank whose peers come late has returned from its call long before them.
"""

import torch

from conformance.collectives.calls import config, fill, invoke, judge, prepare
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import COLLECTIVES, CollectiveCase
from harness.oracles import meet


def run(env, case):
    found = Findings(env.rank)
    calls = prepare(env, case)
    env.settle()
    outputs = []
    with env.acting():
        settings = config(env, case, env.world_size)
        for k, call in enumerate(calls):
            env.late(case.skewed, case.skew_ms)
            handle = invoke(env, case, call, settings)
            outputs.append(_looked_at(env, handle, call, found, by_host=k % 2 == 1))
            found.equal(f"is_completed() of call {k} behind its end", handle.is_completed(), True)
    env.settle()
    return judge(env, case, calls, outputs, found)


def _looked_at(env, handle, call, found, *, by_host):
    """The output behind the handle: by a stream that waits for nothing else, or by the host."""
    found.true("is_completed() gives a truth value", isinstance(handle.is_completed(), bool))
    if by_host:
        handle.synchronize()
        return None if call.output is None else call.output.cpu()
    if not env.image.arena.is_cuda:
        handle.wait()
        return None if call.output is None else call.output.clone()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        handle.wait()
        copy = None if call.output is None else call.output.clone()
    side.synchronize()
    return copy


def cases(ranks, op):
    return [
        CollectiveCase(
            op=op, dtype="int32", m=9, n=70, in_place=op == "broadcast", calls=2, async_op=True, skewed=0, skew_ms=20
        )
    ]


@requirement("CCL-ASYNC-001", cases=cases, op=COLLECTIVES)
def test_handles(check, case):
    check(run, case)


def run_ahead(env, case):
    """On GPUs the host does not wait for its peers: the late rank makes its calls when the others have made all of
    theirs. A host that waits keeps everyone waiting, which is a hang."""
    found = Findings(env.rank)
    calls = prepare(env, case)
    settings = config(env, case, env.world_size)
    invoke(env, case, calls[0], settings).synchronize()  # compiled
    env.settle()
    fill(calls[0])
    if env.rank == case.skewed:
        meet()
    with env.acting():
        try:
            handles = [invoke(env, case, call, settings) for call in calls]
            if env.rank != case.skewed:
                found.equal("is_completed() while a member is late", handles[-1].is_completed(), False)
        finally:
            if env.rank != case.skewed:
                meet()
        for handle in handles:
            handle.synchronize()
    env.settle()
    return judge(env, case, calls, [call.output for call in calls], found)


def ahead_cases(ranks):
    return [CollectiveCase(op="all_gather", dtype="int32", m=9, n=70, calls=3, async_op=True, skewed=0)]


@requirement(
    "CCL-ASYNC-002",
    cases=ahead_cases,
    ranks=2,
    device="gpu",
    because="on the emulated device a call returns when its kernel has ended",
)
def test_the_host_does_not_wait(check, case):
    check(run_ahead, case)
