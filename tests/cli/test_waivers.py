"""``certify --waivers``: exit statuses, lines and files. Waivers of a wrong library on the emulated device."""

import json
from xml.etree import ElementTree

import pytest

from harness.evidence import Verdict, read
from mutants.listed import DEFECTS
from mutants.planting import NAME, plant
from tests.cli import fake_suite
from tests.planted import run_suite

WAIVER = """
[[waiver]]
requirement = "ATOMIC-ADD-001"
implementation = "iris_under_test"
issue = "https://example.org/issues/12"
reason = "the compiler reorders the store"
expires = 2999-01-31
"""


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    return fake_suite.make_suite(tmp_path_factory.mktemp("suite"))


def certify(suite, folder, *options, waivers=WAIVER, fake="fail"):
    (folder / "known.toml").write_text(waivers)
    return fake_suite.run(suite, folder, "certify", "--output", "out", *options, fake=fake)


def test_a_run_whose_only_failures_are_waived(suite, tmp_path):
    done = certify(suite, tmp_path, "--waivers", "known.toml")
    assert done.returncode == 5, done.stdout + done.stderr
    assert "2 requirements passed with 1 waiver." in done.stdout
    assert "ATOMIC-ADD-001: the compiler reorders the store (https://example.org/issues/12, until" in done.stdout
    assert (tmp_path / "out" / "waivers.toml").read_text() == WAIVER
    tree = ElementTree.parse(tmp_path / "out" / "junit.xml").getroot()
    assert (tree.get("failures"), tree.get("errors")) == ("0", "0")
    [skipped] = tree.iter("skipped")
    assert skipped.get("type") == "waived" and "https://example.org/issues/12" in skipped.get("message")
    page = (tmp_path / "out" / "report.html").read_text()
    assert "2 requirements passed with 1 waiver." in page and "verdict waived" in page


@pytest.mark.nightly
def test_lifted_waivers(suite, tmp_path):
    assert certify(suite, tmp_path, "--waivers", "known.toml", "--no-waivers").returncode == 1
    assert not (tmp_path / "out" / "waivers.toml").exists()
    assert certify(suite, tmp_path, "--waivers", "known.toml").returncode == 5
    evidence = tmp_path / "out" / "evidence.jsonl"
    assert fake_suite.run(suite, tmp_path, "report", evidence).returncode == 5
    assert fake_suite.run(suite, tmp_path, "report", evidence, "--no-waivers").returncode == 1
    assert certify(suite, tmp_path).returncode == 1, "a run without waivers does not use those of the run before"
    assert not (tmp_path / "out" / "waivers.toml").exists()


@pytest.mark.parametrize(
    ("old", "new", "fake", "line"),
    [
        ("2999-01-31", "2026-01-31", "fail", "the waiver of ATOMIC-ADD-001 expired on 2026-01-31"),
        (
            "iris_under_test",
            "iris",
            "fail",
            "the waiver of ATOMIC-ADD-001 matches nothing: it is for implementation",
        ),
        ("2999-01-31", "2999-01-31", "pass", "the waiver of ATOMIC-ADD-001 is not needed: the requirement passed"),
    ],
)
def test_a_wrong_waiver_is_red_with_its_own_line(suite, tmp_path, old, new, fake, line):
    done = certify(suite, tmp_path, "--waivers", "known.toml", waivers=WAIVER.replace(old, new), fake=fake)
    assert done.returncode == 1
    assert line in done.stdout and "1 waiver is wrong" in done.stdout
    failed = [test.get("message") for test in ElementTree.parse(tmp_path / "out" / "junit.xml").iter("failure")]
    assert any(message.startswith(line) for message in failed)


def test_a_file_with_a_mistake_starts_nothing(suite, tmp_path):
    for waivers, problem in (("[[waiver]]\n", "waiver 1 lacks requirement"), ("[", "is not TOML")):
        done = certify(suite, tmp_path, "--waivers", "known.toml", waivers=waivers)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith("iris-harness: --waivers: known.toml") and problem in done.stderr
    done = certify(suite, tmp_path, "--waivers", "missing.toml")
    assert done.returncode == 2 and "missing.toml cannot be read: No such file" in done.stderr


@pytest.mark.nightly
def test_a_wrong_library_under_pytest(tmp_path):
    """Two groups of a requirement fail, and one of another: waivers of both excuse the run, of one they do not."""
    [defect] = [defect for defect in DEFECTS if defect.name == "put: ranks swapped"]
    plant(defect, tmp_path)
    waivers = {
        name: WAIVER.replace("ATOMIC-ADD-001", name).replace("iris_under_test", NAME)
        for name in ("RMA-PUT-001", "RMA-GET-001")
    }
    chosen = ("conformance/rma/test_put.py", "-k", "int32 and not context and not function", "--ranks", "2")

    def status(name, content):
        file = tmp_path / f"{name}.toml"
        file.write_text(content)
        arguments = (*chosen, "--level", "ci", "--waivers", str(file), "--evidence", str(tmp_path / f"{name}.jsonl"))
        done = run_suite(tmp_path, *arguments)
        return done.returncode, done.stdout, read(tmp_path / f"{name}.jsonl")

    code, output, evidence = status("waived", waivers["RMA-PUT-001"])
    failed = {group.requirement for groups in evidence.groups.values() for group in groups if group.verdict == "fail"}
    assert failed == {"RMA-PUT-001"}, output
    assert code == 0 and "waived: RMA-PUT-001, until 2999-01-31: https://example.org/issues/12" in output
    assert evidence.verdict() is Verdict.WAIVED and evidence.ends[0].exit_status == 0
    code, output, evidence = status("other", waivers["RMA-GET-001"])
    assert code == 1 and evidence.verdict() is Verdict.FAIL
    assert "the waiver of RMA-GET-001 matches nothing: RMA-GET-001 is not in the plan" in output
    assert json.loads((tmp_path / "other.jsonl").read_text().splitlines()[0])["waivers"]["entries"]
