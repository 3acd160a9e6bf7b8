"""Checks of the compiled code that a case has just run on one rank."""

from typing import Any

from conformance.isa.targets import WIDTH
from fixtures.findings import Findings
from harness import isa


def expect_width(
    findings: Findings, launches: list[Any], kind: str, payload_bytes: int, counted: bool, own_bytes: int = 0
) -> None:
    """Check that every remote access of ``kind`` is 16 bytes wide in all compiled code: amdgcn, or PTX and SASS.

    ``counted``: the device counts the accesses that it executes, as the emulated device does. Then every access to
    another rank's memory must be that wide too, and together they must have moved exactly the payload, without the
    ``own_bytes`` of it that this rank sends to itself, in whatever way. A GPU does not count accesses, so that only the
    code is checked.
    """
    findings.true(f"launches with remote {kind}s were recorded", launches)
    for launch in launches:
        for code in isa.codes_of(launch):
            label = f"width of remote {kind}s in the {code.language} of {launch.kernel}"
            if mismatch := isa.remote_mismatch(code, kind, WIDTH):
                findings.note(label, mismatch, f"{WIDTH} bytes each")
        if counted:
            expect_executed(findings, launch, kind, payload_bytes - own_bytes)


def expect_executed(findings: Findings, launch: Any, kind: str, payload_bytes: int) -> None:
    """Check that the accesses of ``kind`` to other ranks' memory that a launch executed moved ``payload_bytes``, 16
    bytes each."""
    ran = [a for a in isa.executed([launch]).accesses if (a.kind, a.where) == (kind, "remote") and a.lanes]
    if any(access.width != WIDTH for access in ran):
        table = {access.width: access.executions for access in ran}
        findings.note(f"width of remote {kind}s that {launch.kernel} executed", table, f"{WIDTH} bytes each")
    moved = sum(access.bytes for access in ran)
    findings.equal(f"bytes of remote {kind}s that {launch.kernel} executed", moved, payload_bytes)
