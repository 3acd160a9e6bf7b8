"""A collective that is called again with equal arguments needs no more memory, neither on the heap nor outside it."""

from dataclasses import replace

from conformance.collectives.calls import judge, perform, prepare
from conformance.collectives.operations import COLLECTIVES
from conformance.support.room import held
from fixtures.findings import Findings
from fixtures.requirement import requirement


def run(env, case):
    findings = Findings(env.rank)
    calls = prepare(env, case)
    env.settle()
    outputs = perform(env, case, calls[:1])
    env.settle()
    before = held(env, env.iris)
    outputs += perform(env, case, calls[1:])
    env.settle()
    findings.equal("bytes of the heap in use, and shared mappings, after further calls", held(env, env.iris), before)
    return judge(env, case, calls, outputs, findings)


def cases(ranks, op):
    op = COLLECTIVES[op]
    plain = op.case(dtype="fp32", m=5, n=70, root=ranks - 1, calls=3)
    return [*(replace(plain, variant=variant.name) for variant in op.variants), *op.also_fast(plain, ranks)]


@requirement("CCL-ROOM-001", cases=cases, ranks=2, op=COLLECTIVES, weak=False)
def test_room(check, case):
    check(run, case)
