"""Releases of the suite that were withdrawn: no certificate counts that was made with one.

The list is ``withdrawn.toml`` next to this file:

    [[release]]
    version = "0.1.0"
    date = 2026-11-24
    reason = "its oracle accepted a put that wrote nothing"
"""

from __future__ import annotations

import datetime
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FILE = Path(__file__).with_name("withdrawn.toml")


@dataclass(frozen=True)
class Release:
    """A withdrawn release of iris-harness, the day of its withdrawal, and the reason: a clause."""

    version: str
    date: datetime.date
    reason: str

    def __str__(self) -> str:
        return f"iris-harness {self.version} was withdrawn on {self.date}: {self.reason}"


def withdrawn(version: str | None, file: Path = FILE) -> Release | None:
    """Return the entry of a version of iris-harness; None if it was not withdrawn. UsageError for a malformed list."""
    return next((release for release in releases(file) if release.version == version), None)


def releases(file: Path = FILE) -> tuple[Release, ...]:
    """Return the withdrawn releases."""
    try:
        plain: dict[str, Any] = tomllib.loads(file.read_text("utf-8"))
        listed = [Release(each["version"], each["date"], each["reason"]) for each in plain.get("release", [])]
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, KeyError, TypeError) as error:
        raise UsageError(f"{file.name} cannot be read: {' '.join(str(error).split()):.200}") from error
    for release in listed:
        texts: tuple[object, ...] = (release.version, release.reason)
        if not all(isinstance(text, str) and text for text in texts) or type(release.date) is not datetime.date:
            raise UsageError(f"{file.name}: a release needs a version, a date such as 2026-11-24 and a reason")
    return tuple(listed)
