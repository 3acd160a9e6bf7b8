"""A collective waits for every member, in every variant: the first member, or the last one, is held back in each call.

The member held back begins a call when each other member has ended its own or can do nothing more without it. So a
member that does not wait reads inputs that are not there yet, whatever the machine's speed. With the same tensors for
all calls, a member that runs ahead also overwrites what the member held back has not copied yet.
"""

from conformance.collectives.calls import config, copied, fill, invoke, judge, prepare
from conformance.collectives.held import held_cases
from conformance.collectives.operations import COLLECTIVES
from fixtures.findings import Findings
from fixtures.requirement import requirement

CALLS = 3


def run(env, case, held):
    calls = prepare(env, case)
    steps = [env.gate.step() for _ in range(case.calls + 1)]
    findings, outputs, handles = Findings(env.rank), [], []
    env.settle()
    with env.acting():
        settings = config(env, case, env.world_size)
        for step, call in zip(steps, calls, strict=False):
            if env.rank == held:
                env.gate.hold(step)
            if outputs:
                fill(call)
            env.gate.enter(step)
            with env.gate.watching():
                handles.append(invoke(env, case, call, settings))
                outputs.append(None if call.output is None else copied(call.output, enqueued=case.async_op))
                env.device.synchronize()
            env.gate.reach(step)
        for handle in handles:
            if case.async_op and handle is not None:
                handle.wait()
    env.gate.enter(steps[-1])
    env.gate.reach(steps[-1])
    env.settle()
    return judge(env, case, calls, outputs, findings)


def cases(ranks, op):
    return held_cases(ranks, op, CALLS)


@requirement(
    "CCL-HELD-001",
    cases=cases,
    ranks=2,
    op=COLLECTIVES,
    weak=False,
    one_process_on_gpus="it holds ranks back while calls of others are enqueued",
)
def test_held(check, case):
    for held in (0, check.ranks - 1):
        check(run, case, held=held)
