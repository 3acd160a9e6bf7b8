"""Expected form of compiled accesses, per language: the only module of the suite that distinguishes targets.

``amdgcn`` is the assembly of gfx942 and gfx950; ``ptx`` is Triton's input for NVIDIA's assembler, and ``sass`` is that
assembler's output for sm_90. A tuple holds the modifier words of an access, as ``harness.isa`` reads them.
"""

import re
from collections.abc import Callable
from typing import Any, cast

from harness import isa
from harness.isa import protocol
from harness.isa.protocol import Unordered

ARCHS = {"gfx942": ("hip", "gfx942"), "gfx950": ("hip", "gfx950"), "sm_90": ("cuda", 90)}
"""Targets that need no GPU, as ``harness.isa.compile_only`` takes them."""

WIDTH = 16
"""Bytes per lane of the widest access, on every target."""

PLAIN: Any = "the words of a plain load with the same arguments, compiled by the installed Triton"

_SCOPES = {"sys": ("STRONG", "SYS"), "gpu": ("STRONG", "GPU"), "cta": ("STRONG", "SM")}

# Triton 3.6 drops .cv for NVIDIA GPUs, and volatile for AMD GPUs. On AMD GPUs, stores with .wb and .cg have no words.
LOADS = {
    "amdgcn": {".cg": ("nt",), ".cv": ("sc0", "sc1"), "volatile": PLAIN},
    "ptx": {".ca": ("ca",), ".cg": ("cg",), ".cv": PLAIN, "volatile": PLAIN},
    "sass": {".ca": _SCOPES["cta"], ".cg": _SCOPES["gpu"], ".cv": PLAIN, "volatile": PLAIN},
}
STORES = {
    "amdgcn": {".cs": ("nt",), ".wt": ("sc0", "sc1")},
    "ptx": {".wb": ("wb",), ".cg": ("cg",), ".cs": ("cs",), ".wt": ("wt",)},
    "sass": {".wb": _SCOPES["cta"], ".cg": _SCOPES["gpu"], ".cs": ("EF",), ".wt": _SCOPES["sys"]},
}
"""Words of an access by modifier. An access with any other modifier, "" or None has no words."""

# LLVM's memory model for gfx942. Triton 3.6 compiles every atomic_cas as acq_rel at gpu scope there.
_AMD_CACHES = {"sys": ["sc0 sc1"], "gpu": ["sc1"], "cta": []}
_MEMBAR = {"sys": ["MEMBAR.ALL.SYS"], "gpu": ["MEMBAR.ALL.GPU"], "cta": ["MEMBAR.ALL.CTA"]}
_INVALIDATE = {"sys": ["CCTL.IVALL"], "gpu": ["CCTL.IVALL"], "cta": []}

UNWAITED = "wait for the write-back"
"""Sentence about an atomic whose release does not wait for its write-back, see ``protocol.Unordered``."""

BACKS_OFF = {"amdgcn": "s_sleep", "ptx": ""}
"""What a spin loop must have between two polls; "": nothing, since the hardware's own scheduling is fair there."""

SPILLS = {"amdgcn": ("vgpr_spills", "sgpr_spills"), "ptx": ("scratch",), "sass": ("scratch",)}
"""Fields of a fingerprint that count what is spilt. ptxas counts bytes of stack, if it was run."""


def needed(language: str, poll: Any, scope: str) -> str:
    """Return the words that a poll lacks to read at ``scope``."""
    if language == "amdgcn":
        return "sc1" if poll.op else _AMD_CACHES[scope][0]
    return f".relaxed.{scope}"


