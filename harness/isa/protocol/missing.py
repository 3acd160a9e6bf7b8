"""The instructions that establish an order, by language: for reports of what is missing."""

from __future__ import annotations

_AMD = {"sys": "sc0 sc1", "gpu": "sc1"}
_SCOPES = ("sys", "gpu", "cta")

MISSING: dict[str, dict[str, dict[str, str]]] = {
    "amdgcn": {
        "write-back": {scope: f"buffer_wbl2 {bits}" for scope, bits in _AMD.items()},
        "wait": dict.fromkeys(_SCOPES, "s_waitcnt vmcnt(0)"),
        "wait for the write-back": dict.fromkeys(_SCOPES, "s_waitcnt vmcnt(0) after the buffer_wbl2"),
        "invalidation": {scope: f"buffer_inv {bits}" for scope, bits in _AMD.items()},
        "other wavefronts": dict.fromkeys(_SCOPES, "s_waitcnt vmcnt(0) in every wavefront and s_barrier"),
    },
    "ptx": {
        "write-back": {scope: f"fence.acq_rel.{scope}" for scope in _SCOPES},
        "invalidation": {scope: f"fence.acq_rel.{scope} or ld.acquire.{scope}" for scope in _SCOPES},
        "other wavefronts": dict.fromkeys(_SCOPES, "bar.sync before the fence"),
    },
}
"""Language -> lack (``order.Lack``) -> scope -> instruction. Source: LLVM AMDGPUUsage, "Memory Model gfx942"."""
