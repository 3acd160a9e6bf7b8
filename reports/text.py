"""Small formatting helpers that the views share. ``plain`` makes text of the evidence safe to show."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from typing import Any

from harness.evidence import Case
from harness.printable import plain

__all__ = ["cut", "duration", "fields_of", "moment", "plain", "plural", "replay_of", "shown", "widths"]

_FIELDS_SHOWN = 100
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")


def plural(count: int, noun: str) -> str:
    """``1 case``, ``2 cases``, ``1,000 cases``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def widths(table: Mapping[str, int]) -> str:
    """``16 B x 8, 2 B x 1``, widest first; an en dash when there is none."""
    entries = sorted(table.items(), key=lambda item: -int(item[0]))
    return ", ".join(f"{width} B \N{MULTIPLICATION SIGN} {count:,}" for width, count in entries) or "\N{EN DASH}"


def duration(seconds: float) -> str:
    """``0.42 s``, ``12 s``, ``3 min 5 s``; an en dash for what is not a number of seconds."""
    if not math.isfinite(seconds):
        return "\N{EN DASH}"
    if seconds < 10:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def shown(value: Any) -> str:
    """A case field as a person reads it: text without quotes, everything else as Python writes it."""
    return value if isinstance(value, str) else repr(value)


def fields_of(case: Case) -> list[tuple[str, str]]:
    """Name and value of each field of the case; after the first hundred, how many more the evidence has."""
    fields = case.case["fields"]
    found = [(name, shown(value)) for name, value in list(fields.items())[:_FIELDS_SHOWN]]
    rest = len(fields) - len(found)
    return [*found, ("\N{HORIZONTAL ELLIPSIS}", f"{plural(rest, 'more field')}, in evidence.jsonl")] if rest else found


def replay_of(case: Case) -> str:
    """The command that runs the case again."""
    return f"iris-harness replay {shlex.quote(case.id)}"


def moment(iso: str) -> str:
    """``2026-11-21 02:00 UTC`` from an ISO 8601 time in UTC; other text is returned as it is."""
    return f"{iso[:10]} {iso[11:16]} UTC" if _MOMENT.match(iso) else iso


def cut(text: str, limit: int) -> str:
    """``text``; if it is longer than ``limit``, its beginning, a note of how much is missing, and its end."""
    if len(text) <= limit:
        return text
    end = limit // 4
    note = f" [... {len(text) - limit:,} characters are not shown: evidence.jsonl has them ...] "
    return text[: limit - end] + note + text[-end:]
