"""``iris-harness verify``: check a certificate, and state what it proves and what it does not."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime, timezone
from pathlib import Path

import click

import certificates
from certificates import Verification, sharpness
from certificates.documents import FAILED, PASSED, for_a_level
from conformance import recorded
from harness import devices
from harness.evidence import APART, Evidence, Verdict
from harness.printable import plain

PARTIAL, UNSUPPORTED, WAIVED = 3, 4, 5
"""Exit statuses with the meaning that they have for certify."""

CASES_NOT_DRAWN = "that no case of a group was left out: verify --cases draws them again, with the suite installed"
_PATH = click.Path(path_type=Path)
_NEVER_PROVEN = (
    "that the run took place on this device: no part of the hardware signs, so the signer's word stands for it",
    "that the observations are true: the signer's machine recorded compared elements, accesses, outcomes and telemetry",
    "the dates: they are those of the signer's clock",
    "report.html, junit.xml and logs: they are signed and not derived again; iris-harness report renders the evidence",
)


@click.command("verify", short_help="Check a certificate.")
@click.argument("certificate", type=_PATH)
@click.option("--key", type=_PATH, default=None, help="Public key of the signer whom you trust.")
@click.option("--rerun", "count", type=click.IntRange(min=1), help="Also run this many random recorded cases again.")
@click.option("--cases", "redraw", is_flag=True, help="Also draw all cases again: no group that passed lacks one.")
@click.option("--implementation", default=None, help="With --rerun: confirms the package that the certificate names.")
@click.option("--no-waivers", is_flag=True, help="Exit with 1 if a requirement failed, also if it is waived.")
def command(
    certificate: Path, key: Path | None, count: int | None, redraw: bool, implementation: str | None, no_waivers: bool
) -> int:
    """Check CERTIFICATE, a file of certify --sign or bundle, and print what it proves and what it does not.

    Needs neither torch nor Triton, and runs nothing of what the certificate holds. With --rerun, tests of the installed
    suite run recorded cases on this machine, which must have the device and the library. With --cases, they draw all
    cases again, without a device, in some minutes.

    \b
    Exit status: 0  genuine: signed with --key, nothing contradicts it, and a complete run of its level passed
                 1  a check failed, all of which are printed; or it states that the run did not pass
                 2  the file or the key cannot be read
                 3  no check failed, but the signature was not checked, the run was partial or is for no level, or the
                    installed suite or judge is another one, so that they were not compared
                 4  genuine, but the library does not support every requirement
                 5  genuine, but requirements failed that are waived
    """
    trusted = certificates.load_public(key) if key is not None else None
    if sys.stderr.isatty():
        click.echo("Checking; a certificate of a whole level takes some seconds.", err=True)
    checked = certificates.verify(certificate, trusted, datetime.now(timezone.utc), recorded)
    for line in _lines(checked, redraw):
        click.secho(plain(line), fg="red" if checked.problems else None)
    status = _status(checked)
    if no_waivers and checked.evidence is not None and checked.evidence.without_waivers().verdict().red:
        status = 1
    if checked.problems or checked.evidence is None:
        return status
    if redraw:
        from command_line.suite import redrawn  # needs the suite, torch and Triton

        status = redrawn.cases(checked) or status
    if count is None:
        return status
    from command_line.suite import rerun  # needs the suite, torch and Triton

    again = rerun.cases(checked, count, implementation)
    return again or status


def _status(checked: Verification) -> int:
    result = checked.manifest.get("result")
    if checked.problems or checked.evidence is None or result == FAILED:
        return 1
    compared = checked.suite_compared and not checked.other_sources
    complete = checked.evidence.complete and for_a_level(checked.evidence) and compared
    if not checked.signed or not complete:
        return PARTIAL
    if result == PASSED:
        return 0
    return WAIVED if checked.evidence.verdict() is Verdict.WAIVED else UNSUPPORTED


def _lines(checked: Verification, redraw: bool) -> Iterator[str]:
    evidence, manifest = checked.evidence, checked.manifest
    if evidence is not None and evidence.runs:
        yield from _subject(evidence)
    if checked.problems:
        yield f"REJECTED: {len(checked.problems)} checks failed"
        yield from (f"  - {problem}" for problem in checked.problems)
        return
    assert evidence is not None  # sanity check: without evidence there are problems
    yield f"No check failed. The run's result is {manifest['result']}."
    if figure := sharpness.in_words(manifest.get("sharpness")):
        yield f"By the figure of the suite that made it, {figure}."
    if waived := evidence.waived():
        yield f"Passed with {len(waived)} waivers:" if len(waived) > 1 else "Passed with 1 waiver:"
        yield from (f"  - {name}: {each.reason} ({each.issue}, until {each.expires})" for name, each in waived.items())
    yield "Proven:"
    yield from (f"  - {line}" for line in _proven(checked, evidence))
    yield "Not proven:"
    yield from (f"  - {line}" for line in (*checked.unproven, *unproven(checked, evidence), *_NEVER_PROVEN))
    yield from [] if redraw else [f"  - {CASES_NOT_DRAWN}"]


def _subject(evidence: Evidence) -> Iterator[str]:
    run = evidence.runs[0]
    under_test = run.implementation
    version = f" {under_test['version']}" if under_test.get("version") else ""
    commit = f", commit {under_test['commit']}" if under_test.get("commit") else ""
    ranks = ", ".join(map(str, run.ranks))
    yield f"{under_test['name']}{version}{commit}"
    yield f"on {run.device} ({run.arch}) with {ranks} ranks, {run.started}"
    if for_a_level(evidence):
        yield f"level {run.level} on {run.profile}, API {evidence.api}"
    else:
        yield f"for no level: the run has the cases of level {run.level}, and no hardware profile"


def _proven(checked: Verification, evidence: Evidence) -> Iterator[str]:
    if checked.signed:
        yield f"the owner of the key {checked.key_id} signed exactly these bytes"
    results = evidence.requirements().values()
    passed = sum(result.verdict is Verdict.PASS for result in results)
    yield f"{passed} of {len(results)} requirements passed, by the verdicts of {len(evidence.cases):,} recorded cases"
    yield f"the verdicts are those of all {len(evidence.plan):,} planned groups, and the plan has the whole table"
    if for_a_level(evidence) and checked.suite_compared and evidence.complete:
        run = evidence.runs[0]
        yield f"the plan has every group that level {run.level} has on {run.profile} for the API {evidence.api}"
    if apart := sum(case.judge == APART for case in evidence.cases):
        yield f"by these records, {apart:,} cases were compared in processes that the library never entered"
    yield f"the recorded figures of {len(evidence.kernels):,} kernels are those of their listings"
    if checked.judged_again:
        yield (
            f"{checked.judged_again:,} cases that passed were judged again, from the listings of their kernels or from"
            " their outcomes"
        )


def unproven(checked: Verification, evidence: Evidence) -> Iterator[str]:
    """Yield what this certificate does not prove, and another one could."""
    if not checked.suite_compared:
        yield (
            "that requirements and groups are those of a published suite: another version made the certificate"
            f" ({checked.version}) than the one installed here"
        )
        yield "requirements on compiled code other than the width of remote accesses: another version wrote their cases"
    elif checked.other_sources:
        yield (
            f"that the judge is that of a published release: the recorded sources of {', '.join(checked.other_sources)}"
            " are not those installed here"
        )
    if not for_a_level(evidence):
        yield "that the run has the groups of a level: it has no hardware profile, for which the suite would list them"
    missing = evidence.missing()
    if missing:
        yield f"{len(missing)} requirements or groups that the run left out, the first is {missing[0]}"
    if past := [name for name, each in evidence.waived().items() if each.expires < date.today().isoformat()]:
        yield f"that waived requirements are still known to fail: waivers have expired since, of {', '.join(past)}"
    if own := [case.requirement for case in evidence.cases if case.judge != APART]:
        areas = Counter(name.partition("-")[0] for name in set(own))
        named = ", ".join(f"{count} of {area}" for area, count in sorted(areas.items()))
        yield (
            f"that the library did not change the results of {len(own):,} cases that were compared in its own process,"
            f" of {len(set(own))} requirements ({named})"
        )
    if any(case.judge == APART for case in evidence.cases):
        yield (
            "what the library's process counted, listed and recorded for the judge (instructions, code, accesses"
            " for the race detector), and what it answered about its own objects"
        )
    if evidence.runs and evidence.runs[0].device in _gpus() and any(case.judge == APART for case in evidence.cases):
        yield (
            "that kernels moved the data of the cases that were compared apart, and that their launches took place and"
            " ended before the judge read the results: a GPU does not count accesses, and the library's process chose"
            " the memory that it exported to the judge, recorded its launches, and reported when its device was idle"
        )
    if for_a_level(evidence) and evidence.runs[0].device in _gpus() and not evidence.hardware:
        yield f"that the GPUs are those of {evidence.runs[0].profile}: the evidence has no record of them"
    marks = [mark for record in evidence.telemetry for mark in record.marks]
    if marks:
        yield f"that the hardware was sound: telemetry has {len(marks)} marks, the first is {marks[0]}"
    changed = [name for name, state in _sources(evidence) if str(state.get("commit") or "").endswith("+changes")]
    if changed:
        yield f"the sources of {', '.join(changed)}: they were edited after their commit"


def _gpus() -> set[str]:
    return {kind.name for kind in devices.gpu_kinds()}


def _sources(evidence: Evidence) -> Iterator[tuple[str, dict[str, object]]]:
    run = evidence.runs[0]
    yield run.implementation["name"], dict(run.implementation)
    for name, state in run.harness.get("packages", {}).items():
        yield name, dict(state)
