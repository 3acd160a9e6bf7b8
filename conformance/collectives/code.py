"""The code of collectives and messages: every kernel that a case launches keeps the part of its contract that holds for
all builds.

ISA-CONTRACT-001 judges the whole contract of one build of each kernel. But a fence, a wait or a scope that another
build lacks may show in no value: few schedules of weak memory have a chance to show it, and in a group of one nothing
can. So the code of each build is read, once in a process.
"""

from __future__ import annotations

from typing import Any
from zlib import crc32

from conformance.collectives.cases import CollectiveCase
from conformance.isa.contract import Contract, codes_of, contracts, flaws, promises
from fixtures.findings import Findings
from fixtures.worker import Env

_right: set[tuple[str, str]] = set()
"""Contract, and listing of a kernel that this process has found right."""


def check_code(env: Env, case: CollectiveCase, place: int, members: int, contract: Contract | None = None) -> Any:
    """Return the first fault in the code that this case has launched so far, or None.

    All members of a collective launch the same kernels, so each member reads a share of them; ``place``: this one's.
    ``contract``: that of the case, which by default is that of its op and variant.
    Nothing is read on GPUs, where it takes long, nor of a case that leaves the variant to the library, nor of a library
    that makes no promise about its code: ISA-CONTRACT-001 alone judges that, as far as others must keep a contract.
    """
    contract = contract or contracts().get(f"{case.op} {case.protocol or case.variant}".strip())
    if env.device.name != "emulated" or contract is None or not members or not promises(env.implementation):
        return None
    findings = Findings(env.rank)
    for launch in tuple(env.launches()):
        key = contract.name, launch.listing
        if key in _right or crc32(launch.listing.encode()) % members != place:
            continue
        faults = [line for code in codes_of(launch) for line in flaws(contract, code, is_own=True)]
        for line in faults:
            findings.note(f"code of {case.op}", line, f"the contract of {contract.name}")
        if not faults:
            _right.add(key)
    return findings.first
