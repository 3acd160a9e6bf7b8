"""``sem`` and ``scope`` of an atomic reach the compiled code.

What gfx942 code must have, per LLVM's memory model: a release writes back the L2 before the atomic
(``buffer_wbl2``), an acquire invalidates caches after it (``buffer_inv``), with ``sc1`` at agent scope ("gpu") and
``sc0 sc1`` at system scope, and neither within a work-group ("cta"); the atomic itself carries ``sc1`` exactly at
system scope. None means acq_rel at gpu scope. A dropped order is invisible to any test that only looks at values on
this machine, so the code is read.
"""

import importlib

from conformance.atomics.history import run_atomics
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness import isa
from harness.cases import AtomicCase

OPS = ("add", "sub", "xchg", "xor", "and", "or", "min", "max", "cas")
SEMS, SCOPES = ("relaxed", "release", "acquire", "acq_rel"), ("sys", "gpu", "cta")
FENCE = {"sys": "sc0 sc1", "gpu": "sc1", "cta": None}


def run(env, case):
    apply = importlib.import_module(f"conformance.atomics.test_{case.op}").apply
    wrong = run_atomics(env, case, apply)
    found = Findings(env.rank)
    for launch in env.launched():
        _expect_order(found, case, isa.fingerprint(launch.listing))
    return wrong or found.first


def _expect_order(found, case, code):
    sem, scope = case.sem or "acq_rel", case.scope or "gpu"
    fence = FENCE[scope]
    releases = {fence} if fence and sem in ("release", "acq_rel") else set()
    acquires = {fence} if fence and sem in ("acquire", "acq_rel") else set()
    order = f"atomic_{case.op} with sem={case.sem} scope={case.scope}"
    found.equal(f"buffer_wbl2 of {order}", sorted(code.writebacks), sorted(releases))
    found.equal(f"buffer_inv of {order}", sorted(code.invalidates), sorted(acquires))
    # The kernel has one atomic, so all of them are it. Their source lines would not do: where all lanes use one
    # address, LLVM rebuilds the atomic and leaves it the line of the instruction before.
    atomics = [access for access in code.accesses if access.kind == "atomic"]
    found.true(f"atomic instructions of {order}", bool(atomics))
    for access in atomics:
        found.equal(f"sc1 on {access.mnemonic} of {order}", "sc1" in access.bits, scope == "sys")


def cases(ranks, op):
    """All pairs, and the default; one scalar operation on the neighbour, as flags are set."""
    pairs = [(None, None), ("release", None), (None, "sys"), *((sem, scope) for scope in SCOPES for sem in SEMS)]
    targets = tuple(((rank + 1) % ranks,) for rank in range(ranks))
    return [AtomicCase(op=op, spt=0, targets=targets, sem=sem, scope=scope) for sem, scope in pairs]


@requirement("ATOMIC-ORDER-001", cases=cases, op=OPS)
def test_order(check, case):
    check(run, case)
