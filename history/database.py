"""The SQLite file of a history: its tables, its version, and how it is opened."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness.errors import UsageError

APPLICATION = 0x49524953
"""SQLite's ``application_id`` of a history."""

WAIT = 30.0
"""Seconds to wait for another process that writes to the file."""

_TABLES = """
CREATE TABLE run (
    id TEXT PRIMARY KEY, kind TEXT NOT NULL CHECK (kind IN ('suite', 'bench', 'soak')), digest TEXT NOT NULL,
    records INTEGER NOT NULL, night TEXT NOT NULL, leg TEXT NOT NULL, node TEXT NOT NULL,
    started TEXT NOT NULL, finished TEXT,
    device TEXT NOT NULL, arch TEXT NOT NULL, ranks TEXT NOT NULL, mode TEXT NOT NULL, level TEXT NOT NULL,
    implementation TEXT NOT NULL, version TEXT, library_commit TEXT, harness TEXT, harness_commit TEXT,
    triton TEXT, torch TEXT, driver TEXT, gpus TEXT NOT NULL, seed TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX run_of_night ON run (night);
CREATE TABLE verdict (
    run TEXT NOT NULL REFERENCES run ON DELETE CASCADE, name TEXT NOT NULL, requirement TEXT NOT NULL,
    verdict TEXT NOT NULL, cases INTEGER NOT NULL, seconds REAL, failing_case TEXT, message TEXT NOT NULL,
    repeats INTEGER, failed INTEGER, PRIMARY KEY (run, name)
) WITHOUT ROWID;
CREATE INDEX verdict_of_group ON verdict (name);
CREATE TABLE kernel (
    run TEXT NOT NULL REFERENCES run ON DELETE CASCADE, name TEXT NOT NULL, kernel TEXT NOT NULL,
    variants INTEGER NOT NULL, instructions INTEGER, registers INTEGER, spills INTEGER, waits INTEGER,
    lds INTEGER, PRIMARY KEY (run, name, kernel)
) WITHOUT ROWID;
CREATE TABLE measure (
    run TEXT NOT NULL REFERENCES run ON DELETE CASCADE, metric TEXT NOT NULL, gpu TEXT NOT NULL, value REAL NOT NULL,
    low REAL, high REAL, samples INTEGER, unit TEXT NOT NULL, PRIMARY KEY (run, metric, gpu)
) WITHOUT ROWID;
CREATE INDEX measure_of_metric ON measure (metric);
CREATE TABLE mark (
    run TEXT NOT NULL REFERENCES run ON DELETE CASCADE, text TEXT NOT NULL, PRIMARY KEY (run, text)
) WITHOUT ROWID;
"""

MIGRATIONS: dict[int, str] = {1: _TABLES}
"""SQL that makes a file of version N - 1 one of version N."""

VERSION = max(MIGRATIONS)
"""Version of the tables. A reader refuses a later one."""

TABLES = ("run", "verdict", "kernel", "measure", "mark")


class History:
    """An open history. Use it as a context manager: leaving the block commits, an exception rolls back."""

    def __init__(self, path: Path, *, create: bool = False) -> None:
        """Open ``path``, and migrate a file of an earlier version.

        Raises UsageError, and changes nothing, for a file that is missing (unless ``create``), damaged, of another
        program, or of a later version.
        """
        self.path = path
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise UsageError(f"{path} is not a regular file: name the SQLite file of a history")
        if not path.exists() and not create:
            raise UsageError(f"there is no history at {path}: iris-harness history add makes one from evidence")
        if path.exists() and path.stat().st_size:
            self._check()
        try:
            self._connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=rwc", uri=True, timeout=WAIT)
        except sqlite3.Error as error:
            raise UsageError(f"{path} cannot be opened ({error}): name a file in a folder that you may write") from None
        self._connection.row_factory = sqlite3.Row
        try:
            self._prepare()
        except sqlite3.Error as error:
            self._connection.close()
            raise UsageError(f"{path} cannot be written ({error}): name another file") from None

    def rows(self, query: str, *values: Any) -> list[sqlite3.Row]:
        """Return all rows of a query."""
        with self._readable():
            return self._connection.execute(query, values).fetchall()

    def insert(self, table: str, rows: Sequence[dict[str, Any]]) -> None:
        """Insert rows, which all have the same columns, into one of ``TABLES``."""
        if not rows:
            return
        assert table in TABLES  # sanity check: it becomes part of a statement
        columns = list(rows[0])
        statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join(f':{name}' for name in columns)})"
        with self._readable():
            self._connection.executemany(statement, rows)

    def delete_run(self, identity: str) -> None:
        """Remove a run with everything that belongs to it."""
        self.execute("DELETE FROM run WHERE id = ?", identity)

    @contextlib.contextmanager
    def attached(self, other: Path) -> Iterator[None]:
        """Read another history's tables as ``other.TABLE`` in the body."""
        self._connection.execute("ATTACH DATABASE ? AS other", (f"{other.absolute().as_uri()}?mode=ro",))
        try:
            yield
            self._connection.commit()
        finally:
            self._connection.rollback()  # of what an exception left
            self._connection.execute("DETACH DATABASE other")

    def execute(self, statement: str, *values: Any) -> int:
        """Execute a statement, and return the number of rows that it changed."""
        with self._readable():
            return self._connection.execute(statement, values).rowcount

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        """Turn an error of SQLite into a UsageError."""
        try:
            yield
        except sqlite3.Error as error:
            raise UsageError(
                f"{self.path}: {error}: wait until no other program uses the history; if it is damaged, restore a copy"
            ) from None

    def __enter__(self) -> History:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            with self._readable():
                self._connection.commit()
        else:
            self._connection.rollback()
        self._connection.close()

    def _check(self) -> None:
        """Raise UsageError if the file is not a history of a version that can be read. Opens it for reading only."""
        try:
            connection = sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True, timeout=WAIT)
            try:
                [application], [version] = (
                    connection.execute(f"PRAGMA {name}").fetchone() for name in ("application_id", "user_version")
                )
            finally:
                connection.close()
        except sqlite3.Error as error:
            raise UsageError(f"{self.path} is not a history ({error}): name the SQLite file of one") from None
        if application != APPLICATION:
            raise UsageError(f"{self.path} is a database of another program: name the SQLite file of a history")
        if version > VERSION:
            raise UsageError(
                f"{self.path} has schema {version}, and this version of iris-harness reads up to {VERSION}: use the"
                " version that wrote it, or a newer one; the file was not changed"
            )

    def _prepare(self) -> None:
        self._connection.execute("PRAGMA foreign_keys = ON")
        [version] = self._connection.execute("PRAGMA user_version").fetchone()
        if version == VERSION:
            return
        self._connection.execute("PRAGMA journal_mode = WAL")
        steps = "".join(MIGRATIONS[number] for number in range(version + 1, VERSION + 1))
        stamp = f"PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"
        self._connection.executescript(f"BEGIN IMMEDIATE; {steps} {stamp} COMMIT;")
