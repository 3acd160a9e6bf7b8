"""The fingerprint of a compiled kernel: comparable numbers about its code, in one form for all targets.

AMD GPUs run ``amdgcn``. NVIDIA GPUs run ``sass``, which ptxas makes from Triton's ``ptx``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

from harness.isa.sources import Frame, Where

Language = Literal["amdgcn", "ptx", "sass"]
KERNEL_SUFFIXES = frozenset(
    (".json", ".source", ".ttir", ".ttgir", ".glir", ".llir", ".amdgcn", ".hsaco", ".ptx", ".cubin")
)
"""Suffixes of the files that Triton keeps of a kernel. A launcher's shared library, code for the host, is not one."""
Kind = Literal["load", "store", "atomic"]
Space = Literal["global", "buffer", "flat", "scalar"]
FLAG_BYTES = 8
"""Most bytes of a word by which devices wait for each other: of wider accesses, memory may show a part."""


@dataclass(frozen=True)
class AccessForm:
    """Memory access of one mnemonic: address space, kind, and bytes that one lane moves.

    A packed atomic of two halves is 4 bytes wide. A scalar load moves its width once for the whole wavefront. ``flat``
    is PTX's generic address space.
    """

    space: Space
    kind: Kind
    width: int


@dataclass(frozen=True)
class StaticAccess:
    """All instructions of one form at one place in the code; ``count``: their number.

    ``bits``: the words for order, scope and caching, in the language's own order: ``("sc0", "sc1")``, ``("sys",
    "release")``, ``("L1::no_allocate",)``, ``("STRONG", "SYS")``.
    """

    mnemonic: str
    space: Space
    kind: Kind
    width: int
    where: Where
    bits: tuple[str, ...]
    source: str
    count: int

    @property
    def is_flag(self) -> bool:
        """True for a word by which devices wait for each other: narrow, and ordered at system scope."""
        words = set(self.bits)
        ordered = ({"sc0", "sc1"}, {"STRONG", "SYS"}, {"relaxed", "sys"}, {"release", "sys"}, {"acquire", "sys"})
        return self.width <= FLAG_BYTES and ("volatile" in words or any(pair <= words for pair in ordered))


@dataclass(frozen=True)
class Fingerprint:
    """Static properties of one kernel's code. Memory sizes are in bytes, registers are 32 bits wide.

    ``sha256`` is of the normalised instructions, so equal code has equal hashes. A field is None if the language does
    not have it or does not state it: PTX has neither registers nor spills, except with the resource usage from ptxas.

    ``vgprs``, ``agprs``, ``sgprs`` and their spills, ``waits`` (``s_waitcnt``), ``writebacks`` and ``invalidates``
    exist for amdgcn only; the last two are keyed by the cache bits (``"sc0 sc1"`` is system scope, ``"sc1"`` agent
    scope). ``registers`` (per lane) and ``fences``, keyed by opcode, exist for NVIDIA only. ``lds`` is the shared
    memory that the code declares (without Triton's dynamic part), ``scratch`` the private memory of a lane, which holds
    spills.
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
    fences: dict[str, int] | None = None

    def widths(self, where: Where, kind: Kind) -> dict[int, int]:
        """Return width in bytes -> number of vector instructions (for scalar loads see ``scalar_loads``)."""
        table: Counter[int] = Counter()
        for access in self.accesses:
            if access.space != "scalar" and (access.where, access.kind) == (where, kind):
                table[access.width] += access.count
        return dict(sorted(table.items()))

    def scalar_loads(self, where: Where) -> dict[int, int]:
        """Return width in bytes, once per wavefront -> number of ``s_load`` instructions."""
        table: Counter[int] = Counter()
        for access in self.accesses:
            if access.space == "scalar" and access.where == where:
                table[access.width] += access.count
        return dict(sorted(table.items()))

    def to_json(self) -> dict[str, Any]:
        """Return plain data for an evidence record: the numbers, and ``widths`` as where -> kind -> width -> count."""
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
    accesses: Iterable[tuple[str, AccessForm, tuple[str, ...], tuple[Frame, ...], Where]],
) -> tuple[StaticAccess, ...]:
    """Return one ``StaticAccess`` per distinct (mnemonic, form, bits, frames, where), in order of first appearance."""
    table: Counter[StaticAccess] = Counter()
    for mnemonic, form, bits, frames, where in accesses:
        source = " @ ".join(map(str, frames))
        table[StaticAccess(mnemonic, form.space, form.kind, form.width, where, bits, source, count=0)] += 1
    return tuple(replace(access, count=count) for access, count in table.items())


_NUMBERS = (
    "language", "arch", "sha256", "instructions", "barriers", "vgprs", "agprs", "sgprs", "vgpr_spills", "sgpr_spills",
    "registers", "lds", "scratch", "waits", "writebacks", "invalidates", "fences",
)  # fmt: skip
