"""Checks of the widths of remote accesses against an expected width."""

from __future__ import annotations

from dataclasses import replace

from harness.isa.executed import Executed
from harness.isa.record import Fingerprint, Kind


def remote_widths(subject: Fingerprint | Executed, kind: Kind) -> dict[int, int]:
    """Return width in bytes -> number of remote accesses of ``kind``: instructions, or wavefront executions of a
    launch."""
    return subject.widths("remote", kind)


def remote_mismatch(subject: Fingerprint | Executed, kind: Kind, width: int) -> str | None:
    """Return None if there are remote accesses of ``kind`` and all are ``width`` bytes wide; else the mismatch in
    words.

    An access of compiled code whose address cannot be followed is a mismatch too. Loads and stores of flags, see
    ``StaticAccess.is_flag``, are not judged: they are not part of the payload.
    """
    if isinstance(subject, Fingerprint) and kind != "atomic":
        payload = tuple(access for access in subject.accesses if not access.is_flag)
        subject = replace(subject, accesses=payload)
    widths = remote_widths(subject, kind)
    unknown = subject.widths("unattributed", kind)
    if unknown:
        return f"{_table(unknown)} {kind} accesses may be local or remote: their addresses cannot be followed"
    if not widths:
        return f"there is no remote {kind}"
    narrow = {size: count for size, count in widths.items() if size != width}
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
