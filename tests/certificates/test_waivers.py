"""Waivers in a certificate: what verify derives again, and what it finds."""

from dataclasses import replace

import pytest

from certificates import archive
from command_line.main import run as command
from harness.errors import UsageError
from harness.evidence import Run
from harness.evidence.entries import recorded
from harness.evidence.waivers import read_waivers
from tests.certificates.run import Signer, check, failing, members_of, rewritten

FILE = b"""
[[waiver]]
requirement = "RMA-PUT-001"
implementation = "iris_under_test"
issue = "https://example.org/issues/12"
reason = "the compiler reorders the store"
expires = 2026-12-31
"""


def waived(content=FILE):
    """Return the run with one failure, which has this file of waivers."""
    entries = recorded(content, read_waivers(content, "w"))
    return [replace(each, waivers=entries) if isinstance(each, Run) else each for each in failing()]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A signer whose runs have a file of waivers."""
    lab = Signer.at(tmp_path_factory.mktemp("lab"))
    (lab.folder / "waivers.toml").write_bytes(FILE)
    return lab


@pytest.fixture
def path(lab):
    (lab.folder / "waivers.toml").write_bytes(FILE)
    return lab.certificate(waived(), "waived.zip")


@pytest.fixture
def suite(monkeypatch, lab):
    monkeypatch.setattr("certificates.verification.sources_of", lambda package: "2" * 64)
    monkeypatch.setattr("certificates.verification.installed_table", lambda: lab.folder / "requirements.toml")
    monkeypatch.setattr("certificates.verification.installed_list", lambda level: lab.folder / f"{level}.toml")


@pytest.mark.usefixtures("suite")
def test_a_certificate_with_waivers(capsys, lab, path):
    checked = check(path, lab.key.public)
    assert checked.problems == ()
    assert (checked.manifest["result"], checked.manifest["verdict"]) == ("WARNED", "waived")
    assert checked.manifest["requirements"]["RMA-PUT-001"] == "waived"
    assert checked.manifest["waived"]["RMA-PUT-001"]["issue"] == "https://example.org/issues/12"
    assert members_of(path)["waivers.toml"] == FILE
    options = ["verify", str(path), "--key", str(lab.folder / "signer.key.pub")]
    assert command(options) == 5
    shown = capsys.readouterr().out
    assert "Passed with 1 waiver:" in shown
    assert "RMA-PUT-001: the compiler reorders the store (https://example.org/issues/12, until 2026-12-31)" in shown
    assert command([*options, "--no-waivers"]) == 1


def test_a_waiver_that_is_added_afterwards_by_the_signer(lab, path):
    """Signed again with the right key: to the file only, and to a certificate of a run without waivers."""
    more = FILE + FILE.replace(b"RMA-PUT-001", b"ATOMIC-ADD-001")
    added = rewritten(path, lambda members: members.update({archive.WAIVERS: more}), lab.key)
    assert any(
        "waivers.toml is not the file that the run is recorded with" in each for each in check(added, None).problems
    )
    plain = lab.certificate(failing(), "failing.zip")
    added = rewritten(plain, lambda members: members.update({archive.WAIVERS: FILE}), lab.key)
    problems = check(added, lab.key.public).problems
    assert "waivers.toml was added: the run is recorded without waivers" in problems
    assert check(plain, lab.key.public).manifest["verdict"] == "fail"


def test_a_waiver_that_is_removed_afterwards(lab, path):
    removed = rewritten(path, lambda members: members.pop(archive.WAIVERS), lab.key)
    assert "the run is recorded with waivers, and waivers.toml is missing" in check(removed, lab.key.public).problems


def test_a_verdict_that_the_waivers_do_not_give(lab, path):
    """The manifest calls it a pass."""

    def change(members):
        members[archive.MANIFEST] = members[archive.MANIFEST].replace(b'"waived"', b'"pass"')

    problems = check(rewritten(path, change, lab.key), lab.key.public).problems
    assert any('verdict is "pass", and the evidence gives "waived"' in problem for problem in problems)


def test_an_expired_waiver_waives_nothing(lab):
    content = FILE.replace(b"2026-12-31", b"2026-11-20")
    (lab.folder / "waivers.toml").write_bytes(content)
    checked = check(lab.certificate(waived(content), "expired.zip"), lab.key.public)
    assert checked.problems == () and checked.manifest["result"] == "FAILED"


@pytest.mark.parametrize(
    ("started", "valid"),
    [
        ("2026-11-20T23:59:59Z", True),  # the last day
        ("2026-11-21T00:00:00Z", False),
        ("2026-11-20T16:00:00-10:00", False),  # 02:00 of the next day in UTC
        ("2026-11-21T01:00:00+02:00", True),
        ("2026-11-20T12:00:00", True),
    ],
)
def test_a_waiver_is_valid_until_the_end_of_its_last_day_in_utc(lab, started, valid):
    content = FILE.replace(b"2026-12-31", b"2026-11-20")
    (lab.folder / "waivers.toml").write_bytes(content)
    listed = [replace(each, started=started) if isinstance(each, Run) else each for each in waived(content)]
    listed[-1] = replace(listed[-1], finished="2026-11-21T02:30:00Z")
    checked = check(lab.certificate(listed, "day.zip"), lab.key.public)
    assert checked.problems == ()
    assert checked.manifest["verdict"] == ("waived" if valid else "fail")


def test_a_file_that_is_not_the_recorded_one_makes_no_certificate(lab):
    (lab.folder / "waivers.toml").write_bytes(FILE + b"\n")
    with pytest.raises(UsageError, match="its digest differs"):
        lab.certificate(waived())
    (lab.folder / "waivers.toml").unlink()
    with pytest.raises(UsageError, match=r"waivers\.toml is missing"):
        lab.certificate(waived())
