"""Quarantine: failures of its groups are not red, no certificate is made of such a run, and its rates are verified."""

import dataclasses
from xml.etree import ElementTree

import pytest

from certificates import archive, new_key
from command_line.commands import quarantine as verifying
from command_line.main import run as command
from fixtures.options import quarantine_in
from harness.errors import UsageError
from harness.evidence import Group, Run, Verdict, read
from harness.evidence.quarantine import read_quarantine
from mutants.listed import DEFECTS
from mutants.planting import plant
from reports import render_junit, view_of
from tests.certificates import run as small
from tests.cli import fake_suite
from tests.evidence import samples
from tests.evidence.samples import ADD, ADD_GROUP, PUT, PUT_GROUP
from tests.fixtures.test_flaky import flaky_run
from tests.planted import run_suite

ENTRY = f"""
[[group]]
group = "{ADD_GROUP}"
failed = 3
runs = 200
issue = "https://example.org/issues/31"
expires = 2999-01-31
"""


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    return fake_suite.make_suite(tmp_path_factory.mktemp("suite"))


def evidence_of(folder, records, entry=ENTRY):
    (folder / "quarantine.toml").write_text(entry)
    run, *rest = records
    run = dataclasses.replace(run, quarantine=quarantine_in(folder / "quarantine.toml"))
    return read(samples.write(folder / "evidence.jsonl", [run, *rest]))


@pytest.mark.parametrize("records", [samples.red, flaky_run])
def test_a_quarantined_group_that_fails_or_is_flaky_is_not_red(tmp_path, records):
    evidence = evidence_of(tmp_path, records())
    assert evidence.problems == [] and evidence.gaps() == ()
    assert evidence.requirements()[ADD].groups == {ADD_GROUP: Verdict.QUARANTINED}
    assert evidence.verdict() is Verdict.QUARANTINED and not evidence.verdict().red
    assert view_of(evidence).headline == "1 of 2 requirements passed, 1 is quarantined."
    tree = ElementTree.fromstring(render_junit(evidence))
    assert (tree.get("failures"), tree.get("errors")) == ("0", "0")
    [skipped] = tree.iter("skipped")
    assert skipped.get("type") == "quarantined" and "failed in 3 of 200 runs" in skipped.get("message")


@pytest.mark.parametrize(
    ("old", "new"), [("2999-01-31", "2026-11-20"), (ADD_GROUP, PUT_GROUP)], ids=["expired", "another group"]
)
def test_a_failure_that_is_not_in_the_quarantine_is_red(tmp_path, old, new):
    evidence = evidence_of(tmp_path, samples.red(), ENTRY.replace(old, new))
    assert evidence.verdict() is Verdict.FAIL
    assert evidence.requirements()[PUT].verdict is Verdict.PASS, "what passes stays a pass"


def test_a_group_without_a_verdict_is_not_excused(tmp_path):
    records = [each for each in samples.red() if getattr(each, "group", "") != ADD_GROUP]
    evidence = evidence_of(tmp_path, records)
    assert evidence.requirements()[ADD].verdict is Verdict.NOT_RUN and evidence.verdict().red


def test_no_record_states_that_it_is_quarantined(tmp_path):
    records = [
        dataclasses.replace(each, verdict=Verdict.QUARANTINED)
        if isinstance(each, Group) and each.group == ADD_GROUP
        else each
        for each in samples.red()
    ]
    assert any("ran and is quarantined" in each for each in evidence_of(tmp_path, records).problems)


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("failed = 3", "failed = 0", "group 1: failed: expected a number from 1 to 1,000,000, got 0"),
        ("failed = 3", "failed = '3'", "group 1: failed: expected a number"),
        ("runs = 200", "", "group 1 lacks runs"),
        ("[[group]]", "[[groups]]", "expected only entries [[group]], got groups"),
    ],
)
def test_a_file_with_a_mistake(old, new, problem):
    with pytest.raises(UsageError) as refused:
        read_quarantine(ENTRY.replace(old, new).encode(), "q")
    assert problem in str(refused.value)


def test_certify(suite, tmp_path):
    (tmp_path / "known.toml").write_text(ENTRY)
    done = fake_suite.run(suite, tmp_path, "certify", "--quarantine", "known.toml", fake="fail")
    assert done.returncode == 5, done.stdout + done.stderr
    assert "1 is quarantined" in done.stdout
    assert f"{ADD_GROUP} is quarantined: failed in 3 of 200 runs (https://example.org/issues/31" in done.stdout
    assert read(tmp_path / "out" / "certify" / "evidence.jsonl").runs[0].profile == "none", "it is for no level"
    assert fake_suite.run(suite, tmp_path, "certify", fake="fail").returncode == 1


def test_a_run_for_a_level_refuses_a_quarantine(suite, tmp_path):
    (tmp_path / "known.toml").write_text(ENTRY)
    new_key(tmp_path / "a.key")
    for options, problem in (
        (["--sign", "a.key"], "no certificate is made of a run with a quarantine"),
        (["--profile", "emulated-gfx942"], "--quarantine changes what a run of level gate executes"),
    ):
        done = fake_suite.run(suite, tmp_path, "certify", "--quarantine", "known.toml", *options)
        assert (done.returncode, done.stdout) == (2, "")
        assert problem in done.stderr


