"""Contradictions in evidence that a reader of the file accepts, and that a certificate shows."""

import hashlib
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from certificates import archive, listings, observations
from harness.evidence import Case, Difference, Evidence, Group, Kernel, Verdict, read
from harness.isa import Roots
from harness.isa.fingerprint import fingerprint
from tests.certificates import run
from tests.certificates.run import NARROW_HASH, WIDE_HASH
from tests.evidence import samples
from tests.isa import kernels


def problems_after(tmp_path, kind, number=0, **changes):
    """Return the problems of the run after a change of one record of a kind."""
    listed = run.records()
    at = [place for place, each in enumerate(listed) if isinstance(each, kind)][number]
    listed[at] = replace(listed[at], **changes)
    return list(observations.problems(read(samples.write(tmp_path / "evidence.jsonl", listed))))


def test_the_unchanged_run_has_none(tmp_path):
    assert problems_after(tmp_path, Case) == []


def test_verdicts_that_the_observations_do_not_give(tmp_path):
    differs = Difference("heap", 0, 1, 2, 3)
    [first, *_] = problems_after(tmp_path, Case, verdict=Verdict.UNKNOWN, differs=differs, message="heap differs")
    assert first.endswith("has a wrong element, and its verdict is unknown")
    [failed] = problems_after(tmp_path, Group, verdict=Verdict.FAIL, message="heap differs")
    assert failed.endswith("failed, and none of its cases did")
    [passed] = problems_after(tmp_path, Case, verdict=Verdict.FAIL, message="heap differs")
    assert passed.endswith("passed, and its cases did not all pass")


def test_kernels_and_launches_that_do_not_belong_together(tmp_path):
    access = run.case(run.GROUPS[0], 1, WIDE_HASH).launches[WIDE_HASH]
    problems = problems_after(tmp_path, Case, kernels=(WIDE_HASH,), launches={"c" * 64: access})
    assert [problem.partition(" ")[2][17:] for problem in problems] == [
        "lists other kernels than it launched",
        f"launched kernel {'c' * 16}, which has no record",
    ]
    assert problems_after(tmp_path, Kernel, arch="gfx950") == [
        "the run is recorded for gfx942, and has kernels for gfx950"
    ]


def no_rules(case, kernels):
    """Judge no case again: these tests are about the listings by themselves."""
    return ()


def evidence_of(kernel, listing):
    evidence = Evidence(kernels={kernel.hash: kernel})
    return evidence, {archive.listing_name(kernel.listing_sha256): archive.compressed(listing.encode())}


@pytest.mark.parametrize("usage", ["", "REG:18 STACK:0 SHARED:0 LOCAL:0"])
def test_the_figures_of_ptx_are_derived_without_what_ptxas_reports(usage):
    text, roots = kernels.ptx("put"), Roots()
    figures = fingerprint(text, usage, roots).to_json()
    digest = hashlib.sha256(text.encode()).hexdigest()
    kernel = Kernel(NARROW_HASH, "put", "sm_90", figures, digest, roots.to_json())
    assert list(listings.problems(*evidence_of(kernel, text), no_rules)) == []
    edited = replace(kernel, fingerprint={**figures, "instructions": 1})
    [problem] = listings.problems(*evidence_of(edited, text), no_rules)
    assert "recorded with instructions 1, and the listing has" in problem


@pytest.mark.parametrize("text", ["", "hello", '\t.amdgcn_target "amdgcn-amd-amdhsa--gfx942"\n', "\udcff"])
def test_a_listing_that_is_not_one(text):
    content = text.encode("utf-8", "surrogateescape")
    kernel = replace(run.kernel(WIDE_HASH), listing_sha256=hashlib.sha256(content).hexdigest())
    members = {archive.listing_name(kernel.listing_sha256): archive.compressed(content)}
    [problem] = listings.problems(Evidence(kernels={kernel.hash: kernel}), members, no_rules)
    assert problem.startswith(f"kernel put_wide ({'a' * 16}): its listing ")


def test_many_listings_are_read_by_several_processes_with_the_same_result(monkeypatch):
    kernels = [replace(run.kernel(WIDE_HASH), hash=f"{number:016x}" * 4) for number in range(9)]
    kernels[3] = replace(kernels[3], fingerprint={**kernels[3].fingerprint, "instructions": 1})
    kernels[7] = replace(kernels[7], listing_sha256="b" * 64)
    text = run.LISTINGS[WIDE_HASH]
    members = {archive.listing_name(kernels[0].listing_sha256): archive.compressed(text.encode())}
    evidence = Evidence(kernels={kernel.hash: kernel for kernel in kernels})
    alone = list(listings.problems(evidence, members, no_rules))
    assert [problem.partition(":")[0] for problem in alone] == [
        f"kernel put_wide ({3:016x})", f"kernel put_wide ({7:016x}) has no listing in the certificate",
    ]  # fmt: skip
    monkeypatch.setattr(listings, "_MANY", 1)
    assert list(listings.problems(evidence, members, no_rules)) == alone


def test_a_listing_that_no_kernel_has():
    members = {archive.listing_name("e" * 64): archive.compressed(b"")}
    [problem] = listings.problems(Evidence(), members, no_rules)
    assert problem == f"no kernel of the evidence has the listing listings/{'e' * 64}.gz"


START, LATER = "2026-11-21T02:00:00Z", "2026-11-21T03:00:00+00:00"


@pytest.mark.parametrize(
    ("dates", "problem"),
    [
        ((START, START, LATER), None),
        ((LATER, START, LATER), "the run started at"),
        ((START, LATER, START), "the certificate was created at"),
        ((START, START, "yesterday"), "one of these is not a date"),
        ((START, START, "2030-01-01T00:00:00"), "which is in the future"),
    ],
)
def test_dates(dates, problem):
    now = datetime(2026, 11, 21, 3, tzinfo=timezone.utc) + timedelta(hours=1)
    manifest = dict(zip(("started", "finished", "created"), dates, strict=True))
    listed = list(observations.dates(manifest, now))
    assert [problem in each for each in listed] == [True] if problem else listed == []
