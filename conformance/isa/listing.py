"""Looking at the code that a case just ran: the launches of one rank, and what their listings say."""

from typing import Any

from fixtures.findings import Findings
from harness import isa


def bits_of(launch: Any, kind: str, where: str, width: int | None = None) -> set[tuple[str, ...]]:
    """The sets of cache bits that vector accesses of ``kind`` carry; ``width`` picks those of that many bytes."""
    accesses = isa.fingerprint(launch.listing).accesses
    return {
        access.bits
        for access in accesses
        if access.space != "scalar" and (access.kind, access.where) == (kind, where) and width in (None, access.width)
    }


def expect_width(found: Findings, launches: list[Any], kind: str, payload_bytes: int, width: int = 16) -> None:
    """Every remote access of ``kind`` is ``width`` bytes wide, in the code and as executed, and moved just the
    payload."""
    for launch in launches:
        wrong = isa.remote_mismatch(isa.fingerprint(launch.listing), kind, width)
        if wrong:
            found.note(f"width of remote {kind}s in the code of {launch.kernel}", wrong, f"{width} bytes each")
        done = isa.executed([launch])
        wrong = isa.remote_mismatch(done, kind, width)
        if wrong:
            found.note(f"width of remote {kind}s that {launch.kernel} executed", wrong, f"{width} bytes each")
        moved = sum(access.bytes for access in done.accesses if (access.kind, access.where) == (kind, "remote"))
        found.equal(f"bytes of remote {kind}s that {launch.kernel} executed", moved, payload_bytes)
