"""From the plugin to the page: one small real run on the emulated device, about ten seconds."""

import json
import sys
from pathlib import Path

import pytest

from harness.evidence import Verdict, read
from harness.evidence.schema import problem_with
from reports import render_html, view_of, write_junit
from tests import python

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def evidence_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("run") / "evidence.jsonl"
    command = [sys.executable, "-m", "pytest", "conformance/isa/test_remote_width.py", "-p", "no:cacheprovider"]
    done = python.run([*command, "--ranks", "2", "--level", "ci", "--evidence", str(path)], cwd=ROOT, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return path


def test_every_line_fits_the_schema(evidence_file):
    lines = [json.loads(line) for line in evidence_file.read_text().splitlines()]
    assert [problem_with(line) for line in lines] == [None] * len(lines)
    assert {line["record"] for line in lines} == {"run", "plan", "kernel", "case", "group", "end"}


def test_the_evidence_is_green_and_says_what_ran(evidence_file):
    evidence = read(evidence_file)
    assert evidence.verdict() is Verdict.PASS, evidence.gaps()
    assert evidence.runs[0].ranks == (2,)
    report = view_of(evidence)
    rows = [row for group in report.kernels for row in group.rows]
    assert all(row.launches >= 1 for row in rows)
    assert any("16" in row.remote.get("store", {}) for row in rows), "dwordx4 remote stores were compiled"
    assert any("16" in row.executed_remote.get("store", {}) for row in rows), "and executed"
    assert all(row.unattributed == 0 for row in rows)


def test_the_reports_are_made_of_it(evidence_file, tmp_path):
    evidence = read(evidence_file)
    page = render_html(evidence)
    assert f"All {len(evidence.requirements())} requirements of this run passed." in page
    assert "Partial: " in page, "one file of the suite is not the suite"
    write_junit(evidence, tmp_path / "junit.xml")
    assert "ISA-WIDTH-001" in (tmp_path / "junit.xml").read_text()
