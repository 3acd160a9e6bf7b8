"""Reads a listing as a program of steps."""

from __future__ import annotations

import functools

from harness.errors import HarnessError
from harness.isa import amdgcn, ptx
from harness.isa.flow.origin import UNKNOWN, Roots
from harness.isa.protocol import amd_steps, ptx_steps
from harness.isa.protocol.program import Program


@functools.lru_cache(maxsize=64)
def read(text: str, roots: Roots = UNKNOWN, *, located: bool = True) -> Program:
    """Return the program of an amdgcn listing or of PTX; ``roots`` as for ``fingerprint``. HarnessError for others.

    ``located``: find out where accesses go, which takes most of the time. Otherwise their ``where`` is unattributed.
    """
    if amdgcn.TARGET.search(text):
        return amd_steps.program(text, amdgcn.places(text, roots) if located else {})
    if ptx.TARGET.search(text):
        return ptx_steps.program(text, ptx.places(text, roots) if located else {})
    raise HarnessError(f"this is neither an amdgcn listing nor PTX: {text[:60]!r}")
