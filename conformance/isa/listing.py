"""Looking at the code that a case just ran: the launches of one rank, and what their code says."""

from typing import Any

from conformance.isa.targets import WIDTH
from fixtures.findings import Findings
from harness import isa


def bits_of(code: isa.Fingerprint, kind: str, where: str, width: int | None = None) -> set[tuple[str, ...]]:
    """The sets of cache words that vector accesses of ``kind`` carry; ``width`` picks those of that many bytes."""
    return {
        access.bits
        for access in code.accesses
        if access.space != "scalar" and (access.kind, access.where) == (kind, where) and width in (None, access.width)
    }


def expect_width(found: Findings, launches: list[Any], kind: str, payload_bytes: int, counted: bool) -> None:
    """Every remote access of ``kind`` is 16 bytes wide in all code that there is: amdgcn, or PTX and SASS.

    ``counted``: the device counts what it executes, as the emulated one does. There every access that was executed must
    be that wide too, and together they must have moved just the payload. A GPU counts nothing: there the code is all.
    """
    found.true(f"a launch to look at for remote {kind}s", launches)
    for launch in launches:
        for code in isa.codes_of(launch):
            _expect_code(found, launch.kernel, code, kind)
        if counted:
            _expect_executed(found, launch, kind, payload_bytes)


def _expect_code(found: Findings, kernel: str, code: isa.Fingerprint, kind: str) -> None:
    what = f"width of remote {kind}s in the {code.language} of {kernel}"
    if code.language == "amdgcn" and not isa.remote_widths(code, kind):
        # LLVM lost the source lines of merged accesses: all accesses must be that wide, which is stricter.
        widths = _all_widths(code, kind)
        if set(widths) != {WIDTH}:
            found.note(what, f"widths {widths}", f"{WIDTH} bytes each")
    elif code.language == "amdgcn":
        if set(isa.remote_widths(code, kind)) != {WIDTH}:
            found.note(what, isa.remote_mismatch(code, kind, WIDTH), f"{WIDTH} bytes each")
        elif not set(code.widths("unattributed", kind)) <= {WIDTH}:
            found.note(f"{what}, and of those without a source line", code.widths("unattributed", kind), WIDTH)
    elif mismatch := isa.remote_mismatch(code, kind, WIDTH):
        found.note(what, mismatch, f"{WIDTH} bytes each")


def _expect_executed(found: Findings, launch: Any, kind: str, payload_bytes: int) -> None:
    done = isa.executed([launch])
    attributed = bool(isa.remote_widths(isa.fingerprint(launch.listing), kind))
    ran = [a for a in done.accesses if a.kind == kind and a.lanes and (a.where == "remote" or not attributed)]
    if any(access.width != WIDTH for access in ran):
        table = {access.width: access.executions for access in ran}
        found.note(f"width of remote {kind}s that {launch.kernel} executed", table, f"{WIDTH} bytes each")
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
