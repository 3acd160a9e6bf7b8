"""A collective waits for a member that stops inside its kernel, in every variant, wherever that is.

The first member, or the last one, stops in each call before another step that the other members can notice: a transfer,
a flag, a poll (``harness.emulator.watch.steps``). It goes on when each other member has ended all calls or can do
nothing more without it. The first call, in which no member stops, counts the steps. All calls use the same tensors: a
member that goes ahead too far overwrites what the other one has not read, or reads what it has not written.
"""

from conformance.collectives.calls import config, copied, fill, invoke, judge, prepare
from conformance.collectives.held import held_cases
from conformance.collectives.operations import COLLECTIVES
from conformance.support.steps import PLACES, place
from fixtures.findings import Findings
from fixtures.requirement import requirement


def run(env, case, held):
    calls = prepare(env, case)
    steps = [env.gate.step() for _ in range(case.calls + 1)]
    findings, outputs, handles, counted, at = Findings(env.rank), [], [], 0, 0
    env.settle()
    with env.acting():
        settings = config(env, case, env.world_size)
        for number, (step, call) in enumerate(zip(steps, calls, strict=False)):
            if number:
                fill(call)
                at = place(number, counted)
            env.gate.enter(step)
            holds = env.rank == held
            with env.gate.holding_inside(step, at, steps[-2]) if holds else env.gate.watching() as count:
                handles.append(invoke(env, case, call, settings))
                outputs.append(None if call.output is None else copied(call.output, enqueued=case.async_op))
                env.device.synchronize()
            if number == 0:
                counted = count[0]
            env.gate.reach(step)
        for handle in handles:
            if case.async_op and handle is not None:
                handle.wait()
    findings.true("the kernels of the member that stops have steps", env.rank != held or counted)
    env.gate.enter(steps[-1])
    env.gate.reach(steps[-1])
    env.settle()
    return judge(env, case, calls, outputs, findings)


def cases(ranks, op):
    return held_cases(ranks, op, 1 + PLACES)


@requirement(
    "CCL-STEPS-001",
    cases=cases,
    ranks=2,
    op=COLLECTIVES,
    weak=False,
    device="emulated",
    because="only there can a member stop inside a kernel",
)
def test_steps(check, case):
    for held in (0, check.ranks - 1):
        check(run, case, held=held)