def wanted_order(language: str, sem: str, scope: str) -> dict[str, Any]:
    """Return the expected properties of an atomic of that order, in the form of ``seen_order``."""
    releases, acquires = sem in ("release", "acq_rel"), sem in ("acquire", "acq_rel")
    if language == "amdgcn":
        return {
            "buffer_wbl2": _AMD_CACHES[scope] if releases else [],
            "buffer_inv": _AMD_CACHES[scope] if acquires else [],
            "sc1 on the atomic": [scope == "sys"],
        }
    if language == "ptx":
        return {"fences": [], "words of the atomic": [sorted((sem, scope))]}
    return {
        "fences before it": _MEMBAR[scope] if releases else [],
        "invalidations after it": _INVALIDATE[scope] if acquires else [],
        "words of the atomic": [_SCOPES[scope]],
    }


def seen_order(code: isa.Fingerprint) -> dict[str, Any]:
    """Return the properties of the atomics in a kernel that has atomics of one order only.

    An atomic cannot be identified by its source line: if all lanes use one address, LLVM rebuilds it for AMD GPUs and
    gives it the line of the previous instruction.
    """
    atomics = [access for access in code.accesses if access.kind == "atomic"]
    words = sorted({access.bits for access in atomics})
    if code.language == "amdgcn":
        return {
            "buffer_wbl2": sorted(code.writebacks),
            "buffer_inv": sorted(code.invalidates),
            "sc1 on the atomic": sorted({"sc1" in bits for bits in words}),
        }
    if code.language == "ptx":
        return {"fences": sorted(code.fences), "words of the atomic": [sorted(bits) for bits in words]}
    return {
        "fences before it": sorted(name for name in code.fences if not name.startswith("CCTL")),
        "invalidations after it": sorted(name for name in code.fences if name.startswith("CCTL")),
        "words of the atomic": words,
    }


def order_faults(code: isa.Fingerprint, listing: str, sem: str, scope: str) -> list[tuple[str, Any, Any]]:
    """Return what is wrong with the order of a kernel's atomics: of each fault the subject, what the code has, and what
    it must have. ``listing``: the kernel's, which is read if an AMD GPU needs fences around the atomics.

    The first faults name an instruction. PTX atomics have their own order, and fences of NVIDIA GPUs wait by
    themselves: only their number and words can be wrong.
    """
    seen = seen_order(code)
    wrong: list[tuple[str, Any, Any]] = [
        (_subject(code, "order"), _words(lack, scope), f"{sem} at scope {scope}")
        for lack in lacking_order(code, listing, sem, scope)
    ]
    for part, wanted in wanted_order(code.language, sem, scope).items():
        if seen[part] != wanted:
            wrong.append((_subject(code, part), seen[part], wanted))
    return wrong


def excused_order_faults(
    code: isa.Fingerprint,
    listing: str,
    op: str,
    sem: str | None,
    scope: str | None,
    *,
    ignores_cas: Callable[[], bool],
    does_not_wait: Callable[[], bool],
) -> list[tuple[str, Any, Any]]:
    """Return the faults of the order of ``atomic_{op}`` that the compiler has not made by itself: see ``order_faults``.

    None for ``sem`` or ``scope`` means acq_rel at gpu scope. ``ignores_cas``: whether this Triton compiles every
    atomic_cas in that order; ``does_not_wait``: whether it does not wait for the write-back of a release.
    """
    sem, scope = sem or "acq_rel", scope or "gpu"
    wrong = order_faults(code, listing, sem, scope)
    if wrong and op == "cas" and ignores_cas():
        sem, scope = "acq_rel", "gpu"
        wrong = order_faults(code, listing, sem, scope)
    unwaited = wrong and any(lack.lack == UNWAITED for lack in lacking_order(code, listing, sem, scope))
    if unwaited and does_not_wait():
        # With the waits, since without them the atomics of a thread's elements do not count as one block.
        return order_faults(
            code, re.sub(r"(?m)^\s*buffer_wbl2.*$", r"\g<0>\n\ts_waitcnt vmcnt(0)", listing), sem, scope
        )
    return wrong


