"""A fused product that is called again with equal arguments, and without a workspace, needs no more memory."""

from dataclasses import replace

from conformance.ops.operations import PRODUCTS
from conformance.ops.products import config, inputs_of, invoke, judge, prepare, wanted_of
from conformance.support.room import held
from fixtures.findings import Findings
from fixtures.requirement import requirement

CALLS = 3


def run(env, case):
    findings, product = Findings(env.rank), prepare(env, case)
    values = inputs_of(env, case, product, 0)
    wanted, outputs, rooms = wanted_of(env, case, product, values), [], []
    for name, value in values.items():
        product.tensors[name].copy_(value.view(product.tensors[name].shape))
    env.settle()
    with env.acting():
        for _ in range(CALLS):
            workspace = invoke(case, product, config(env, case), None, env.iris.ops)
            rooms.append(held(env, env.iris))
            outputs.append(product.tensors["c"].clone())
        workspace.clear()
    env.settle()
    findings.equal("bytes of the heap in use, and shared mappings, after each call", rooms, rooms[:1] * CALLS)
    return judge(env, case, product, [values] * CALLS, [wanted] * CALLS, outputs, findings)


def cases(ranks, op):
    from conformance.ops.strategies import edges

    return [replace(edges(op)[0], calls=1, async_op=False, skewed=-1, skew_ms=0)]


@requirement("FUSED-ROOM-001", cases=cases, op=tuple(PRODUCTS), weak=False)
def test_room(check, case):
    check(run, case)
