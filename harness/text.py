"""Texts that come from the library under test, cut to a size that a report and an evidence file can hold."""

from __future__ import annotations

import traceback
from types import TracebackType

TEXT_LIMIT = 1 << 14
"""Characters of one text: a message, a traceback, the stacks of a rank, the end of its output."""

_NOTE_ROOM = 64


def clipped(text: str, limit: int = TEXT_LIMIT) -> str:
    """Return at most ``limit`` characters of ``text``: its beginning, a note with the number that was cut, and its end.

    A text that fits is returned as it is, so a text that was clipped before is not clipped again.
    """
    if len(text) <= limit:
        return text
    kept = max(0, limit - _NOTE_ROOM) // 2
    return f"{text[:kept]} [... {len(text) - 2 * kept:,} characters cut ...] {text[len(text) - kept :]}"


def message_of(error: BaseException, limit: int = TEXT_LIMIT) -> str:
    """Return the clipped message of ``error``, also where its ``__str__`` raises."""
    try:
        return clipped(str.__str__(str(error)), limit)
    except Exception as broken:  # noqa: BLE001 (an exception of the library under test; its type is reported)
        return f"(no message: {type(error).__name__}.__str__ raised {type(broken).__name__})"


def traceback_of(error: BaseException, trace: TracebackType | None, limit: int = TEXT_LIMIT) -> str:
    """Return the clipped traceback of ``error`` from ``trace`` on, with the exceptions that caused it.

    The causes are left out if the message is long: formatting a message of 200 MB takes seconds and gigabytes.
    """
    message = message_of(error, limit // 2)
    try:
        if len(message) < limit // 4:
            return clipped("".join(traceback.format_exception(type(error), error, trace)), limit)
        frames = clipped("".join(traceback.format_tb(trace)), limit // 2 - _NOTE_ROOM)
        return f"Traceback (most recent call last):\n{frames}{type(error).__name__}: {message}"
    except Exception as broken:  # noqa: BLE001 (as above)
        return f"(no traceback: formatting it raised {type(broken).__name__})"


def repr_of(value: object, limit: int = TEXT_LIMIT) -> str:
    """Return the clipped ``repr`` of ``value``, also where it raises."""
    try:
        return clipped(str.__str__(repr(value)), limit)
    except Exception as broken:  # noqa: BLE001 (as above)
        return f"(no text: {type(value).__name__}.__repr__ raised {type(broken).__name__})"
