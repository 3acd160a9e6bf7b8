"""Small formatting helpers that the views share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def plural(count: int, noun: str) -> str:
    """``1 case``, ``2 cases``, ``1,000 cases``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def widths(table: Mapping[str, int]) -> str:
    """``16 B x 8, 2 B x 1``, widest first; an en dash when there is none."""
    entries = sorted(table.items(), key=lambda item: -int(item[0]))
    return ", ".join(f"{width} B \N{MULTIPLICATION SIGN} {count:,}" for width, count in entries) or "\N{EN DASH}"


def duration(seconds: float) -> str:
    """``0.42 s``, ``12 s``, ``3 min 5 s``."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def shown(value: Any) -> str:
    """A case field as a person reads it: text without quotes, everything else as Python writes it."""
    return value if isinstance(value, str) else repr(value)


def moment(iso: str) -> str:
    """``2026-11-21 02:00 UTC`` from an ISO 8601 time in UTC; other text is given back as it is."""
    return f"{iso[:10]} {iso[11:16]} UTC" if len(iso) >= 16 and iso[10] == "T" else iso
