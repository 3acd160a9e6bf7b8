"""Comparison of the requirements in evidence with the table of the installed suite."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from harness.errors import UsageError
from harness.evidence.environment import folder_of, sources_of
from harness.evidence.evidence import Evidence
from harness.evidence.records import EXTENDED
from harness.evidence.table import read_table

SUITE, TABLE, FOLDER = "conformance", "requirements.toml", "mustpass"
_NAMED = 3


def differences(evidence: Evidence) -> Iterator[str]:
    """Yield one sentence for each difference between a plan and the installed suite.

    Only a run of the same sources can be compared: a run of another version, a run without a plan, and an installation
    without the suite yield nothing. The suite is located, not imported.
    """
    recorded = {_recorded(run.harness) for run in evidence.runs}
    planned = {name for name, requirement in evidence.statements.items() if requirement.table is None}
    if not planned or recorded == {None} or recorded != {sources_of(SUITE)}:
        return  # without a plan, or only the user's own tests, which have their own table; or of another suite
    table = _installed(evidence.api)
    if lacking := sorted(table - planned):
        yield f"the plan lacks requirements of the suite: {_listed(lacking)}"
    if foreign := sorted(planned - table):
        yield f"the plan has requirements that the suite does not have: {_listed(foreign)}"


def installed_table() -> Path:
    """Return the path of the installed suite's table of requirements. UsageError if the suite is not installed."""
    folder = folder_of(SUITE)
    if folder is None:
        raise UsageError(f"the suite is not installed: the package {SUITE} is missing")
    return folder / TABLE


def installed_list(level: str) -> Path:
    """Return the path of the installed suite's list of the groups of a level. UsageError if the suite is not installed,
    or ``level`` cannot be the name of one."""
    if not level.isidentifier():
        raise UsageError(f"expected the name of a level, such as core, got {level!r:.60}")
    return installed_table().parent / FOLDER / f"{level}.toml"


def _recorded(harness: object) -> str | None:
    """Return the hash of the suite's sources in a run record, whose form the schema has checked."""
    packages = harness.get("packages", {}) if isinstance(harness, dict) else {}
    digest: str | None = packages.get(SUITE, {}).get("sha256")
    return digest


def _installed(api: str) -> set[str]:
    """Return the ids that the table of the installed suite has for an API."""
    table = read_table(installed_table())
    return {name for name, requirement in table.items() if api == EXTENDED or requirement.api == api}


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