def lacking_order(code: isa.Fingerprint, listing: str, sem: str, scope: str) -> list[Unordered]:
    """Return the atomics of code for an AMD GPU that lack a fence, or a wait for one, on some way through the code."""
    releases, acquires = sem in ("release", "acq_rel"), sem in ("acquire", "acq_rel")
    if code.language != "amdgcn" or not _AMD_CACHES[scope] or not (releases or acquires):
        return []
    program = protocol.read(listing, located=False)
    return protocol.unordered(program, cast(protocol.Scope, scope), releases=releases, acquires=acquires)


def _subject(code: isa.Fingerprint, part: str) -> str:
    return f"{part} ({code.language})"


def _words(lack: Unordered, scope: str) -> str:
    side = {"wait": "between its invalidation and", "invalidation": "after"}.get(lack.lack, "before")
    return f"missing {protocol.MISSING['amdgcn'][lack.lack][scope]} {side} {lack.atomic}"


def barrier_order(codes: list[isa.Fingerprint]) -> dict[str, bool]:
    """Return for each part of a device barrier's memory order whether the kernels have it.

    ``codes`` are the kernels, of one language, that together form a barrier between devices.
    """
    words = [access.bits for code in codes for access in code.accesses if access.kind == "atomic"]
    ordered = [access.bits for code in codes for access in code.accesses]
    if codes[0].language == "amdgcn":
        releases = [scope for code in codes for scope in code.writebacks]
        acquires = [scope for code in codes for scope in code.invalidates]
        system = "sc0 sc1" in releases, "sc0 sc1" in acquires, all("sc1" in bits for bits in words)
    elif codes[0].language == "ptx":
        releases, acquires = ({one, "acq_rel"} for one in ("release", "acquire"))
        # A separate fence is a release or an acquire, so that without ordered atomics two fences are needed.
        fences = sum((code.fences or {}).get("fence.acq_rel.sys", 0) for code in codes)
        system = (
            fences > 0 or any(releases & set(bits) and "sys" in bits for bits in ordered),
            fences > 1 or any(acquires & set(bits) and "sys" in bits for bits in ordered),
            all("sys" in bits for bits in words),
        )
    else:
        fences = [name for code in codes for name in code.fences]
        system = (
            set(_MEMBAR["sys"]) <= set(fences),
            set(_INVALIDATE["sys"]) <= set(fences),
            all("SYS" in bits for bits in words),
        )
    return dict(zip(("release at system scope", "acquire at system scope", "system scope alone"), system, strict=True))


def bits_of(code: isa.Fingerprint, kind: str, where: str | None, width: int | None = None) -> set[tuple[str, ...]]:
    """Return the sets of cache words of vector accesses of ``kind``; ``width`` selects accesses of that many bytes, and
    ``where`` those in that place."""
    return {
        access.bits
        for access in code.accesses
        if access.space != "scalar"
        and access.kind == kind
        and where in (None, access.where)
        and width in (None, access.width)
    }


def wrong_bits(code: isa.Fingerprint, kind: str, where: str, wanted: tuple[str, ...]) -> list[tuple[str, ...]] | None:
    """Return None if all accesses of 16 bytes have exactly the cache words ``wanted``, or for a local one those of the
    buffer form; else the sets of words that they have."""
    got = bits_of(code, kind, where, WIDTH)
    allowed = [{wanted}] if where == "remote" or wanted != ("nt",) else [{wanted}, {("sc0", "nt")}]
    return None if got in allowed else sorted(got)


def unhinted(code: isa.Fingerprint) -> list[str] | None:
    """Return None if the kernel has atomics, all of 4 bytes and none of them a compare-and-swap; else the names of
    the others, or a sentence for a kernel without atomics."""
    atomics = {(access.mnemonic, access.width) for access in code.accesses if access.kind == "atomic"}
    single = sorted(name for name, width in atomics if width != 4 or "cmpswap" in name)
    return None if atomics and not single else single or ["none"]
