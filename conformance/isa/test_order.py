"""``sem`` and ``scope`` of an atomic reach the compiled code.

None means acq_rel at gpu scope. ``targets`` lists the expected code of each order: on AMD GPUs a write-back before a
release, an invalidation after an acquire, and the scope bit of the atomic; in PTX the atomic's own words; in the
machine code of NVIDIA GPUs its scope, the membar before a release and the invalidation after an acquire. A test of
values cannot detect a dropped order, so this test reads the compiled code. On AMD GPUs the fences must also be at
places where they order the atomic, and be waited for. If Triton itself drops the order of a compare-and-swap, or does
not wait, the library's code is only required to equal Triton's.

001: in Gluon. 002: in Triton, with ``DeviceContext``. 003: with the functions. In each, every op has every sem
and every scope, or its default, and every pair of them occurs with some op.
"""

from functools import partial

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.atomics import history
from conformance.atomics.cases import AtomicCase
from conformance.atomics.operations import ATOMICS, orders
from conformance.isa.targets import misplaced, seen_order, wanted_order
from conformance.support.forms import neighbours
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness import isa


def run(env, case):
    wrong = history.run(env, case)
    findings = Findings(env.rank)
    launches = env.launched()
    findings.equal("launches", len(launches), len(case.targets[env.rank]))
    ignored = case.op == "cas" and triton_ignores_cas_order(env)
    sem, scope = ("acq_rel", "gpu") if ignored else (case.sem or "acq_rel", case.scope or "gpu")
    for launch in launches:
        for code in isa.codes_of(launch):
            label = f"atomic_{case.op} with sem={case.sem} scope={case.scope}"
            expect_order(findings, code, label, sem, scope)
            if faults := misplaced(code):
                excused = misplaced(plain_code(env))
                left = [fault for fault in faults if fault not in excused]
                findings.equal(f"misplaced fences ({code.language}) of {label}", left, [])
    return wrong or findings.first


@gluon.jit
def plain_cas(pointer):
    gl.store(pointer + 1, gl.atomic_cas(pointer, 0, 1, sem="relaxed", scope="sys"))


def triton_ignores_cas_order(env):
    """Return True if the installed Triton compiles every atomic_cas as acq_rel at gpu scope, as 3.6 does for AMD GPUs.

    Then no library can do better, and flags set by compare-and-swap are not ordered between GPUs.
    """
    code = plain_code(env)
    return seen_order(code) == wanted_order(code.language, "acq_rel", "gpu")


def plain_code(env):
    """Return the installed Triton's code for a plain atomic_cas, without any library. Triton 3.6 and 3.7 do not wait
    for a write-back."""
    plain_cas[(1,)](torch.zeros(2, dtype=torch.int32, device=env.device.torch_device), num_warps=1)
    (launch,) = env.launched()
    return isa.fingerprint(launch.listing)


def expect_order(findings, code, label, sem, scope):
    """Check that the only atomic of ``code`` has that order."""
    seen = seen_order(code)
    for part, wanted in wanted_order(code.language, sem, scope).items():
        findings.equal(f"{part} ({code.language}) of {label}", seen[part], wanted)


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
