"""One way in for all languages."""

from __future__ import annotations

import functools

from harness.errors import HarnessError
from harness.isa import amdgcn, ptx
from harness.isa.record import Fingerprint


@functools.lru_cache(maxsize=1024)
def fingerprint(text: str) -> Fingerprint:
    """Read what Triton compiled: amdgcn or PTX. Raises HarnessError when ``text`` is neither, or incomplete."""
    if amdgcn.TARGET.search(text):
        return amdgcn.read(text)
    if ptx.TARGET.search(text):
        return ptx.read(text)
    raise HarnessError(f"this is neither an amdgcn listing nor PTX: {text[:60]!r}")
