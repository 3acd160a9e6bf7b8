"""Reader of amdgcn listings: a listing as a fingerprint."""

from __future__ import annotations

import functools
import hashlib
import re
from collections import Counter

from harness.errors import HarnessError
from harness.isa.flow import amdgcn as flow
from harness.isa.flow.origin import UNKNOWN, Roots, origins
from harness.isa.listing import Instruction, instructions, normalised
from harness.isa.mnemonics import access_form
from harness.isa.record import Fingerprint, StaticAccess, counted
from harness.isa.sources import Where

TARGET = re.compile(r'\.amdgcn_target\s+"[^"]*-(gfx\w+)')
_ORDERING = {"s_waitcnt": "waits", "s_barrier": "barriers"}


def read(text: str, roots: Roots = UNKNOWN) -> Fingerprint:
    """Return the fingerprint of a listing. HarnessError if ``text`` is not a complete amdgcn listing of one target."""
    target = TARGET.search(text)
    if not target:
        raise HarnessError(f"no .amdgcn_target in the listing, which starts with {text[:60]!r}")
    code = list(instructions(text))
    totals = Counter(_ORDERING[i.mnemonic] for i in code if i.mnemonic in _ORDERING)
    return Fingerprint(
        language="amdgcn",
        arch=target[1],
        sha256=hashlib.sha256(normalised(text).encode()).hexdigest(),
        accesses=_accesses(code, places(text, roots)),
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


@functools.lru_cache(maxsize=1024)
def places(text: str, roots: Roots = UNKNOWN) -> dict[int, Where]:
    """Return where each access goes, by the number of its line in the listing; without those that cannot be reached."""
    code = list(instructions(text))
    forms = ((number, access_form(i.mnemonic)) for number, i in enumerate(code))
    writes = {number for number, form in forms if form is not None and form.kind != "load"}
    return {code[number].line: where for number, where in origins(flow.addresses(text), writes, roots).items()}


def _accesses(code: list[Instruction], where: dict[int, Where]) -> tuple[StaticAccess, ...]:
    return counted(
        (i.mnemonic, form, i.bits, i.frames, where.get(i.line, "unattributed"))
        for i in code
        if (form := access_form(i.mnemonic)) is not None
    )


def _by_bits(code: list[Instruction], mnemonic: str) -> dict[str, int]:
    return dict(sorted(Counter(" ".join(i.bits) for i in code if i.mnemonic == mnemonic).items()))


def _metadata(text: str, name: str) -> int:
    match = re.search(rf"^\s*(?:- )?\.{name}:\s+(\d+)", text, re.MULTILINE)
    if not match:
        raise HarnessError(f"the listing's metadata lacks .{name}: pass the whole text of asm['amdgcn']")
    return int(match[1])
