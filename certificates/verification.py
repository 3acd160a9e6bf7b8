"""Verification of a certificate: everything that can be checked without running anything, on untrusted bytes."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from certificates import archive, documents, figures, integrity, listings, observations
from certificates.archive import EVIDENCE, MANIFEST, MUSTPASS, NEEDED, REQUIREMENTS, WAIVERS
from certificates.integrity import Opened
from certificates.keys import PublicKey
from certificates.sharpness import SHARPNESS
from harness.errors import UsageError
from harness.evidence import Case, Evidence, Verdict, parse, read, read_table, sources_of, waivers
from harness.evidence.mustpass import parse_list
from harness.evidence.suite import SUITE, installed_list, installed_table
from harness.evidence.withdrawn import withdrawn
from harness.isa.listed import ListedKernel

QUARANTINE = "the run is recorded with a quarantine, which no run of a certificate may have"
MAX_EVIDENCE = 1 << 30
"""Bytes of the longest evidence file."""
JUDGING = ("harness", "fixtures")
"""Packages besides the suite that determine the verdict of a case."""


@dataclass(frozen=True)
class Verification:
    """The result of a verification.

    ``problems``: one sentence for each check that failed. ``unproven``: what the checks could not show. ``evidence`` is
    None if it could not be read, and ``manifest`` is empty if that could not be. ``key_id`` is empty for an unsigned
    certificate, and ``signed`` is true if the signature is that of the key that the caller named. ``suite_compared`` is
    true if the table of requirements and the list of groups were compared with those of the installed suite.
    ``other_sources``: packages of the harness that judge, whose recorded sources are not those installed here.
    ``judged_again``: how many cases that passed were judged again from their listings or outcomes.
    """

    problems: tuple[str, ...]
    unproven: tuple[str, ...]
    evidence: Evidence | None
    manifest: Mapping[str, Any]
    key_id: str
    signed: bool
    suite_compared: bool
    members: Mapping[str, bytes]
    other_sources: tuple[str, ...] = ()
    judged_again: int = 0

    @property
    def version(self) -> str:
        """The version of iris-harness that the run is recorded with."""
        runs = self.evidence.runs if self.evidence is not None else []
        return str(runs[0].harness.get("version")) if runs else "unknown"

    def write_evidence(self, folder: Path) -> Path:
        """Write the evidence that was checked into ``folder``, and return the file."""
        file = folder / "evidence.jsonl"
        file.write_bytes(archive.expanded(self.members[EVIDENCE], MAX_EVIDENCE))
        return file


class Judge(Protocol):
    """The suite's rules for recorded cases: the module ``conformance.recorded`` has them."""

    def contradictions(
        self, case: Case, kernels: Sequence[ListedKernel], evidence: Evidence, *, same_suite: bool
    ) -> Iterable[str]:
        """Return a clause for each thing that the requirement of a case does not allow, if the case passed."""
        ...

    def rejudged(self, case: Case, evidence: Evidence, *, same_suite: bool) -> bool:
        """Return whether there is a rule for the requirement of a case."""
        ...


def verify(path: Path, key: PublicKey | None, now: datetime, judge: Judge) -> Verification:
    """Check the certificate at ``path`` at the time ``now``. Without ``key`` its signature is not checked. ``judge``
    judges recorded cases again.

    Raises UsageError if the file cannot be read or is not a certificate at all.
    """
    data = archive.read_archive(path)
    try:
        certificate = integrity.opened(data, key)
    except ValueError as error:
        raise UsageError(f"{path} {error}") from None
    return _Checks(certificate, now, judge).result(unchecked=key is None)


