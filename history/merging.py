"""Several histories in one, and a history as JSON or CSV."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from history.database import TABLES, VERSION, History

_VERDICTS = (
    "night", "leg", "node", "device", "arch", "ranks", "mode", "level", "implementation", "version", "library_commit",
    "harness", "triton", "name", "requirement", "verdict", "cases", "seconds", "failing_case", "repeats", "failed",
)  # fmt: skip


def merge(into: History, other: Path) -> int:
    """Add the runs of the history ``other`` that ``into`` lacks, and return their number.

    A run that had not ended when it was added to ``into``, and has more records in ``other``, is replaced. Raises
    UsageError, and adds nothing, if both have different files of one run, or if ``other`` is not a history.
    """
    with History(other):
        pass  # checks its version, and migrates it
    if into.path.resolve() == other.resolve():
        raise UsageError(f"{other} is the history itself: name another one")
    with into.attached(other):
        differing = into.rows(
            "SELECT run.id FROM run JOIN other.run AS theirs ON theirs.id = run.id"
            " WHERE theirs.digest != run.digest AND run.finished IS NOT NULL AND theirs.finished IS NOT NULL"
        )
        if differing:
            raise UsageError(
                f"{other} and {into.path} have different files of the run {differing[0]['id']}: one was edited, and"
                " nothing was added"
            )
        into.execute(
            "DELETE FROM run WHERE id IN (SELECT run.id FROM run JOIN other.run AS theirs ON theirs.id = run.id"
            " WHERE theirs.digest != run.digest AND run.finished IS NULL"
            " AND (theirs.finished IS NOT NULL OR theirs.records > run.records))"
        )
        fresh = [row["id"] for row in into.rows("SELECT id FROM other.run WHERE id NOT IN (SELECT id FROM main.run)")]
        for identity in fresh:
            for table in TABLES:
                key = "id" if table == "run" else "run"
                into.execute(f"INSERT INTO main.{table} SELECT * FROM other.{table} WHERE {key} = ?", identity)
    return len(fresh)


def export_json(history: History) -> str:
    """Return all tables as one JSON object."""
    tables: dict[str, Any] = {"schema": VERSION}
    for table in TABLES:
        tables[table] = [dict(row) for row in history.rows(f"SELECT * FROM {table}")]
    return json.dumps(tables, indent=1)


def export_csv(history: History) -> str:
    """Return a table with a line for each verdict, and the columns of its run."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(_VERDICTS)
    for row in history.rows(
        f"SELECT {', '.join(_VERDICTS)} FROM verdict JOIN run ON run.id = verdict.run ORDER BY started, name"
    ):
        writer.writerow([_harmless(value) for value in row])
    return text.getvalue()


def _harmless(value: Any) -> Any:
    """Return a value that a spreadsheet does not execute as a formula."""
    return (
        f"'{value}"
        if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) and len(value) > 1
        else value
    )
