"""``sem`` and ``scope`` of an atomic reach the compiled code.

None means acq_rel at gpu scope. What code of an order must have is in ``targets``: on AMD GPUs a write-back before a
release, an invalidation after an acquire, and the scope bit of the atomic; in PTX the atomic's own words, and in the
machine code of NVIDIA GPUs its scope, the membar before a release and the invalidation after an acquire. A dropped
order is invisible to any test that only looks at values, so the code is read. On AMD GPUs the fences must also stand
where they order the atomic, and be waited for. Where Triton itself drops the order of a compare-and-swap, or does not
wait, only what it then compiles can be asked for.

001  in Gluon. 002  in Triton, with ``DeviceContext``: some pairs, and the default. 003  with the functions: the same.
"""

import importlib

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.isa.targets import misplaced, seen_order, wanted_order
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness import isa
from harness.cases import AtomicCase

OPS = ("add", "sub", "xchg", "xor", "and", "or", "min", "max", "cas")
SEMS, SCOPES = ("relaxed", "release", "acquire", "acq_rel"), ("sys", "gpu", "cta")


def run(env, case):
    wrong = importlib.import_module(f"conformance.atomics.test_{case.op}").run(env, case)
    found = Findings(env.rank)
    launches = env.launched()
    deaf = case.op == "cas" and compare_and_swap_is_deaf(env)
    sem, scope = ("acq_rel", "gpu") if deaf else (case.sem or "acq_rel", case.scope or "gpu")
    for launch in launches:
        for code in isa.codes_of(launch):
            what = f"atomic_{case.op} with sem={case.sem} scope={case.scope}"
            expect_order(found, code, what, sem, scope)
            if faults := misplaced(code):
                excused = misplaced(plain_code(env))
                left = [fault for fault in faults if fault not in excused]
                found.equal(f"fences out of place ({code.language}) of {what}", left, [])
    return wrong or found.first


@gluon.jit
def plain_cas(pointer):
    gl.store(pointer + 1, gl.atomic_cas(pointer, 0, 1, sem="relaxed", scope="sys"))


def compare_and_swap_is_deaf(env):
    """Whether this Triton compiles every atomic_cas as acq_rel at gpu scope, whatever is asked for, as 3.6 does for AMD
    GPUs.

    Then no library can do better, and flags set by compare-and-swap are not ordered between GPUs.
    """
    code = plain_code(env)
    return seen_order(code) == wanted_order(code.language, "acq_rel", "gpu")


def plain_code(env):
    """What this Triton compiles for an atomic that is no library's. Triton 3.6 and 3.7 do not wait for a write-back."""
    plain_cas[(1,)](torch.zeros(2, dtype=torch.int32, device=env.device.torch_device), num_warps=1)
    (launch,) = env.launched()
    return isa.fingerprint(launch.listing)


def expect_order(found, code, what, sem, scope):
    """The one atomic of ``code`` is of that order."""
    seen = seen_order(code)
    for part, wanted in wanted_order(code.language, sem, scope).items():
        found.equal(f"{part} ({code.language}) of {what}", seen[part], wanted)


def cases(ranks, op):
    """All pairs, and the default; one scalar operation on the neighbour, as flags are set."""
    pairs = [(None, None), ("release", None), (None, "sys"), *((sem, scope) for scope in SCOPES for sem in SEMS)]
    return flags(ranks, op, pairs)


def flags(ranks, op, pairs, form="gluon"):
    targets = tuple(((rank + 1) % ranks,) for rank in range(ranks))
    return [AtomicCase(op=op, spt=0, targets=targets, sem=sem, scope=scope, form=form) for sem, scope in pairs]


@requirement("ATOMIC-ORDER-001", cases=cases, op=OPS)
def test_order(check, case):
    check(run, case)


SOME_PAIRS = ((None, None), ("relaxed", "sys"), ("release", "sys"), ("acquire", "gpu"), ("acq_rel", "cta"))


@requirement("ATOMIC-ORDER-002", cases=lambda ranks, op: flags(ranks, op, SOME_PAIRS, "context"), op=OPS)
def test_order_by_context(check, case):
    check(run, case)


@requirement("ATOMIC-ORDER-003", cases=lambda ranks, op: flags(ranks, op, SOME_PAIRS, "function"), op=OPS)
def test_order_by_function(check, case):
    check(run, case)
