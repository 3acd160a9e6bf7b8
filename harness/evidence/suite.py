"""Evidence of the installed suite: whether its table of requirements is the suite's."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from harness.evidence.environment import folder_of, sources_of
from harness.evidence.evidence import Evidence

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SUITE, TABLE = "conformance", "requirements.toml"
_NAMED = 3


def differences(evidence: Evidence) -> Iterator[str]:
    """What a plan contradicts of the installed suite, one sentence each.

    Only a run of the same sources can be compared: nothing is said of another version, of a run that planned nothing,
    or where no suite is installed. The suite is located, not imported.
    """
    recorded = {_recorded(run.harness) for run in evidence.runs}
    if not evidence.statements or recorded == {None} or recorded != {sources_of(SUITE)}:
        return
    table = _installed()
    planned = set(evidence.statements)
    if lacking := sorted(table - planned):
        yield f"the plan lacks requirements of the suite: {_listed(lacking)}"
    if foreign := sorted(planned - table):
        yield f"the plan has requirements that the suite does not have: {_listed(foreign)}"


def _recorded(harness: object) -> str | None:
    """The hash of the suite's sources in a run record, whose form the schema has checked."""
    packages = harness.get("packages", {}) if isinstance(harness, dict) else {}
    found: str | None = packages.get(SUITE, {}).get("sha256")
    return found


def _installed() -> set[str]:
    """The ids in the table of the installed suite."""
    folder = folder_of(SUITE)
    assert folder is not None  # sanity check: it has sources
    plain = tomllib.loads((folder / TABLE).read_text(encoding="utf-8"))
    return {entry["id"] for entry in plain["requirement"]}


def _listed(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
