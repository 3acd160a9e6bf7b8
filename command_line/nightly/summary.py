"""The summary of a night: what ran, what failed, and what changed since the nights before."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from command_line.nightly.corpus import Replayed
from command_line.nightly.leg import LegResult
from command_line.nightly.night import Night
from command_line.nightly.soak import SoakResult
from harness.evidence import Verdict
from harness.files import write_whole
from harness.printable import plain
from history import Changes

PARTIAL = 3
_LISTED = 40
_ORDER = [verdict.value for verdict in Verdict]


@dataclass(frozen=True)
class Summary:
    """Everything that a night's report states. ``problems`` are about the night as a whole."""

    night: Night
    legs: Sequence[LegResult]
    corpus: Sequence[Replayed]
    soak: SoakResult | None
    added: Sequence[str]
    changes: Changes | None
    problems: Sequence[str] = ()

    @property
    def status(self) -> int:
        """The exit status: 1 if something failed or could not be checked; ``PARTIAL`` if all that ran passed, but a
        budget ended before the last group or case; else 0."""
        verdicts = [leg.verdict for leg in self.legs] + [case.verdict for case in self.corpus]
        verdicts += [self.soak.verdict] if self.soak is not None else []
        if self.problems or any(verdict.red and verdict is not Verdict.NOT_RUN for verdict in verdicts):
            return 1
        return PARTIAL if Verdict.NOT_RUN in verdicts else 0

    def lines(self) -> list[str]:
        """Return the summary as Markdown, line by line."""
        word = {0: "passed", PARTIAL: "passed as far as the budgets went"}.get(self.status, "red")
        lines = [f"# Night {self.night.name}: {word}", "", f"Seed {self.night.seed}, started {self.night.started}.", ""]
        lines += ["| leg | verdict | groups | time |", "| --- | --- | --- | --- |"]
        for leg in self.legs:
            seconds = f"{leg.attempts.used():.0f} s of {leg.budget:.0f} s"
            resumed = f", {len(leg.attempts.files)} attempts" if len(leg.attempts.files) > 1 else ""
            lines.append(f"| {leg.name} | {leg.verdict} | {_counts(leg)} | {seconds}{resumed} |")
        if self.soak is not None:
            lines.append(f"| soak | {self.soak.verdict} | {self.soak.words} | {self.soak.seconds:.0f} s |")
        for leg in self.legs:
            lines += [f"- {leg.name}: {problem}" for problem in leg.problems]
        lines += [f"- {problem}" for problem in self.problems]
        lines += [f"- soak: {problem}" for problem in (self.soak.problems if self.soak is not None else ())]
        lines += self._changes() + self._corpus()
        return [plain(line) for line in lines]

    def write(self) -> None:
        """Write ``night.md`` and ``summary.json`` into the night's folder."""
        write_whole(self.night.folder / "night.md", "\n".join([*self.lines(), ""]))
        write_whole(self.night.folder / "summary.json", json.dumps(self.to_json(), indent=1) + "\n")

    def to_json(self) -> dict[str, Any]:
        """Return the summary as plain data."""
        return {
            "schema": 1,
            "night": self.night.name,
            "seed": self.night.seed,
            "status": self.status,
            "legs": [
                {
                    "name": leg.name, "verdict": leg.verdict.value, "counts": dict(leg.counts),
                    "problems": [*leg.problems],
                    "seconds": round(leg.attempts.used(), 1), "attempts": len(leg.attempts.files),
                }
                for leg in self.legs
            ],
            "corpus": [{"id": each.id, "verdict": each.verdict.value, "mended": each.mended} for each in self.corpus],
            "added": [*self.added],
            "soak": self.soak.to_json() if self.soak is not None else None,
            "changes": {
                "failed": [entry.group for entry in self.changes.failed],
                "mended": [entry.group for entry in self.changes.mended],
                "still": [entry.group for entry in self.changes.still],
            } if self.changes is not None else None,
        }  # fmt: skip

    def _changes(self) -> list[str]:
        if self.changes is None:
            return []
        lines = ["", "## Since the nights before", "", f"{self.changes.headline}.", ""]
        for title, entries in (("new failure", self.changes.failed), ("mended", self.changes.mended),
                               ("failed before", self.changes.still)):  # fmt: skip
            lines += _limited(
                f"- {title}: {entry.group} ({entry.configuration}) {entry.message[:120]}" for entry in entries
            )
        commands = {case.id: case.repeat for leg in self.legs for case, _ in leg.failing()}
        for entry in self.changes.failed[:_LISTED]:
            if entry.case in commands:
                lines.append(f"- repeat {entry.group}: `{commands[entry.case]}`")
        return lines

    def _corpus(self) -> list[str]:
        lines = ["", "## Corpus", ""] if self.corpus or self.added else []
        for case in self.corpus:
            words = case.reason or f"{case.verdict}"
            if case.mended:
                words = f"mended: it passed in {case.passes} nights; {case.file.name} can be removed from the corpus"
            lines.append(f"- {case.id} of {case.group}: {words}")
        return lines + _limited(f"- added: {identity}" for identity in self.added)


def _counts(leg: LegResult) -> str:
    return ", ".join(f"{leg.counts[name]} {name}" for name in _ORDER if leg.counts[name]) or "none"


def _limited(lines: Iterable[str]) -> list[str]:
    listed = list(lines)
    more = [f"- and {len(listed) - _LISTED} more"] if len(listed) > _LISTED else []
    return listed[:_LISTED] + more
