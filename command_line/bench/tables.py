"""The table that ``--tune`` writes: the fastest configuration for each size, in the library's format.

    {"schema": 1, "entries": [{"arch": "sm_90", "op": "all_reduce", "use_gluon": false, "element_size": 2,
     "world_size": 8, "bytes": 8192, "config": {"comm_sms": 16, ...}, "measured": "..."}]}

``config`` holds fields of the library's Config. ``measured`` is a note for people; the library ignores it.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

from command_line.bench.ops import ITEM_SIZES, OURS
from command_line.bench.plan import THEIRS, TORCH
from command_line.bench.results import Results, Size
from harness.errors import UsageError

SCHEMA = 1
KEYS = {"arch": str, "op": str, "use_gluon": bool, "element_size": int, "world_size": int, "bytes": int}
"""The fields that identify an entry, with their types. A new entry replaces one with equal fields."""

Entry = dict[str, Any]


def check(path: Path) -> None:
    """Raise UsageError unless ``path`` is a table or a table can be created there."""
    _read(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise UsageError(f"--tune {path}: cannot write there ({error.strerror or error}): name another file") from error


def entries_of(results: Results, size: Size) -> list[Entry]:
    """Return an entry for each of the library's backends that gave right results at that size."""
    entries = []
    for backend in OURS:
        cell = size.best(backend)
        if cell is not None and cell.key.fields:
            entry = {
                "arch": results.request.arch,
                "op": results.request.op,
                "use_gluon": backend == "gluon",
                "element_size": ITEM_SIZES[results.request.dtype],
                "world_size": results.request.ranks,
                "bytes": size.layout.size,
                "config": {"comm_sms": cell.key.cus, **dict(cell.key.fields)},
                "measured": _measured(results, size, cell.time()),
            }
            entries.append(entry)
    return entries


def merge(path: Path, entries: list[Entry]) -> None:
    """Write ``entries`` into the table; each replaces the entry with equal ``KEYS``."""
    kept = {_key(entry): entry for entry in (*_read(path), *entries)}
    lines = ",\n  ".join(json.dumps(kept[key]) for key in sorted(kept))
    part = path.with_name(f".{path.name}.part")
    part.write_text(f'{{\n "schema": {SCHEMA},\n "entries": [\n  {lines}\n ]\n}}\n', encoding="utf-8")
    os.replace(part, path)


def _read(path: Path) -> list[Entry]:
    if not path.exists():
        return []
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"--tune {path}: the file exists and is not a table of configurations ({error}): name another file"
        ) from error
    entries: Any = plain.get("entries") if isinstance(plain, dict) and plain.get("schema") == SCHEMA else None
    if not isinstance(entries, list):
        raise UsageError(f"--tune {path}: the file exists and is not a table of configurations: name another file")
    for number, entry in enumerate(entries):
        wrong = [
            name for name, kind in KEYS.items() if not isinstance(entry, dict) or type(entry.get(name)) is not kind
        ]
        if wrong:
            raise UsageError(
                f"--tune {path}: the file exists and is not a table of configurations ({wrong[0]!r} of entry {number}"
                " is missing or wrong): name another file"
            )
    return entries


def _key(entry: Entry) -> tuple[Any, ...]:
    return tuple(entry[name] for name in KEYS)


def _measured(results: Results, size: Size, seconds: float) -> str:
    request = results.request
    where = (
        "emulated ranks, whose times are not those of a GPU"
        if request.emulated
        else str(results.rig.get("gpu", request.arch))
    )
    text = f"{request.ranks} x {where}, {request.dtype}, {time.strftime('%Y-%m-%d', time.gmtime())}: "
    text += f"{seconds * 1e6:.1f} us"
    theirs = [cell.time() for cell in map(size.best, THEIRS) if cell is not None]
    return f"{text}, {results.label(TORCH)} {min(theirs) * 1e6:.1f} us" if theirs else text
