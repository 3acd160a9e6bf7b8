"""The terminal table and the JUnit file."""

import io

import pytest
from junitparser import JUnitXml
from rich.console import Console

from harness.evidence import Difference, Group, Verdict, read
from reports import print_table, view_of, write_junit
from reports.text import duration, widths
from tests.evidence import samples
from tests.evidence.samples import ADD_GROUP, PUT, PUT_GROUP


def evidence_of(tmp_path, records):
    return read(samples.write(tmp_path / "evidence.jsonl", records))


def printed(evidence, width=120):
    console = Console(file=io.StringIO(), width=width)
    print_table(view_of(evidence), console)
    return console.file.getvalue()


def test_the_table_has_a_line_per_requirement(tmp_path):
    text = printed(evidence_of(tmp_path, samples.green()))
    [line] = [line for line in text.splitlines() if line.startswith(PUT)]
    assert line.split()[1:5] == ["pass", "1", "2", "1"]
    assert "store 16 B" in line.replace("\N{NO-BREAK SPACE}", " ")
    assert "All 2 requirements passed" in text


def test_a_failure_is_told_below_the_table(tmp_path):
    text = printed(evidence_of(tmp_path, samples.red()))
    assert "rank 3, old value, index 17: got 5, expected 4" in text
    assert samples.failing_case().repeat in text
    assert "1 of 2 requirements passed, 1 failed." in text


def test_the_command_that_repeats_stands_on_one_line_however_narrow_the_terminal(tmp_path):
    command = "python -m pytest 'conformance/rma/test_put.py::test_put[ranks=4]' " + "--option " * 20
    bad = samples.case(1, verdict=Verdict.FAIL, repeat=command.strip())
    records = [samples.run(), samples.plan(), bad, Group(PUT_GROUP, PUT, Verdict.FAIL, 1), samples.end(1)]
    assert command.strip() in printed(evidence_of(tmp_path, records), width=60)


def test_brackets_in_text_are_not_markup(tmp_path):
    bad = samples.case(1, verdict=Verdict.FAIL, message="[bold]x[/bold] [/nonsense]", repeat="[red]y")
    records = [samples.run(), samples.plan(), bad, Group(PUT_GROUP, PUT, Verdict.FAIL, 1), samples.end(1)]
    text = printed(evidence_of(tmp_path, records))
    assert "[bold]x[/bold] [/nonsense]" in text
    assert "[red]y" in text


def test_a_run_without_failures_but_with_gaps_is_not_told_as_passed(tmp_path):
    text = printed(evidence_of(tmp_path, samples.green()[:-1]))
    assert "2 of 2 requirements passed, 1 gap in the evidence." in text
    assert "did not end" in text


def junit_of(tmp_path, records):
    write_junit(evidence_of(tmp_path, records), tmp_path / "junit.xml")
    return JUnitXml.fromfile(str(tmp_path / "junit.xml"))


def test_junit_counts_groups(tmp_path):
    xml = junit_of(tmp_path, samples.green())
    assert (xml.tests, xml.failures, xml.errors, xml.skipped) == (2, 0, 0, 0)


def test_junit_tells_a_failure(tmp_path):
    xml = junit_of(tmp_path, samples.red())
    assert (xml.tests, xml.failures, xml.errors) == (2, 1, 0)
    [test] = [case for suite in xml for case in suite if case.result]
    assert test.name == ADD_GROUP
    assert "index 17: got 5, wanted 4" in test.result[0].text
    assert "repeat: iris-harness replay" in test.result[0].text


@pytest.mark.parametrize("lost", range(len(samples.green())))
def test_junit_is_never_green_when_the_evidence_is_not(tmp_path, lost):
    records = samples.green()
    records.pop(lost)
    xml = junit_of(tmp_path, records)
    assert xml.failures + xml.errors > 0


def test_junit_survives_characters_that_xml_cannot_hold(tmp_path):
    bad = samples.case(
        1, verdict=Verdict.FAIL, message="\x1b[31mred\x00 & <b>", differs=Difference("a\x01", 0, 0, "\x02", 1)
    )
    xml = junit_of(
        tmp_path, [samples.run(), samples.plan(), bad, Group(PUT_GROUP, PUT, Verdict.FAIL, 1), samples.end(1)]
    )
    assert xml.failures == 1


def test_small_formats():
    assert widths({"2": 1, "16": 1200}) == "16 B × 1,200, 2 B × 1"
    assert [duration(s) for s in (0.004, 9.2, 59.6, 125)] == ["0.00 s", "9.20 s", "1 min 0 s", "2 min 5 s"]
