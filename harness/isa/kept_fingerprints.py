"""Fingerprints of launched kernels on disk, so that one process of this user makes each one.

The data flow that distinguishes local accesses from remote ones takes tens of milliseconds for each listing, and the
ranks of a group launch the same kernels. A fingerprint is kept as JSON next to Triton's cache and checked when it is
read.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from harness import kept, locks
from harness.isa.flow.origin import Roots
from harness.isa.listing import FILE, listed_file
from harness.isa.record import Fingerprint, StaticAccess

LIMIT = 120.0
"""Seconds that a process waits for another one that makes the same fingerprint."""

_FILE_LINES = re.compile(r"^\s*(\.file\s.*)", re.MULTILINE)
_COUNTS = ("writebacks", "invalidates", "fences")
_ACCESS = {
    field.name: {"bits": list, "width": int, "count": int}.get(field.name, str) for field in fields(StaticAccess)
}


def of(text: str, usage: str, roots: Roots, cache: Path, make: Callable[[str, str, Roots], Fingerprint]) -> Fingerprint:
    """Return the fingerprint that ``make`` returns for these arguments, from disk if it is there. ``cache``: the folder
    of Triton's cache. Raises what ``make`` raises, and as ``locks.held``."""
    name = _name(text, usage, roots)
    file = kept.file_in(cache, "fingerprints", f"{name}.json")
    known = _read(file)
    if known is not None:
        return known
    with locks.held(locks.in_cache(cache, f"{name}.fingerprint.lock"), LIMIT, "the fingerprint of a kernel"):
        known = _read(file)
        if known is None:
            known = make(text, usage, roots)
            kept.write(file, json.dumps(asdict(known)).encode())
    return known


def _name(text: str, usage: str, roots: Roots) -> str:
    """Return a hash of everything that the fingerprint depends on: also of the files that the listing's paths stand for
    in this process, see ``sources.current_file``."""
    files = [listed_file(match) for line in _FILE_LINES.findall(text) if (match := FILE.match(line))]
    tables = None if roots.tables is None else sorted(roots.tables)
    parts = (kept.sources_hash(Path(__file__).parent), text, usage, tables, sorted(roots.peers), files)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _read(file: Path) -> Fingerprint | None:
    content = kept.read(file)
    try:
        return None if content is None else _restored(json.loads(content))
    except (ValueError, TypeError, KeyError, AttributeError):  # not written by this code
        return None


def _restored(plain: dict[str, Any]) -> Fingerprint:
    """Return the fingerprint of its plain data; ValueError, TypeError, KeyError or AttributeError for other data."""
    accesses = []
    for access in plain.pop("accesses"):
        if any(type(access[name]) is not kind for name, kind in _ACCESS.items()):
            raise TypeError("an access has a field of another type")
        accesses.append(StaticAccess(**access | {"bits": tuple(access["bits"])}))
    for name in _COUNTS:
        if plain[name] is not None and any(type(count) is not int for count in plain[name].values()):
            raise TypeError(f"{name} has a count that is not a whole number")
    return Fingerprint(**plain, accesses=tuple(accesses))
