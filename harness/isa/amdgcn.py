"""An amdgcn listing as a fingerprint."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator

from harness.errors import HarnessError
from harness.isa.listing import Instruction, instructions, normalised, source_files
from harness.isa.mnemonics import access_form
from harness.isa.record import Fingerprint, StaticAccess, counted

TARGET = re.compile(r'\.amdgcn_target\s+"[^"]*-(gfx\w+)')
_ORDERING = {"s_waitcnt": "waits", "s_barrier": "barriers"}


def read(text: str) -> Fingerprint:
    """Raises HarnessError when ``text`` is no complete amdgcn listing of one target."""
    target = TARGET.search(text)
    if not target:
        raise HarnessError(f"no .amdgcn_target in the listing, which starts with {text[:60]!r}")
    code = list(instructions(text))
    totals = Counter(_ORDERING[i.mnemonic] for i in code if i.mnemonic in _ORDERING)
    return Fingerprint(
        language="amdgcn",
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
        ordering=tuple(_ordering(code)),
    )


def _accesses(text: str, code: list[Instruction]) -> tuple[StaticAccess, ...]:
    files = source_files(text)
    return counted(
        (i.mnemonic, form, i.bits, i.frames, files.where(i.frames))
        for i in code
        if (form := access_form(i.mnemonic)) is not None
    )


def _by_bits(code: list[Instruction], mnemonic: str) -> dict[str, int]:
    return dict(sorted(Counter(" ".join(i.bits) for i in code if i.mnemonic == mnemonic).items()))


def _ordering(code: list[Instruction]) -> Iterator[str]:
    for i in code:
        if i.mnemonic in ("buffer_wbl2", "buffer_inv"):
            yield " ".join((i.mnemonic, *i.bits))
        elif i.mnemonic == "s_waitcnt" and "vmcnt(0)" in i.operands:
            yield "vmcnt(0)"
        elif (form := access_form(i.mnemonic)) is not None and form.kind == "atomic":
            yield "atomic"


def _metadata(text: str, name: str) -> int:
    match = re.search(rf"^\s*(?:- )?\.{name}:\s+(\d+)", text, re.MULTILINE)
    if not match:
        raise HarnessError(f"the listing's metadata lacks .{name}: is it complete?")
    return int(match[1])
