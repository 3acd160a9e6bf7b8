"""A mutant: one small change of a text, with an id that stays the same from run to run."""

from __future__ import annotations

from dataclasses import dataclass

LISTED, REPORTED, SOURCE, BINARY, HARNESS = "listed", "reported", "source", "binary", "harness"
KINDS = (LISTED, REPORTED, SOURCE, BINARY, HARNESS)
"""Kinds of mutants: listed defects of the library, defects from public reports, generated changes of the library's
source, of the compiled machine code, and of the harness itself."""


@dataclass(frozen=True)
class Mutant:
    """Replacement of ``old`` by ``new`` at position ``start`` (characters) of a text.

    ``file`` is relative to the library, or to the project for a harness mutant; for a binary mutant it is the name of
    the kernel with the beginning of the SHA-256 of its listing. ``line`` and ``column`` are counted from 1.
    ``function`` is the function or class that contains the place. ``report`` is the public report of a defect, and
    ``chosen`` and ``ranks`` are the tests that should detect it, as in ``planting.Defect``.
    """

    id: str
    kind: str
    operator: str
    file: str
    line: int
    column: int
    start: int
    old: str
    new: str
    function: str = ""
    report: str = ""
    chosen: str = ""
    ranks: int = 2

    def applied(self, text: str) -> str:
        """Return the text with the change. LookupError if ``text`` does not hold ``old`` at that place."""
        end = self.start + len(self.old)
        if text[self.start : end] != self.old:
            raise LookupError(f"{self.id}: {self.file} no longer holds {self.old!r} at line {self.line}")
        return text[: self.start] + self.new + text[end:]

    def change(self) -> str:
        """Return the change in one line, for people."""
        old, new = (" ".join(text.split()) for text in (self.old, self.new))
        return f"{old} -> {new or '(nothing)'}"


def position(text: str, start: int) -> tuple[int, int]:
    """Return line and column, from 1, of a position in a text."""
    line = text.count("\n", 0, start) + 1
    return line, start - (text.rfind("\n", 0, start) + 1) + 1
