"""Expectations on remote accesses: which widths they have, and what differs from the wanted one."""

from __future__ import annotations

from harness.isa.executed import Executed
from harness.isa.record import Fingerprint, Kind


def remote_widths(subject: Fingerprint | Executed, kind: Kind) -> dict[int, int]:
    """Width in bytes -> count of remote accesses of ``kind``: instructions, or wavefront executions of a launch."""
    return subject.widths("remote", kind)


def remote_mismatch(subject: Fingerprint | Executed, kind: Kind, width: int) -> str | None:
    """None when every remote access of ``kind`` is ``width`` bytes wide and there is at least one; else what is wrong.

    An access that cannot be attributed, or one that reached a peer without a marker, is a mismatch too: nothing may
    escape the check by being unknown.
    """
    found = remote_widths(subject, kind)
    unknown = subject.widths("unattributed", kind)
    if unknown:
        return f"{_table(unknown)} {kind} accesses have no source line, so they cannot be told local from remote"
    if isinstance(subject, Executed) and any(access.kind == kind for access in subject.unmarked_peer()):
        return f"a {kind} reached a peer's memory from a line that is not marked '# remote'"
    if not found:
        return f"there is no remote {kind}"
    narrow = {size: count for size, count in found.items() if size != width}
    if not narrow:
        return None
    places = ""
    if isinstance(subject, Fingerprint):
        lines = {
            access.source
            for access in subject.accesses
            if (access.where, access.kind) == ("remote", kind) and access.space != "scalar" and access.width != width
        }
        places = " at " + "; ".join(sorted(lines))
    return f"remote {kind} accesses are {_table(narrow)} bytes wide, wanted {width} only{places}"


def _table(widths: dict[int, int]) -> str:
    return ", ".join(f"{count} x {size}" for size, count in widths.items())
