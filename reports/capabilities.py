"""The capabilities of the library: the table that certify, the report and ``iris-harness capabilities`` show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.evidence import MISSING, Requirement
from reports.text import cut, plain

PRESENT, UNKNOWN = "present", "unknown"
STYLES = {PRESENT: "green", MISSING: "cyan", UNKNOWN: "yellow"}

_IDS_SHOWN, _CHARACTERS = 2, 200


@dataclass(frozen=True)
class Capability:
    """One capability: ``state`` is present, missing or unknown; ``needed_by`` are the requirements that need it."""

    name: str
    state: str
    detail: str
    needed_by: tuple[str, ...]

    @property
    def users(self) -> str:
        """The first requirements that need it, and the number of the others."""
        rest = len(self.needed_by) - _IDS_SHOWN
        return ", ".join(self.needed_by[:_IDS_SHOWN]) + (f" and {rest} more" if rest > 0 else "")


@dataclass(frozen=True)
class Offered:
    """Capabilities of a library. ``problems``: what it declares and does not have."""

    rows: tuple[Capability, ...]
    problems: tuple[str, ...]

    @property
    def sentence(self) -> str:
        """The number of capabilities in each state."""
        counts = Counter(row.state for row in self.rows)
        parts = [f"{counts[PRESENT]} of {len(self.rows)} capabilities present", f"{counts[MISSING]} missing"]
        return ", ".join([*parts, *([f"{counts[UNKNOWN]} known only to a run"] if counts[UNKNOWN] else [])])


def offered(states: Mapping[str, str], requirements: Iterable[Requirement], problems: Iterable[str] = ()) -> Offered:
    """Return the table for ``states``, a sentence for each capability; see ``harness.evidence.Plan``."""
    needs = {requirement.id: requirement.capabilities for requirement in requirements}
    rows = []
    for name, sentence in sorted(states.items()):
        state, _, detail = sentence.partition(": ")
        needed_by = tuple(identity for identity, needed in needs.items() if name in needed)
        rows.append(Capability(name, state, detail, needed_by))
    return Offered(tuple(rows), tuple(problems))


def print_capabilities(table: Offered, console: Console, *, everything: bool = False) -> None:
    """Print the capabilities that are missing or unknown, all with ``everything``; then what is declared wrongly."""
    rows = [row for row in table.rows if everything or row.state != PRESENT]
    if rows:
        grid = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("capability", "state", "needed by"):
            grid.add_column(column, overflow="fold")
        for row in rows:
            detail = f": {plain(cut(row.detail, _CHARACTERS))}" if row.detail else ""
            state = Text.assemble((plain(row.state), STYLES.get(row.state, "")), (detail, "dim"))
            grid.add_row(Text(plain(row.name)), state, Text(plain(row.users), style="dim"))
        console.print(grid)
    for problem in table.problems:
        console.print(Text(plain(problem), style="bold red"))