class _Checks:
    """Compares what the members of a certificate state, and collects the problems of all checks."""

    def __init__(self, certificate: Opened, now: datetime, judge: Judge) -> None:
        self.certificate = certificate
        self.members = certificate.members
        self.problems = list(certificate.problems)
        self.now = now
        self.judge = judge
        self.suite_compared = False

    def result(self, *, unchecked: bool) -> Verification:
        """Run all checks. ``unchecked``: the caller named no key."""
        problems = self.problems
        manifest = self._document(MANIFEST)
        evidence = self._evidence()
        again = 0
        if evidence is not None:
            problems += [f"evidence: {problem}" for problem in evidence.problems]
            problems += observations.problems(evidence)
            problems += figures.problems(evidence)
            problems += self._requirements(evidence)
            problems += self._list(evidence)
            problems += _withdrawn(evidence, manifest)
            problems += [QUARANTINE for run in evidence.runs if run.quarantine is not None]
            problems += waivers.problems_with(self.members.get(WAIVERS), evidence.runs)
            same = self.suite_compared
            judged_again = partial(self.judge.contradictions, evidence=evidence, same_suite=same)
            problems += listings.problems(evidence, self.members, judged_again)
            passed = [case for case in evidence.cases if case.verdict is Verdict.PASS]
            again = sum(self.judge.rejudged(case, evidence, same_suite=same) for case in passed)
            problems += self._derived(evidence, manifest)
        if manifest:
            problems += observations.dates(manifest, self.now)
        key_id = self.certificate.key_id
        return Verification(
            problems=tuple(dict.fromkeys(problems)),
            unproven=(_about_signature(key_id),) if unchecked else (),
            evidence=evidence,
            manifest=manifest,
            key_id=key_id,
            signed=self.certificate.signed,
            suite_compared=self.suite_compared,
            members=self.members,
            other_sources=_other_sources(evidence) if evidence is not None else (),
            judged_again=again,
        )

    def _document(self, name: str) -> Mapping[str, Any]:
        content = self.members.get(name)
        if content is None:
            return {}
        try:
            return parse(content)
        except ValueError as error:
            self.problems.append(f"{name} {error}")
            return {}

    def _evidence(self) -> Evidence | None:
        content = self.members.get(EVIDENCE)
        if content is None:
            return None
        with tempfile.TemporaryDirectory(prefix="iris-certificate-") as folder:
            file = Path(folder, "evidence.jsonl")
            try:
                file.write_bytes(archive.expanded(content, MAX_EVIDENCE))
                return read(file)
            except ValueError as error:  # also a UsageError, which names the temporary folder
                self.problems.append(f"{EVIDENCE} {str(error).replace(f'{folder}/', '')}")
                return None

    def _requirements(self, evidence: Evidence) -> Iterator[str]:
        """Yield the differences between the plan and the table, and between the table and the installed suite's."""
        content = self.members.get(REQUIREMENTS)
        if content is None:
            return
        self.suite_compared = _is_installed(evidence)
        if self.suite_compared and installed_table().read_bytes() != content:
            yield f"{REQUIREMENTS} is not that of the suite that the evidence names, which is installed here"
        with tempfile.TemporaryDirectory(prefix="iris-certificate-") as folder:
            file = Path(folder, REQUIREMENTS)
            file.write_bytes(content)
            try:
                table = read_table(file)
            except UsageError as error:
                yield str(error).replace(f"{folder}/", "")
                return
        yield from observations.differences(evidence, table)

    def _list(self, evidence: Evidence) -> Iterator[str]:
        """Yield the differences between the run and the list of groups for its level and profile, and between that list
        and the installed suite's."""
        content = self.members.get(MUSTPASS)
        if not documents.for_a_level(evidence):
            if content is not None:
                yield f"the certificate has {MUSTPASS}, and the run is recorded without a hardware profile"
            return
        if content is None:
            profile = evidence.runs[0].profile
            yield f"the certificate lacks {MUSTPASS}, and the run is recorded for the profile {profile:.60}"
            return
        try:
            if self.suite_compared:
                installed = installed_list(evidence.runs[0].level)
                if not installed.is_file() or installed.read_bytes() != content:
                    yield f"{MUSTPASS} is not that of the suite that the evidence names, which is installed here"
            yield from parse_list(content, MUSTPASS).problems(evidence)
        except UsageError as error:
            yield str(error)

    def _derived(self, evidence: Evidence, manifest: Mapping[str, Any]) -> Iterator[str]:
        """Yield the differences between the documents and what the evidence gives."""
        if len(evidence.runs) != 1 or len(evidence.ends) != 1:
            yield f"evidence: has {len(evidence.runs)} runs and {len(evidence.ends)} ends instead of one of each"
            return
        if manifest.get("format") != documents.FORMAT:
            yield f"{MANIFEST} has the format {manifest.get('format')!r:.20}, and this version reads {documents.FORMAT}"
            return
        created, version = str(manifest.get("created")), str(manifest.get("harness"))
        figure = dict(SHARPNESS) if self.suite_compared else manifest.get("sharpness")
        for name, expected in documents.made_from(evidence, created, version, figure).items():
            right = documents.to_bytes(expected)
            differences = list(_compared(name, self._document(name), json.loads(right)))
            if not differences and self.members.get(name, right) != right:
                differences = [f"{name} is not in the form that iris-harness writes"]
            yield from differences
        if self.certificate.statement and all(name in self.members for name in NEEDED):
            yield from _compared(
                "the statement", self.certificate.statement, documents.statement_of(evidence, self.members)
            )


def _is_installed(evidence: Evidence) -> bool:
    """Return whether the installed suite is the one whose sources the evidence names."""
    recorded = {run.harness.get("packages", {}).get(SUITE, {}).get("sha256") for run in evidence.runs}
    return recorded == {sources_of(SUITE)} and recorded != {None}


def _other_sources(evidence: Evidence) -> tuple[str, ...]:
    """Return the packages that judge, whose sources the evidence does not name as they are installed here."""
    recorded = [run.harness.get("packages", {}) for run in evidence.runs]
    return tuple(
        name
        for name in JUDGING
        if {packages.get(name, {}).get("sha256") for packages in recorded} != {sources_of(name)}
    )


def _withdrawn(evidence: Evidence, manifest: Mapping[str, Any]) -> Iterator[str]:
    versions = [*(run.harness.get("version") for run in evidence.runs), manifest.get("harness")]
    for version in dict.fromkeys(str(version) for version in versions):
        if release := withdrawn(version):
            yield f"a withdrawn release made the certificate: {release}"


def _about_signature(key_id: str) -> str:
    if not key_id:
        return "who made the certificate: it is not signed, and any person could have made it"
    return (
        f"who made the certificate: it names the key {key_id:.80}, and without --key its signature was not checked. Any"
        " person who has the file could have made all of it"
    )


def _compared(name: str, stated: Mapping[str, Any], expected: Mapping[str, Any]) -> Iterator[str]:
    for key in dict.fromkeys((*expected, *stated)):
        value, right = stated.get(key), expected.get(key)
        if value == right:
            continue
        if isinstance(value, dict) and isinstance(right, dict):
            yield from _compared(f"{name}, {key}", value, right)
        else:
            yield f"{name}: {key} is {_short(value)}, and the evidence gives {_short(right)}"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:80]}..."
