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
    """Every remote access of ``kind`` is ``width`` bytes wide, in the code and as executed, and moved just the payload.

    Where the compiler lost the source line of a merged access, so that no access of ``kind`` is attributed to a remote
    line, all accesses of ``kind`` must be that wide, which is stricter.
    """
    for launch in launches:
        code, done = isa.fingerprint(launch.listing), isa.executed([launch])
        attributed = bool(isa.remote_widths(code, kind))
        static = code.widths("remote", kind) if attributed else _all_widths(code, kind)
        if set(static) != {width}:
            told = isa.remote_mismatch(code, kind, width) if attributed else f"widths {static}"
            found.note(f"width of remote {kind}s in the code of {launch.kernel}", told, f"{width} bytes each")
        ran = [a for a in done.accesses if a.kind == kind and a.lanes and (a.where == "remote" or not attributed)]
        if any(access.width != width for access in ran):
            table = {access.width: access.executions for access in ran}
            found.note(f"width of remote {kind}s that {launch.kernel} executed", table, f"{width} bytes each")
        if attributed and any(access.kind == kind for access in done.unmarked_peer()):
            found.note(f"{kind}s of {launch.kernel} that reached a peer from an unmarked line", True, False)
        moved = sum(access.bytes for access in ran)
        found.equal(f"bytes of remote {kind}s that {launch.kernel} executed", moved, payload_bytes)


def _all_widths(code: isa.Fingerprint, kind: str) -> dict[int, int]:
    """Width -> count of all vector accesses of ``kind``, wherever they are."""
    table: dict[int, int] = {}
    for access in code.accesses:
        if access.space != "scalar" and access.kind == kind:
            table[access.width] = table.get(access.width, 0) + access.count
    return table
