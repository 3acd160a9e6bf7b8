"""The code of collectives and messages: every kernel that a case launches keeps the part of its contract that holds for
all builds.

ISA-CONTRACT-001 judges the whole contract of one build of each kernel. But a fence, a wait or a scope that another
build lacks may show in no value: few schedules of weak memory have a chance to show it, and in a group of one nothing
can. So the code of each build is read, once in a process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from conformance.collectives.cases import CollectiveCase
from conformance.collectives.operations import described
from conformance.isa.contract import Contract, codes_of, contracts, flaws, promises
from fixtures.findings import Findings
from fixtures.worker import Env

_right: set[tuple[str, str]] = set()
"""Contract, and listing of a kernel that this process has found right."""


def check_code(env: Env, case: CollectiveCase, place: int, members: int, contract: Contract | None = None) -> Any:
    """Return the first fault in the code that this case has launched so far, or None.

    All members of a collective launch the same kernels, so each member reads a share of them; ``place``: this one's. In
    an op with a root each member reads its own, as the root may have another kernel. ``contract``: that of the case,
    which by default is that of its op and variant. Where the case leaves the variant to the library, code is right that
    keeps the contract of one of them.
    Nothing is read on GPUs, where it takes long, nor of a library that makes no promise about its code:
    ISA-CONTRACT-001 alone judges that, as far as others must keep a contract.
    """
    allowed = [contract] if contract is not None else _contracts_of(case)
    if env.device.name != "emulated" or not allowed or not members or not promises(env.implementation):
        return None
    names, shared = ", ".join(one.name for one in allowed), not described(case.op).root
    findings = Findings(env.rank)
    for launch in tuple(env.launches()):
        key = names, launch.listing
        if key in _right or (shared and crc32(launch.listing.encode()) % members != place):
            continue
        faults = _faults(launch, allowed)
        for line in faults:
            findings.note(f"code of {case.op}", line, f"the contract of {names}")
        if not faults:
            _right.add(key)
    return findings.first


def _contracts_of(case: CollectiveCase) -> list[Contract]:
    """Return the contracts of the algorithms that the case allows."""
    known = contracts()
    if own := known.get(f"{case.op} {case.protocol or case.variant}".strip()):
        return [own]
    if case.protocol or case.variant:
        return []
    left = [known[name] for one in described(case.op).variants if (name := f"{case.op} {one.name}") in known]
    # One that allows a relaxed flag would excuse the others; no library that promises its code chooses it by itself.
    return [one for one in left if not one.own.relaxed]


def _faults(launch: Any, allowed: Sequence[Contract]) -> list[str]:
    """Return the faults of a launched kernel by the contract that it is nearest to."""
    fewest: list[str] | None = None
    for contract in allowed:
        faults = [line for code in codes_of(launch) for line in flaws(contract, code, is_own=True)]
        if not faults:
            return []
        fewest = faults if fewest is None or len(faults) < len(fewest) else fewest
    return fewest or []
