"""``sem`` and ``scope`` of an atomic reach the compiled code: every kernel that the cases of an op run.

``conformance.atomics.order`` describes the check, which every other case of an atomic makes as well. Here each kernel
runs for certain, each rank launches it once for each target, and of NVIDIA GPUs the machine code is read, too. Each op
has in each form every scope, or its default; every pair of a sem and an op, and of a sem and a scope, occurs.

001: in Gluon. 002: in Triton, with ``DeviceContext``. 003: with the functions.
"""

from functools import partial

from conformance.atomics import history
from conformance.atomics.operations import ATOMICS
from conformance.atomics.order import note_faults
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness import isa


def run(env, case):
    wrong = history.run(env, case)
    findings = Findings(env.rank)
    launches = env.launched()
    findings.equal("launches", len(launches), len(case.targets[env.rank]))
    for launch in launches:
        for code in isa.codes_of(launch):
            note_faults(findings, env, case, code, launch.listing)
    return wrong or findings.first


def cases(ranks, op, form):
    """Return a case for each kernel that the cases of the op run in this form."""
    from conformance.atomics.strategies import fixed

    return fixed(ranks, op, form)


@requirement("ATOMIC-ORDER-001", cases=partial(cases, form="gluon"), op=tuple(ATOMICS), weak=False)
def test_order(check, case):
    check(run, case)


@requirement("ATOMIC-ORDER-002", cases=partial(cases, form="context"), op=tuple(ATOMICS), weak=False)
def test_order_by_context(check, case):
    check(run, case)


@requirement("ATOMIC-ORDER-003", cases=partial(cases, form="function"), op=tuple(ATOMICS), weak=False)
def test_order_by_function(check, case):
    check(run, case)
