"""Fingerprints of compiled code in any language."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.isa import amdgcn, kept_fingerprints, ptx, sass
from harness.isa.flow.origin import UNKNOWN, Roots
from harness.isa.record import Fingerprint


@functools.lru_cache(maxsize=1024)
def fingerprint(text: str, usage: str = "", roots: Roots = UNKNOWN) -> Fingerprint:
    """Return the fingerprint of Triton's output, amdgcn or PTX. ``usage``: cuobjdump's line ``REG:18 STACK:0 ...`` for
    PTX. ``roots``: what is known about the kernel's arguments, see ``flow.origin``.

    Raises HarnessError if ``text`` is neither, or incomplete.
    """
    if amdgcn.TARGET.search(text):
        return amdgcn.read(text, roots)
    if ptx.TARGET.search(text) and not sass.MARK.search(text):
        return sass.with_usage(ptx.read(text, roots), usage)
    raise HarnessError(f"this is neither an amdgcn listing nor PTX: {text[:60]!r}")


def of_launch(launch: Any) -> Fingerprint:
    """Return the fingerprint of a launch record's listing, with the resources of its machine code if they are known."""
    return _of_listing(launch.listing, getattr(launch, "usage", ""), roots_of(launch))


@functools.lru_cache(maxsize=1024)
def _of_listing(text: str, usage: str, roots: Roots) -> Fingerprint:
    from triton import knobs

    return kept_fingerprints.of(text, usage, roots, Path(knobs.cache.dir), fingerprint)


def codes_of(launch: Any) -> tuple[Fingerprint, ...]:
    """Return the fingerprints of a launch's code: of amdgcn; or of PTX and, with a disassembler, of the SASS that
    ran."""
    machine_code = getattr(launch, "sass", None)
    listed = of_launch(launch)
    return (
        (listed,) if machine_code is None else (listed, _machine_code(machine_code, launch.listing, roots_of(launch)))
    )


def roots_of(launch: Any) -> Roots:
    """Return the arguments that lead to other ranks' memory, as a launch record names them; a GPU's does not."""
    tables, peers = getattr(launch, "tables", None), getattr(launch, "peers", ())
    return Roots(None if tables is None else frozenset(tables), frozenset(peers))


_machine_code = functools.lru_cache(maxsize=256)(sass.read)
