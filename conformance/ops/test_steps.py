"""A fused product waits for a rank that stops inside its kernels, in every variant, wherever that is.

Each rank in turn stops in each call before another step that the other ranks can notice; see
``conformance.collectives.test_steps``. All calls use the same tensors and one workspace.
"""

from conformance.ops.held import held_cases
from conformance.ops.operations import PRODUCTS
from conformance.ops.products import config, inputs_of, invoke, judge, prepare, refill, wanted_of
from conformance.support.steps import CALLS, Stops
from fixtures.findings import Findings
from fixtures.requirement import requirement


def run(env, case, stopping):
    product, findings, stops = prepare(env, case), Findings(env.rank), Stops(env, stopping)
    given = [inputs_of(env, case, product, k) for k in range(case.calls)]
    wanted = [wanted_of(env, case, product, values) for values in given]
    staged = [{name: value.to(env.device.torch_device) for name, value in values.items()} for values in given]
    ops, settings, outputs = env.iris.ops, config(env, case), []
    unwritten = product.tensors["c"].clone()
    env.settle()
    with env.acting():
        workspace = getattr(ops, f"{case.op}_preamble")(*(product.tensors[name] for name in "cab"), config=settings)
        for number, values in enumerate(staged):
            refill(product, values, unwritten)
            with stops.call(number):
                workspace = invoke(case, product, settings, workspace, ops)
                outputs.append(product.tensors["c"].clone())
        workspace.wait()
    stops.end(findings)
    env.settle()
    return judge(env, case, product, given, wanted, outputs, findings)


def cases(ranks, op):
    return held_cases(op, CALLS)


@requirement(
    "FUSED-STEPS-001",
    cases=cases,
    ranks=2,
    op=tuple(PRODUCTS),
    weak=False,
    device="emulated",
    checked=True,
    because="only there can a rank stop inside a kernel",
)
def test_steps(check, case):
    for stopping in range(check.ranks):
        check(run, case, stopping=stopping)
