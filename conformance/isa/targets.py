"""What compiled accesses look like, per language: the one place that tells targets apart.

``amdgcn`` is gfx942's and gfx950's; ``ptx`` is what Triton asks of NVIDIA's assembler, ``sass`` what that makes of it
for sm_90. A tuple holds the words that an access carries, as ``harness.isa`` reads them.
"""

from typing import Any

from harness import isa

WIDTH = 16
"""Bytes per lane of the widest access, on every target."""

PLAIN: Any = "what this Triton gives a plain load with the same arguments"

_SCOPES = {"sys": ("STRONG", "SYS"), "gpu": ("STRONG", "GPU"), "cta": ("STRONG", "SM")}

# Triton 3.6 drops .cv for NVIDIA GPUs, and volatile for AMD's; on AMD GPUs stores with .wb and .cg carry nothing.
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
"""Modifier -> words of the access; the other modifiers, "" and None, leave none."""

# LLVM's memory model for gfx942. Triton 3.6 compiles every atomic_cas as acq_rel at gpu scope there.
_AMD_CACHES = {"sys": ["sc0 sc1"], "gpu": ["sc1"], "cta": []}
_MEMBAR = {"sys": ["MEMBAR.ALL.SYS"], "gpu": ["MEMBAR.ALL.GPU"], "cta": ["MEMBAR.ALL.CTA"]}
_INVALIDATE = {"sys": ["CCTL.IVALL"], "gpu": ["CCTL.IVALL"], "cta": []}


def wanted_order(language: str, sem: str, scope: str) -> dict[str, Any]:
    """What an atomic of that order must look like; ``seen_order`` says it of code."""
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
    """The same, of a kernel that has one atomic.

    Its source line would not do: where all lanes use one address, LLVM rebuilds the atomic for AMD GPUs and leaves it
    the line of the instruction before.
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


def misplaced(code: isa.Fingerprint) -> list[str]:
    """Fences of the one atomic's kernel that are there and do not order it: too late, too early, or not waited for.

    By LLVM's memory model for gfx942, a release is a write-back and ``s_waitcnt vmcnt(0)`` before the atomic, an
    acquire ``s_waitcnt vmcnt(0)`` and an invalidation behind it. Nothing on NVIDIA GPUs, whose atomics carry their
    order in PTX and whose fences wait by themselves.
    """
    if not code.ordering or "atomic" not in code.ordering:
        return []
    steps = code.ordering
    first, last = steps.index("atomic"), len(steps) - 1 - steps[::-1].index("atomic")
    wrong = []
    for at, step in enumerate(steps):
        if step.startswith("buffer_wbl2"):
            if at > first:
                wrong.append("a write-back behind the atomic")
            elif "vmcnt(0)" not in steps[at:first]:
                wrong.append("a write-back that is not waited for")
        elif step.startswith("buffer_inv"):
            if at < last:
                wrong.append("an invalidation before the atomic")
            elif "vmcnt(0)" not in steps[last:at]:
                wrong.append("an invalidation that does not wait for the atomic")
    return wrong


def barrier_order(codes: list[isa.Fingerprint]) -> dict[str, bool]:
    """Whether kernels of one language, which together are a barrier between devices, have each part of its order."""
    words = [access.bits for code in codes for access in code.accesses if access.kind == "atomic"]
    ordered = [access.bits for code in codes for access in code.accesses]
    if codes[0].language == "amdgcn":
        releases = [scope for code in codes for scope in code.writebacks]
        acquires = [scope for code in codes for scope in code.invalidates]
        system = "sc0 sc1" in releases, "sc0 sc1" in acquires, all("sc1" in bits for bits in words)
    elif codes[0].language == "ptx":
        releases, acquires = ({one, "acq_rel"} for one in ("release", "acquire"))
        # A fence of its own orders as either, so it takes two of them where no atomic does.
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
