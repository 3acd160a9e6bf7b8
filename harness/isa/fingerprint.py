"""The fingerprint of a compiled kernel: what its listing says, in numbers that can be compared."""

from __future__ import annotations

import functools
import hashlib
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from harness.errors import HarnessError
from harness.isa.listing import Instruction, instructions, normalised, source_files
from harness.isa.mnemonics import Kind, Space, access_form
from harness.isa.sources import Where

_TARGET = re.compile(r'\.amdgcn_target\s+"[^"]*-(gfx\w+)')
_ORDERING = {"s_waitcnt": "waits", "s_barrier": "barriers"}


@dataclass(frozen=True)
class StaticAccess:
    """All instructions of one form at one place: ``count`` of them stand in the code."""

    mnemonic: str
    space: Space
    kind: Kind
    width: int
    where: Where
    bits: tuple[str, ...]
    source: str
    count: int


@dataclass(frozen=True)
class Fingerprint:
    """What one kernel's listing holds. Counts are static; memory sizes are bytes, registers are 32 bits wide.

    ``sha256`` is of the normalised instructions, so equal code has equal hashes. ``writebacks`` and ``invalidates``
    are keyed by the cache bits (``"sc0 sc1"`` is system scope, ``"sc1"`` agent scope). ``lds`` is what the listing
    declares; Triton's dynamic part is not in it.
    """

    arch: str
    sha256: str
    accesses: tuple[StaticAccess, ...]
    instructions: int
    vgprs: int
    agprs: int
    sgprs: int
    vgpr_spills: int
    sgpr_spills: int
    lds: int
    scratch: int
    waits: int
    barriers: int
    writebacks: dict[str, int]
    invalidates: dict[str, int]

    def widths(self, where: Where, kind: Kind) -> dict[int, int]:
        """Width in bytes -> number of vector instructions (scalar loads have a table of their own)."""
        table: Counter[int] = Counter()
        for access in self.accesses:
            if access.space != "scalar" and (access.where, access.kind) == (where, kind):
                table[access.width] += access.count
        return dict(sorted(table.items()))

    def scalar_loads(self, where: Where) -> dict[int, int]:
        """Width in bytes, once per wavefront -> number of ``s_load`` instructions."""
        table: Counter[int] = Counter()
        for access in self.accesses:
            if access.space == "scalar" and access.where == where:
                table[access.width] += access.count
        return dict(sorted(table.items()))

    def to_json(self) -> dict[str, Any]:
        """Plain data for an evidence record: the numbers, and ``widths`` as where -> kind -> width -> count."""
        plain: dict[str, Any] = {name: getattr(self, name) for name in _NUMBERS}
        plain["widths"] = {
            where: {
                kind: {str(width): count for width, count in self.widths(where, kind).items()}
                for kind in ("load", "store", "atomic")
            }
            for where in ("local", "remote", "unattributed")
        }
        plain["remote_accesses"] = [
            {"mnemonic": a.mnemonic, "bits": list(a.bits), "width": a.width, "source": a.source, "count": a.count}
            for a in self.accesses
            if a.where == "remote" and a.space != "scalar"
        ]
        return plain


_NUMBERS = (
    "arch", "sha256", "instructions", "vgprs", "agprs", "sgprs", "vgpr_spills", "sgpr_spills", "lds", "scratch",
    "waits", "barriers", "writebacks", "invalidates",
)  # fmt: skip


@functools.lru_cache(maxsize=1024)
def fingerprint(text: str) -> Fingerprint:
    """Read one listing. Raises HarnessError when ``text`` is not an amdgcn listing of one target."""
    target = _TARGET.search(text)
    if not target:
        raise HarnessError(f"no .amdgcn_target in the listing, which starts with {text[:60]!r}")
    code = list(instructions(text))
    totals = Counter(_ORDERING[i.mnemonic] for i in code if i.mnemonic in _ORDERING)
    return Fingerprint(
        arch=target[1],
        sha256=hashlib.sha256(normalised(text).encode()).hexdigest(),
        accesses=_accesses(text, code),
        instructions=len(code),
        vgprs=_metadata(text, "vgpr_count"),
        agprs=_metadata(text, "agpr_count"),
        sgprs=_metadata(text, "sgpr_count"),
        vgpr_spills=_metadata(text, "vgpr_spill_count"),
        sgpr_spills=_metadata(text, "sgpr_spill_count"),
        lds=_metadata(text, "group_segment_fixed_size"),
        scratch=_metadata(text, "private_segment_fixed_size"),
        waits=totals["waits"],
        barriers=totals["barriers"],
        writebacks=_by_bits(code, "buffer_wbl2"),
        invalidates=_by_bits(code, "buffer_inv"),
    )


def _accesses(text: str, code: list[Instruction]) -> tuple[StaticAccess, ...]:
    files = source_files(text)
    table: dict[StaticAccess, int] = {}
    for instruction in code:
        form = access_form(instruction.mnemonic)
        if form is None:
            continue
        source = " @ ".join(str(frame) for frame in instruction.frames)
        where = files.where(instruction.frames)
        access = StaticAccess(
            instruction.mnemonic, form.space, form.kind, form.width, where, instruction.bits, source, count=0
        )
        table[access] = table.get(access, 0) + 1
    return tuple(replace(access, count=count) for access, count in table.items())


def _by_bits(code: list[Instruction], mnemonic: str) -> dict[str, int]:
    return dict(sorted(Counter(" ".join(i.bits) for i in code if i.mnemonic == mnemonic).items()))


def _metadata(text: str, name: str) -> int:
    match = re.search(rf"^\s*(?:- )?\.{name}:\s+(\d+)", text, re.MULTILINE)
    if not match:
        raise HarnessError(f"the listing's metadata lacks .{name}: is it complete?")
    return int(match[1])
