"""Entries of a TOML file that a person writes, such as waivers: read into dataclasses, each mistake in one line."""

from __future__ import annotations

import datetime
import hashlib
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, TypeVar

from harness.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Entry = TypeVar("Entry")

_URL = re.compile(r"https?://\S+")


def read_entries(content: bytes, name: str, table: str, cls: type[Entry], key: str) -> tuple[Entry, ...]:
    """Return the entries ``[[table]]`` in a file's ``content`` as objects of the dataclass ``cls``.

    Its fields are text, except ``expires``, a date that becomes text, and those of the type int. ``key`` is the field
    that no two entries may share. UsageError, which begins with ``name``, for the first mistake.
    """
    try:
        plain = tomllib.loads(content.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise UsageError(f"{name} is not TOML: {' '.join(str(error).split()):.200}") from error
    listed = plain.get(table, [])
    if set(plain) - {table} or not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
        raise UsageError(f"{name}: expected only entries [[{table}]], got {', '.join(plain):.100}")
    entries = tuple(_checked(each, f"{name}: {table} {number}", cls) for number, each in enumerate(listed, 1))
    names = [getattr(entry, key) for entry in entries]
    for each in names:
        if names.count(each) > 1:
            raise UsageError(f"{name}: {each:.100} has several entries: write one")
    return entries


def recorded(content: bytes, entries: Sequence[Any]) -> dict[str, Any]:
    """Return what a run records of a file: its hash, and its entries without what is None."""
    plain = [{name: value for name, value in vars(entry).items() if value is not None} for entry in entries]
    return {"sha256": hashlib.sha256(content).hexdigest(), "entries": plain}


def _checked(entry: Mapping[str, Any], where: str, cls: type[Entry]) -> Entry:
    known = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]
    if unknown := sorted(set(entry) - set(known)):
        raise UsageError(f"{where}: unknown key {unknown[0]!r:.60}; the keys are {', '.join(known)}")
    if missing := [name for name, field in known.items() if name not in entry and field.default is MISSING]:
        raise UsageError(f"{where} lacks {', '.join(missing)}")
    for name, value in entry.items():
        if name == "expires":
            if type(value) is not datetime.date:
                raise UsageError(f"{where}: expires: expected a date such as 2027-01-31, got {value!r:.60}")
        elif known[name].type == "int":
            if type(value) is not int or not 0 < value <= 1_000_000:
                raise UsageError(f"{where}: {name}: expected a number from 1 to 1,000,000, got {value!r:.60}")
        elif not isinstance(value, str) or not value.strip():
            raise UsageError(f"{where}: {name}: expected text, got {value!r:.60}")
    if not _URL.fullmatch(entry["issue"]):
        raise UsageError(f"{where}: issue: expected a link such as https://example.org/12, got {entry['issue']!r:.60}")
    return cls(**{**entry, "expires": entry["expires"].isoformat()})
