"""async_op=True: the call returns a handle before the operation is complete, and the handle can wait for it.

001  ``wait()`` makes later work of the current stream run after the operation, without blocking the host.
     ``synchronize()`` blocks the host until the operation is complete. ``is_completed()`` returns whether it is
     complete, without waiting. A rank's call returns even if its peers call much later.
002  A rank's calls return while another rank makes none, and are not complete then; also where all_reduce is passed a
     workspace of another variant, which it replaces.
"""

from dataclasses import replace

import torch

from conformance.collectives.calls import config, fill, invoke, judge, prepare
from conformance.collectives.operations import COLLECTIVES
from fixtures import judged
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.oracles import barrier


def run(env, case):
    findings = Findings(env.rank)
    calls = prepare(env, case)
    env.settle()
    outputs = []
    with env.acting():
        settings = config(env, case, env.world_size)
        for k, call in enumerate(calls):
            env.late(case.skewed, case.skew_ms)
            handle = invoke(env, case, call, settings)
            outputs.append(_output_after(env, handle, call, findings, by_host=k % 2 == 1))
            findings.equal(f"is_completed() of call {k} after its end", handle.is_completed(), True)
    env.settle()
    return judge(env, case, calls, outputs, findings)


def _output_after(env, handle, call, findings, *, by_host):
    """Return the output, read after the handle's wait by the host or by a stream that waits for no other work."""
    findings.true("is_completed() returns a bool", isinstance(handle.is_completed(), bool))
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
    return [COLLECTIVES[op].case(dtype="fp32", m=9, n=70, calls=2, async_op=True, skewed=0, skew_ms=20)]


@requirement("CCL-ASYNC-001", cases=cases, op=COLLECTIVES)
def test_handles(check, case):
    check(run, case)


def run_ahead(env, case):
    """Make calls whose host side must not wait for peers: one rank makes its calls after all others have made theirs.

    If a call blocked the host, the group would hang.
    """
    findings = Findings(env.rank)
    calls = prepare(env, case)
    settings = config(env, case, env.world_size)
    more = {}
    if any(variant.name == "ring" for variant in COLLECTIVES[case.op].variants):
        other = config(env, replace(case, variant="ring"), env.world_size)
        more["workspace"] = env.iris.ccl.all_reduce_preamble(calls[0].output, calls[0].input, config=other)
    invoke(env, case, calls[0], settings, **more).synchronize()  # compiled
    env.settle()
    fill(calls[0])
    if env.rank == case.skewed:
        barrier()
    with env.acting():
        try:
            handles = [invoke(env, case, call, settings, **more) for call in calls]
            if env.rank != case.skewed:
                findings.equal("is_completed() while a member is late", handles[-1].is_completed(), False)
        finally:
            if env.rank != case.skewed:
                barrier()
        for handle in handles:
            handle.synchronize()
    env.settle()
    return judge(env, case, calls, [call.output for call in calls], findings)


def ahead_cases(ranks):
    fields = {"dtype": "fp32", "m": 9, "n": 70, "calls": 3, "async_op": True, "skewed": 0}
    cases = [COLLECTIVES["all_gather"].case(**fields)]
    if judged.offers("ccl.all_reduce", "ccl.all_reduce_preamble"):
        cases.append(COLLECTIVES["all_reduce"].case(**fields, variant="two_shot"))
    return cases


@requirement(
    "CCL-ASYNC-002",
    cases=ahead_cases,
    ranks=2,
    device="asynchronous gpu",
    because="on an emulated device a call returns when its kernel has ended",
)
def test_the_host_does_not_wait(check, case):
    check(run_ahead, case)
