"""A fused product waits for a rank that stops inside its kernels, in every variant, wherever that is.

The first rank, or the last one, stops in each call before another step that the other ranks can notice; see
``conformance.collectives.test_steps``. All calls use the same tensors and one workspace.
"""

from conformance.ops.held import held_cases
from conformance.ops.operations import PRODUCTS
from conformance.ops.products import config, inputs_of, invoke, judge, prepare, wanted_of
from conformance.support.steps import PLACES, place
from fixtures.findings import Findings
from fixtures.requirement import requirement


def run(env, case, held):
    product, findings = prepare(env, case), Findings(env.rank)
    given = [inputs_of(env, case, product, k) for k in range(case.calls)]
    wanted = [wanted_of(env, case, product, values) for values in given]
    staged = [{name: value.to(env.device.torch_device) for name, value in values.items()} for values in given]
    steps = [env.gate.step() for _ in range(case.calls + 1)]
    ops, settings, outputs, counted, at = env.iris.ops, config(env, case), [], 0, 0
    env.settle()
    with env.acting():
        workspace = getattr(ops, f"{case.op}_preamble")(*(product.tensors[name] for name in "cab"), config=settings)
        for number, (step, values) in enumerate(zip(steps, staged, strict=False)):
            if number:
                at = place(number, counted)
            for name, value in values.items():
                product.tensors[name].copy_(value.view(product.tensors[name].shape))
            env.gate.enter(step)
            holds = env.rank == held
            with env.gate.holding_inside(step, at, steps[-2]) if holds else env.gate.watching() as count:
                workspace = invoke(case, product, settings, workspace, ops)
                outputs.append(product.tensors["c"].clone())
                env.device.synchronize()
            if number == 0:
                counted = count[0]
            env.gate.reach(step)
        workspace.wait()
    findings.true("the kernels of the rank that stops have steps", env.rank != held or counted)
    env.gate.enter(steps[-1])
    env.gate.reach(steps[-1])
    env.settle()
    return judge(env, case, product, given, wanted, outputs, findings)


def cases(ranks, op):
    return held_cases(op, 1 + PLACES)


@requirement(
    "FUSED-STEPS-001",
    cases=cases,
    ranks=2,
    op=tuple(PRODUCTS),
    weak=False,
    device="emulated",
    because="only there can a rank stop inside a kernel",
)
def test_steps(check, case):
    for held in (0, check.ranks - 1):
        check(run, case, held=held)
