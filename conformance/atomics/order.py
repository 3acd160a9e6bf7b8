"""Check of the compiled order of atomics: ``sem`` and ``scope`` of a call reach the code of its kernel.

None means acq_rel at gpu scope. ``conformance.isa.targets`` has the expected code of each order: on AMD GPUs a
write-back that is waited for before a release, a wait and an invalidation after an acquire, and the scope bit of the
atomic; in PTX the atomic's own words; in the machine code of NVIDIA GPUs its scope, the membar before a release and the
invalidation after an acquire. Values cannot show a dropped order: it takes another rank that reads at the wrong moment.

If Triton itself drops the order of a compare-and-swap, or does not wait for a write-back, the library's code is only
required to equal Triton's.
"""

from __future__ import annotations

from typing import Any

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.atomics.cases import AtomicCase
from conformance.isa.targets import UNWAITED, excused_order_faults, lacking_order, seen_order, wanted_order
from fixtures.findings import Findings
from fixtures.worker import Env
from harness import isa
from harness.isa import protocol

_right: set[tuple[str, str, str]] = set()
"""Listing, sem and scope of the kernels that this process has found right."""


@gluon.jit
def plain_cas(pointer):
    gl.store(pointer + 1, gl.atomic_cas(pointer, 0, 1, sem="relaxed", scope="sys"))


@gluon.jit
def plain_add(pointer):
    gl.store(pointer + 1, gl.atomic_add(pointer, 1, sem="release", scope="sys"))


def check_order(env: Env, case: AtomicCase) -> dict[str, Any] | None:
    """Return the first fault in the order of the atomics that this case has launched, or None.

    Of code for NVIDIA GPUs, PTX is read; ATOMIC-ORDER also reads the machine code.
    """
    findings = Findings(env.rank)
    sem, scope = case.sem or "acq_rel", case.scope or "gpu"
    for launch in tuple(env.launches()):
        key = (launch.listing, sem, scope)
        if key not in _right:
            code = isa.of_launch(launch)
            if faults(env, case, code, launch.listing):
                note_faults(findings, env, case, code, launch.listing)
            else:
                _right.add(key)
    return findings.first


def note_faults(findings: Findings, env: Env, case: AtomicCase, code: isa.Fingerprint, listing: str) -> None:
    """Record what is wrong with the order of the atomics of ``code``."""
    for part, seen, wanted in faults(env, case, code, listing):
        findings.note(f"{part} of atomic_{case.op} with sem={case.sem} scope={case.scope}", seen, wanted)


def faults(env: Env, case: AtomicCase, code: isa.Fingerprint, listing: str) -> list[tuple[str, Any, Any]]:
    """Return the faults that the installed Triton has not made by itself, see ``order_faults``; and the instructions of
    an AMD GPU that use a register before its load is waited for."""
    waits = protocol.unwaited(protocol.read(listing, located=False)) if code.language == "amdgcn" else []
    order = excused_order_faults(
        code, listing, case.op, case.sem, case.scope,
        ignores_cas=lambda: triton_ignores_cas_order(env), does_not_wait=lambda: triton_does_not_wait(env),
    )  # fmt: skip
    return [*order, *(("a wait", str(lack), "a wait between the two") for lack in waits)]


def triton_ignores_cas_order(env: Env) -> bool:
    """Return True if the installed Triton compiles every atomic_cas as acq_rel at gpu scope, as 3.6 does for AMD GPUs.

    Then no library can do better, and flags set by compare-and-swap are not ordered between GPUs.
    """
    code, _ = _plain(env, plain_cas)
    return seen_order(code) == wanted_order(code.language, "acq_rel", "gpu")


def triton_does_not_wait(env: Env) -> bool:
    """Return True if the installed Triton does not wait for the write-back of a release, as 3.6 and 3.7 for AMD
    GPUs."""
    return UNWAITED in {lack.lack for lack in lacking_order(*_plain(env, plain_add), "release", "sys")}


def _plain(env: Env, kernel: Any) -> tuple[isa.Fingerprint, str]:
    """Return the installed Triton's code for a plain atomic, without any library, and its listing. Its launch is not
    one of the case's."""
    env.launches()
    kernel[(1,)](torch.zeros(2, dtype=torch.int32, device=env.device.torch_device), num_warps=1)
    env.device.synchronize()
    (launch,) = env.device.drain_launches()
    return isa.fingerprint(launch.listing), launch.listing
