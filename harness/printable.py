"""Untrusted text (of a kernel, a rank, an evidence file), made safe to show in a terminal, a browser or XML."""

from __future__ import annotations

import re

_UNPRINTABLE = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # control characters: a terminal executes them
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2060-\u206f"  # invisible
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
    "\u2028-\u202e"  # line separators, and characters that reverse the reading direction
    "\ud800-\udfff"  # surrogates: no encoding has them
    "]"
)
_WITHIN_LINES = {"\n": "\n", "\t": "\t"}


def plain(text: str, *, lines: bool = False) -> str:
    r"""Return ``text`` with every character that is invisible or acts on a terminal as its escape, such as ``\x1b``.

    The result is one line, unless ``lines`` keeps line feeds and tabs. Backslashes in ``text`` are not doubled, so that
    paths stay as they are.
    """
    kept = _WITHIN_LINES if lines else {}
    return _UNPRINTABLE.sub(lambda character: kept.get(character[0]) or _escape(character[0]), text)


def _escape(char: str) -> str:
    return {"\n": r"\n", "\r": r"\r", "\t": r"\t"}.get(char) or char.encode("unicode_escape", "surrogatepass").decode()
