"""The fingerprint of a compiled kernel: what its code says, in numbers that can be compared; one form for all targets.

``amdgcn`` is what runs on AMD GPUs. On NVIDIA GPUs ``sass`` runs, and ``ptx`` is what Triton asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from harness.isa.sources import Frame, Where

Language = Literal["amdgcn", "ptx", "sass"]
Kind = Literal["load", "store", "atomic"]
Space = Literal["global", "buffer", "flat", "scalar"]


@dataclass(frozen=True)
class AccessForm:
    """What one mnemonic does to memory: address space, kind, and bytes that one lane moves.

    A packed atomic of two halves is 4 bytes wide. A scalar load moves its width once for the whole wavefront. ``flat``
    is what PTX calls generic.
    """

    space: Space
    kind: Kind
    width: int


@dataclass(frozen=True)
class StaticAccess:
    """All instructions of one form at one place: ``count`` of them stand in the code.

    ``bits`` are the words that say how caches and other lanes see it, in the language's own order: ``("sc0", "sc1")``,
    ``("sys", "release")``, ``("L1::no_allocate",)``, ``("STRONG", "SYS")``.
    """

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
    """What one kernel's code holds. Counts are static; memory sizes are bytes, registers are 32 bits wide.

    ``sha256`` is of the normalised instructions, so equal code has equal hashes. A field is None where the language has
    no such thing, or does not tell: PTX knows neither registers nor spills, unless what ptxas made of it is told too.

    ``vgprs``, ``agprs``, ``sgprs`` and their spills, ``waits`` (``s_waitcnt``), ``writebacks`` and ``invalidates`` are
    amdgcn's; the last two are keyed by the cache bits (``"sc0 sc1"`` is system scope, ``"sc1"`` agent scope).
    ``ordering`` is amdgcn's too: what orders memory, as it follows one another in the listing, and only there:
    ``("buffer_wbl2 sc0 sc1", "vmcnt(0)", "atomic", "vmcnt(0)", "buffer_inv sc0 sc1")`` is an acq_rel at system scope.
    ``registers`` (per lane) and ``fences``, keyed by opcode, are NVIDIA's. ``lds`` is the shared memory that the code
    declares (Triton's dynamic part is not in it), ``scratch`` the private memory of a lane, which holds spills.
    """

    language: Language
    arch: str
    sha256: str
    accesses: tuple[StaticAccess, ...]
    instructions: int
    barriers: int
    vgprs: int | None = None
    agprs: int | None = None
    sgprs: int | None = None
    vgpr_spills: int | None = None
    sgpr_spills: int | None = None
    registers: int | None = None
    lds: int | None = None
    scratch: int | None = None
    waits: int | None = None
    writebacks: dict[str, int] | None = None
    invalidates: dict[str, int] | None = None
    ordering: tuple[str, ...] | None = None
    fences: dict[str, int] | None = None

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


def counted(
    found: Iterable[tuple[str, AccessForm, tuple[str, ...], tuple[Frame, ...], Where]],
) -> tuple[StaticAccess, ...]:
    """One ``StaticAccess`` per distinct (mnemonic, form, bits, frames, where), in order of first appearance."""
    table: Counter[StaticAccess] = Counter()
    for mnemonic, form, bits, frames, where in found:
        source = " @ ".join(map(str, frames))
        table[StaticAccess(mnemonic, form.space, form.kind, form.width, where, bits, source, count=0)] += 1
    return tuple(replace(access, count=count) for access, count in table.items())


_NUMBERS = (
    "language", "arch", "sha256", "instructions", "barriers", "vgprs", "agprs", "sgprs", "vgpr_spills", "sgpr_spills",
    "registers", "lds", "scratch", "waits", "writebacks", "invalidates", "fences",
)  # fmt: skip
