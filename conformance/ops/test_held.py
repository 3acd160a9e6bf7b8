"""A fused product waits for every rank, in every variant: the first rank, or the last one, is held back in each call.

The rank held back begins a call when each other rank has ended its own or can do nothing more without it; see
``conformance.collectives.test_held``. All calls use the same tensors and one workspace, so a rank that runs ahead also
overwrites what the rank held back has not read yet, and one that writes the other's output too early finds it
overwritten: it is reset directly before each call.

With the first rank held back, the caller passes the workspace. With the last one it passes none, and the last call is
of another configuration: each configuration keeps the workspace that its preamble has prepared. On the emulated device
a host that waits for the rank held back waits for ever.
"""

from dataclasses import replace

from conformance.ops.held import held_cases
from conformance.ops.operations import PRODUCTS
from conformance.ops.products import config, inputs_of, invoke, judge, prepare, refill, wanted_of
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.oracles import bool_all

CALLS = 3


def run(env, case, held):
    product, findings = prepare(env, case), Findings(env.rank)
    given = [inputs_of(env, case, product, k) for k in range(case.calls)]
    wanted = [wanted_of(env, case, product, values) for values in given]
    staged = [{name: value.to(env.device.torch_device) for name, value in values.items()} for values in given]
    steps = [env.gate.step() for _ in range(case.calls + 1)]
    ops, outputs, passing = env.iris.ops, [], held == 0
    settings = [config(env, one) for one in (case, case if passing else replace(case, sms=1))]
    unwritten = product.tensors["c"].clone()
    env.settle()
    with env.acting():
        preamble, matrices = getattr(ops, f"{case.op}_preamble"), [product.tensors[name] for name in "cab"]
        workspaces = [preamble(*matrices, config=one) for one in settings]
        for number, (step, values) in enumerate(zip(steps, staged, strict=False)):
            if env.rank == held:
                env.gate.hold(step, in_kernels=env.device.name == "emulated")
            refill(product, values, unwritten)
            env.gate.enter(step)
            with env.gate.watching():
                passed = workspaces[0] if passing else None
                workspace = invoke(case, product, settings[number // 2], passed, ops)
                outputs.append(product.tensors["c"].clone())
                env.device.synchronize()
            env.gate.reach(step)
        workspace.wait()
    env.gate.enter(steps[-1])
    env.gate.reach(steps[-1])
    env.settle()
    if bool_all(env.fault is None):
        with env.acting():
            for one in workspaces:
                one.clear()  # the next cases have the same heap
    return judge(env, case, product, given, wanted, outputs, findings)


def cases(ranks, op):
    return held_cases(op, CALLS)


@requirement(
    "FUSED-HELD-001",
    cases=cases,
    ranks=2,
    op=tuple(PRODUCTS),
    weak=False,
    one_process_on_gpus="it holds ranks back while calls of others are enqueued",
)
def test_held(check, case):
    for held in (0, check.ranks - 1):
        check(run, case, held=held)
