"""Quarantine: groups that are known to be flaky, with the measured rate. Their failures do not turn a run red.

A file is TOML, for ``pytest --quarantine FILE`` and ``iris-harness certify --quarantine FILE``:

    [[group]]
    group = "ORDER-LITMUS-001[ranks=4,test=mp]"
    failed = 3                        # how often it failed, as iris-harness quarantine verify measures
    runs = 200                        # in how many runs of the group
    issue = "https://example.org/issues/31"
    expires = 2027-01-31              # the last day on which it is valid

No run that a certificate is made of has one.
"""

from __future__ import annotations

from dataclasses import dataclass

from harness.evidence.entries import read_entries
from harness.evidence.records import Run


@dataclass(frozen=True)
class Quarantined:
    """A quarantined group, which failed in ``failed`` of ``runs`` runs. ``expires``: ISO 8601."""

    group: str
    failed: int
    runs: int
    issue: str
    expires: str

    def expired(self, day: str) -> bool:
        """Return whether it has expired on a day, such as 2026-11-24."""
        return self.expires < day


def read_quarantine(content: bytes, name: str) -> tuple[Quarantined, ...]:
    """Return the entries in a file's ``content``; UsageError, which begins with ``name``, for the first mistake."""
    return read_entries(content, name, "group", Quarantined, "group")


def of_run(run: Run) -> dict[str, Quarantined]:
    """Return the entries that a run has recorded and that had not expired when it started, by group."""
    entries = [Quarantined(**each) for each in (run.quarantine or {}).get("entries", [])]
    return {entry.group: entry for entry in entries if not entry.expired(run.day)}
