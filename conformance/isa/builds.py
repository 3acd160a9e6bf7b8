"""Every build of a kernel that a case launches keeps the part of its contract that holds for all builds.

ISA-CONTRACT-001 judges the whole contract of one build of each kernel. But a fence, a wait or a scope that another
build lacks may show in no value: few schedules of weak memory have a chance to show it, and in a group of one nothing
can. So the code of each build is read, once in a process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from zlib import crc32

from conformance.isa.contract import Contract, codes_of, flaws, promises
from fixtures.findings import Findings
from fixtures.worker import Env

_right: set[tuple[str, str]] = set()
"""Contracts, and listing of a kernel that this process has found right by one of them."""


def check_builds(
    env: Env, call: str, allowed: Sequence[Contract], place: int, members: int, shared: bool = True
) -> Any:  # fmt: skip
    """Return the first fault in the code that this case has launched so far, or None.

    Code is right that keeps one of the contracts ``allowed``. ``call``: its name in a finding. With ``shared`` all
    members of the group launch the same kernels, so each reads a share of them; ``place``: this one's. Kernels with a
    ``DeviceContext``, which has the rank as a constant, and those that only a root launches are not shared.
    Nothing is read on GPUs, where it takes long, nor of a library that makes no promise about its code:
    ISA-CONTRACT-001 alone judges that, as far as others must keep a contract.
    """
    if env.device.name != "emulated" or not allowed or not members or not promises(env.implementation):
        return None
    names, findings = ", ".join(one.name for one in allowed), Findings(env.rank)
    for launch in tuple(env.launches()):
        key = names, launch.listing
        if key in _right or (shared and crc32(launch.listing.encode()) % members != place):
            continue
        faults = _faults(launch, allowed)
        for line in faults:
            findings.note(f"code of {call}", line, f"the contract of {names}")
        if not faults:
            _right.add(key)
    return findings.first


def _faults(launch: Any, allowed: Sequence[Contract]) -> list[str]:
    """Return the faults of a launched kernel by the contract that it is nearest to."""
    fewest: list[str] | None = None
    for contract in allowed:
        faults = [line for code in codes_of(launch) for line in flaws(contract, code, is_own=True)]
        if not faults:
            return []
        fewest = faults if fewest is None or len(faults) < len(fewest) else fewest
    return fewest or []
