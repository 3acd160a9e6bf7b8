"""A collective waits for a member that stops inside its kernel, in every variant, wherever that is.

Each member in turn stops in each call before another step that the other members can notice: a transfer, a flag, a
poll (``conformance.support.steps``). It goes on when each other member has ended all calls or can do nothing more
without it. The first call, in which no member stops, counts the steps. All calls use the same tensors: a
member that goes ahead too far overwrites what the other one has not read, or reads what it has not written.
"""

from conformance.collectives.calls import config, copied, fill, invoke, judge, prepare
from conformance.collectives.held import held_cases
from conformance.collectives.operations import COLLECTIVES
from conformance.support.steps import CALLS, Stops
from fixtures.findings import Findings
from fixtures.requirement import requirement


def run(env, case, stopping):
    calls = prepare(env, case)
    stops, findings, outputs, handles = Stops(env, stopping), Findings(env.rank), [], []
    env.settle()
    with env.acting():
        settings = config(env, case, env.world_size)
        for number, call in enumerate(calls):
            if number:
                fill(call)
            with stops.call(number):
                handles.append(invoke(env, case, call, settings))
                outputs.append(None if call.output is None else copied(call.output, enqueued=case.async_op))
        for handle in handles:
            if case.async_op and handle is not None:
                handle.wait()
    stops.end(findings)
    env.settle()
    return judge(env, case, calls, outputs, findings)


def cases(ranks, op):
    return held_cases(ranks, op, CALLS)


@requirement(
    "CCL-STEPS-001",
    cases=cases,
    ranks=2,
    op=COLLECTIVES,
    weak=False,
    device="emulated",
    checked=True,
    because="only there can a member stop inside a kernel",
)
def test_steps(check, case):
    for stopping in range(check.ranks):
        check(run, case, stopping=stopping)
