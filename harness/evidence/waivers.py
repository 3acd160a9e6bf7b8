"""Waivers: requirements that are known to fail in some runs, with an issue, a reason and a date of expiry.

A file of waivers is TOML, for ``iris-harness certify --waivers FILE``:

    [[waiver]]
    requirement = "RMA-PUT-001"
    implementation = "iris"           # the runs that it is for: the package under test,
    version = "0.3.1"                 # and optionally its version,
    device = "rocm"                   # the device
    arch = "gfx950"                   # and the architecture
    issue = "https://example.org/issues/12"
    reason = "the compiler reorders the store, mended in its next release"
    expires = 2027-01-31              # the last day on which it is valid

The run records the content, so that each reader derives the same verdicts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from harness.errors import UsageError
from harness.evidence.entries import read_entries
from harness.evidence.records import Run

FILE = "waivers.toml"
"""Name of the copy next to the evidence, and of a certificate's member."""


@dataclass(frozen=True)
class Waiver:
    """A waiver of one requirement. ``None``: it is for any version, device or architecture. ``expires``: ISO 8601."""

    requirement: str
    implementation: str
    issue: str
    reason: str
    expires: str
    version: str | None = None
    device: str | None = None
    arch: str | None = None

    def to_json(self) -> dict[str, str]:
        """Return the waiver as plain data, without what is None."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def expired(self, run: Run) -> bool:
        """Return whether it had expired on the day in UTC on which the run started."""
        return self.expires < run.day

    def mismatch(self, run: Run) -> str | None:
        """Return a clause that states for which other runs it is; None if it is for this one."""
        under_test = run.implementation
        actual = {
            "implementation": under_test["name"],
            "version": under_test.get("version"),
            "device": run.device,
            "arch": run.arch,
        }
        for name, value in actual.items():
            wanted = getattr(self, name)
            if wanted is not None and wanted != value:
                return f"it is for {name} {wanted:.60}, and the run has {value or 'none'!s:.60}"
        return None


def read_waivers(content: bytes, name: str) -> tuple[Waiver, ...]:
    """Return the waivers in a file's ``content``; UsageError, which begins with ``name``, for the first mistake."""
    return read_entries(content, name, "waiver", Waiver, "requirement")


def of_run(run: Run) -> tuple[Waiver, ...]:
    """Return the waivers that a run has recorded, in the form that the schema checks."""
    return tuple(Waiver(**each) for each in (run.waivers or {}).get("entries", []))


def problems_with(content: bytes | None, runs: Sequence[Run]) -> Iterator[str]:
    """Yield a sentence for each difference between a file of waivers (None: there is none) and what runs recorded."""
    for run in runs:
        if content is None:
            if run.waivers is not None:
                yield f"the run is recorded with waivers, and {FILE} is missing"
        elif run.waivers is None:
            yield f"{FILE} was added: the run is recorded without waivers"
        elif hashlib.sha256(content).hexdigest() != run.waivers.get("sha256"):
            yield f"{FILE} is not the file that the run is recorded with: its digest differs"
        else:
            try:
                entries = [waiver.to_json() for waiver in read_waivers(content, FILE)]
            except UsageError as error:
                yield str(error)
                continue
            if entries != list(run.waivers.get("entries", [])):
                yield f"{FILE} has other waivers than the run is recorded with"
