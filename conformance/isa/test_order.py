"""``sem`` and ``scope`` of an atomic reach the compiled code: every order of a scalar atomic, in each form.

``conformance.atomics.order`` describes the check, which every other case of an atomic makes as well. Here each op has
every sem and every scope, or its default, and every pair of them occurs with some op; and of NVIDIA GPUs the machine
code is read, too.

001: in Gluon. 002: in Triton, with ``DeviceContext``. 003: with the functions.
"""

from functools import partial

from conformance.atomics import history
from conformance.atomics.cases import AtomicCase
from conformance.atomics.operations import ATOMICS, orders
from conformance.atomics.order import note_faults
from conformance.support.forms import neighbours
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
    """Return the op's part of the covering array: one scalar operation on the neighbour, as for setting a flag."""
    return [
        AtomicCase(**row, spt=0, targets=neighbours(ranks, form, number), form=form)
        for number, row in enumerate(orders(op))
    ]


@requirement("ATOMIC-ORDER-001", cases=partial(cases, form="gluon"), op=tuple(ATOMICS), weak=False)
def test_order(check, case):
    check(run, case)


@requirement("ATOMIC-ORDER-002", cases=partial(cases, form="context"), op=tuple(ATOMICS), weak=False)
def test_order_by_context(check, case):
    check(run, case)


@requirement("ATOMIC-ORDER-003", cases=partial(cases, form="function"), op=tuple(ATOMICS), weak=False)
def test_order_by_function(check, case):
    check(run, case)