def test_a_certificate_has_no_quarantine(tmp_path):
    """The command refuses one, and so does verify, where a signer wrote it otherwise."""
    signer = small.Signer.at(tmp_path / "signer")
    (tmp_path / "known.toml").write_text(ENTRY)
    entries = quarantine_in(tmp_path / "known.toml")
    listed = [
        dataclasses.replace(each, quarantine=entries) if isinstance(each, Run) else each for each in small.records()
    ]
    with pytest.raises(UsageError, match="of a run with a quarantine, of which no certificate is made"):
        signer.certificate(listed)
    genuine = signer.certificate(small.records())
    content = samples.write(tmp_path / "evidence.jsonl", listed).read_bytes()
    forged = small.rewritten(
        genuine, lambda members: members.update({archive.EVIDENCE: archive.compressed(content)}), signer.key
    )
    problems = small.check(forged, signer.key.public).problems
    assert "the run is recorded with a quarantine, which no run of a certificate may have" in problems


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """Return a function that verifies ``ENTRY`` where the group has these verdicts, and returns its exit status."""
    file = tmp_path / "known.toml"
    monkeypatch.setattr(verifying.preflight, "check_software", lambda *arguments: None)

    def verify(*verdicts, known=(ADD_GROUP,), entry=ENTRY):
        file.write_text(entry)
        listed = iter(verdicts)
        monkeypatch.setattr(verifying, "_known", lambda request: set(known))
        monkeypatch.setattr(verifying, "_verdicts", lambda *arguments: {ADD_GROUP: next(listed)})
        return command(
            ["quarantine", "verify", str(file), "--runs", str(len(verdicts) or 1), "--output", str(tmp_path / "out")]
        )

    return verify


def test_a_group_that_is_still_flaky(measured, capsys):
    assert measured(Verdict.PASS, Verdict.FLAKY, Verdict.PASS, Verdict.FAIL) == 0
    assert f"{ADD_GROUP}: failed 2 of 4, recorded 3 of 200\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("verdicts", "changes", "problem"),
    [
        ([Verdict.PASS] * 3, {}, "failed 0 of 3, recorded 3 of 200; it does not fail any more"),
        ([Verdict.FAIL] * 3, {}, "failed 3 of 3, recorded 3 of 200; it fails each time, which is not flaky"),
        ([], {"known": ()}, "it is not a group of this level any more"),
        ([Verdict.FLAKY, Verdict.PASS], {"entry": ENTRY.replace("2999", "2020")}, "the entry expired on 2020-01-31"),
        (
            [Verdict.FLAKY, Verdict.UNKNOWN, Verdict.PASS],
            {},
            "failed 1 of 2, recorded 3 of 200; 1 of 3 runs",
        ),
    ],
)
def test_an_entry_that_is_wrong_is_red(measured, capsys, verdicts, changes, problem):
    assert measured(*verdicts, **changes) == 1
    assert problem in capsys.readouterr().out.replace("\n", " ")


def test_an_empty_file_is_refused(measured, capsys):
    assert measured(entry="") == 2
    assert "known.toml has no entry [[group]]: there is nothing to verify" in capsys.readouterr().err


@pytest.mark.nightly
def test_a_wrong_library_under_pytest(tmp_path):
    [defect] = [defect for defect in DEFECTS if defect.name == "put: ranks swapped"]
    plant(defect, tmp_path)
    group = "RMA-PUT-001[ranks=2,dtype=int32]"
    file = tmp_path / "known.toml"
    file.write_text(ENTRY.replace(ADD_GROUP, group))
    chosen = ("conformance/rma/test_put.py", "-k", "int32 and not context and not function", "--ranks", "2")
    arguments = (*chosen, "--level", "ci", "--quarantine", str(file), "--evidence", str(tmp_path / "e.jsonl"))
    done = run_suite(tmp_path, *arguments)
    assert done.returncode == 0, done.stdout
    assert f"quarantined: {group} failed, as in 3 of 200 runs before: https://example.org/issues/31" in done.stdout
    assert read(tmp_path / "e.jsonl").requirements()["RMA-PUT-001"].verdict is Verdict.QUARANTINED


@pytest.mark.nightly
def test_a_group_is_run_again_and_again(tmp_path, capsys):
    """A group of the bundled library, which never fails: the entry is wrong."""
    group = "RMA-PUT-001[ranks=2,dtype=int32]"
    (tmp_path / "known.toml").write_text(ENTRY.replace(ADD_GROUP, group))
    arguments = ["quarantine", "verify", str(tmp_path / "known.toml"), "--runs", "2", "--ranks", "2"]
    assert command([*arguments, "--output", str(tmp_path / "out")]) == 1
    assert f"{group}: failed 0 of 2, recorded 3 of 200; it does not fail any more" in capsys.readouterr().out
    for number in (1, 2):
        assert list(read(tmp_path / "out" / f"run-{number}" / "evidence.jsonl").groups) == [group]
