"""Small formatting helpers that the views share. ``plain`` makes text of the evidence safe to print."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from harness.evidence import Case, Evidence
from harness.printable import plain

__all__ = [
    "cut",
    "duration",
    "fields_of",
    "markdown_row",
    "moment",
    "plain",
    "plural",
    "replay_of",
    "shown",
    "stacks_of",
    "widths",
]

_FIELDS_SHOWN = 100
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d")


def plural(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 case``, ``2 cases``, ``1,000 cases``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def widths(table: Mapping[str, int]) -> str:
    """Return the counts of access widths, widest first, as ``16 B x 8, 2 B x 1``, or an en dash if there is none."""
    entries = sorted(table.items(), key=lambda item: -int(item[0]))
    return ", ".join(f"{width} B \N{MULTIPLICATION SIGN} {count:,}" for width, count in entries) or "\N{EN DASH}"


def duration(seconds: float) -> str:
    """Return a duration as ``0.42 s``, ``12 s`` or ``3 min 5 s``, or an en dash if it is not a finite number."""
    if not math.isfinite(seconds):
        return "\N{EN DASH}"
    if seconds < 10:
        return f"{seconds:.2f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def shown(value: Any) -> str:
    """Return a case field for display: text without quotes, everything else as its ``repr``."""
    return value if isinstance(value, str) else repr(value)


def fields_of(case: Case) -> list[tuple[str, str]]:
    """Return the name and value of each field of the case that has not its default value, and of its additional data.

    After the first hundred, one last entry counts the fields that only the evidence has.
    """
    memory = {"memory": case.case["memory"]} if "memory" in case.case else {}
    chosen = [(name, value) for name, value in case.case["fields"].items() if name not in case.defaults]
    fields = [*chosen, *case.case.get("data", {}).items(), *memory.items()]
    texts = [(name, shown(value)) for name, value in fields[:_FIELDS_SHOWN]]
    rest = len(fields) - len(texts)
    return [*texts, ("\N{HORIZONTAL ELLIPSIS}", f"{plural(rest, 'more field')}, in evidence.jsonl")] if rest else texts


def stacks_of(case: Case) -> list[tuple[str, str]]:
    """Return each different stack once, with the ranks that have it: ``[("ranks 0, 1", "...")]``."""
    ranks: dict[str, list[str]] = {}
    for rank, stack in (case.stacks or {}).items():
        ranks.setdefault(stack, []).append(rank)
    return [(f"rank{'s' if len(each) > 1 else ''} {', '.join(each)}", stack) for stack, each in ranks.items()]


def replay_of(case: Case, evidence: Evidence) -> str:
    """Return the command that runs the case again. ``iris-harness replay`` runs only tests of the suite; a case of
    another table has its own command."""
    requirement = evidence.statements.get(case.requirement)
    if requirement is not None and requirement.table is not None:
        return case.repeat
    return f"iris-harness replay {shlex.quote(case.id)}"


def moment(iso: str) -> str:
    """Return an ISO 8601 time in UTC as ``2026-11-21 02:00 UTC``, and any other text unchanged."""
    return f"{iso[:10]} {iso[11:16]} UTC" if _MOMENT.match(iso) else iso


def cut(text: str, limit: int) -> str:
    """Return ``text``, or if it is longer than ``limit`` its beginning, a note that counts the rest, and its end."""
    if len(text) <= limit:
        return text
    end = limit // 4
    note = f" [... {len(text) - limit:,} characters are not shown: evidence.jsonl has them ...] "
    return text[: limit - end] + note + text[-end:]


def markdown_row(cells: Iterable[str]) -> str:
    """Return a row of a Markdown table, with the characters escaped that Markdown and HTML interpret."""
    return "| " + " | ".join(_escaped(cell) for cell in cells) + " |"


def _escaped(cell: str) -> str:
    for sign in ("\\", "|", "*", "_", "`", "[", "]", "<"):
        cell = cell.replace(sign, "\\" + sign)
    return cell
