"""Publish a run: write the report files, print the table, and compute the exit status."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

import reports
from command_line.kernel_listings import listings_of
from command_line.output import say
from harness.errors import UsageError
from harness.evidence import Evidence, Verdict
from harness.printable import plain
from reports import Benchmark

REPORT, JUNIT = "report.html", "junit.xml"
PARTIAL = 3
"""Exit status of a partial run: everything that ran passed, but some requirements were left out."""
WAIVED = 5
"""Exit status of a complete run whose only failures are waived or quarantined."""
UNSUPPORTED = 4
"""Exit status of a complete run in which everything that ran passed, of a library that does not support every
requirement."""

_NAMED = 3


def publish(evidence: Evidence, output: Path, console: Console, benchmarks: Sequence[Benchmark] = ()) -> int:
    """Write the report files, print the table and the path of the report, and return the exit status. ``benchmarks``
    are shown in the report.

    The status is 0 if every requirement passed; ``PARTIAL`` if everything that ran passed but requirements were left
    out; ``WAIVED`` if what failed is waived or quarantined; ``UNSUPPORTED`` if everything that ran passed
    but the library does not support every requirement; else 1.
    """
    complete = write_reports(evidence, output, console, benchmarks)
    missing = evidence.missing()
    if missing:
        more = f"; and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        say(f"partial: left out are {'; '.join(missing[:_NAMED])}{more}")
    verdict = evidence.verdict()
    if not complete or verdict.red or not evidence.groups:
        return 1
    if missing:
        return PARTIAL
    return {Verdict.PASS: 0, Verdict.UNSUPPORTED: UNSUPPORTED}.get(verdict, WAIVED)


def write_reports(evidence: Evidence, output: Path, console: Console, benchmarks: Sequence[Benchmark] = ()) -> bool:
    """Write the report files, print the table and the path of the report. Returns False, after the reason is printed,
    if a file could not be written."""
    # Files first: printing may fail, and a reader may close the pipe.
    listings = listings_of(evidence)
    files = {
        REPORT: partial(reports.write_html, evidence, listings=listings, benchmarks=benchmarks),
        JUNIT: partial(reports.write_junit, evidence),
    }
    complete = all([written(output / name, write) for name, write in files.items()])  # noqa: C419 - each is tried
    reports.print_table(reports.view_of(evidence), console)
    if complete:
        console.print(f"\nReport: {plain(str((output / REPORT).absolute()))}", markup=False, soft_wrap=True)
    return complete


def written(path: Path, write: Callable[[Path], None]) -> bool:
    """Return True if ``write`` wrote the file; otherwise print the reason and leave an earlier file in place."""
    try:
        write(path)
    except UsageError as error:
        say(str(error))
    except OSError as error:
        say(f"{path} could not be written: {error.strerror or error}")
    else:
        return True
    return False
