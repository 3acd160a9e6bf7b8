"""One way in for all languages."""

from __future__ import annotations

import functools
from typing import Any

from harness.errors import HarnessError
from harness.isa import amdgcn, ptx, sass
from harness.isa.record import Fingerprint


@functools.lru_cache(maxsize=1024)
def fingerprint(text: str, usage: str = "") -> Fingerprint:
    """Read what Triton compiled: amdgcn or PTX. ``usage`` is cuobjdump's line ``REG:18 STACK:0 ...`` about the latter.

    Raises HarnessError when ``text`` is neither, or incomplete.
    """
    if amdgcn.TARGET.search(text):
        return amdgcn.read(text)
    if ptx.TARGET.search(text) and not sass.MARK.search(text):
        return sass.with_usage(ptx.read(text), usage)
    raise HarnessError(f"this is neither an amdgcn listing nor PTX: {text[:60]!r}")


def of_launch(launch: Any) -> Fingerprint:
    """``fingerprint`` of a launch record's listing, with what its machine code uses where the record tells."""
    return fingerprint(launch.listing, getattr(launch, "usage", ""))


def codes_of(launch: Any) -> tuple[Fingerprint, ...]:
    """Every text there is of a launch's code: amdgcn; or PTX and, where a disassembler is there, the SASS that ran."""
    machine_code = getattr(launch, "sass", None)
    listed = of_launch(launch)
    return (listed,) if machine_code is None else (listed, _machine_code(machine_code, launch.listing))


_machine_code = functools.lru_cache(maxsize=256)(sass.read)
