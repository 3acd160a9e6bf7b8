"""``sem`` and ``scope`` of an atomic reach the compiled code.

What gfx942 code must have, per LLVM's memory model: a release writes back the L2 before the atomic
(``buffer_wbl2``), an acquire invalidates caches after it (``buffer_inv``), with ``sc1`` at agent scope ("gpu") and
``sc0 sc1`` at system scope, and neither within a work-group ("cta"); the atomic itself carries ``sc1`` exactly at
system scope. None means acq_rel at gpu scope. Triton 3.6 compiles every atomic_cas as acq_rel at gpu scope; there
only that can be asked for. A dropped order is invisible to any test that only looks at values on this machine, so
the code is read.
"""

import importlib

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

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
    launches = env.launched()
    deaf = case.op == "cas" and compare_and_swap_is_deaf(env)
    for launch in launches:
        _expect_order(found, case, isa.fingerprint(launch.listing), deaf)
    return wrong or found.first


@gluon.jit
def plain_cas(pointer):
    gl.store(pointer + 1, gl.atomic_cas(pointer, 0, 1, sem="relaxed", scope="sys"))


def compare_and_swap_is_deaf(env):
    """Whether this Triton compiles every atomic_cas as acq_rel at gpu scope, whatever is asked for, as 3.6 does.

    Then no library can do better, and flags set by compare-and-swap are not ordered between GPUs.
    """
    plain_cas[(1,)](torch.zeros(2, dtype=torch.int32, device=env.device.torch_device), num_warps=1)
    (launch,) = env.launched()
    return bool(isa.fingerprint(launch.listing).writebacks)


def _expect_order(found, case, code, deaf):
    sem, scope = ("acq_rel", "gpu") if deaf else (case.sem or "acq_rel", case.scope or "gpu")
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
