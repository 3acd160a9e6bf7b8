"""Telemetry in the views, and views of runs without telemetry."""

import io

import pytest
from junitparser import JUnitXml
from rich.console import Console

from harness.evidence import Verdict, read
from reports import print_table, render_html, view_of, write_junit
from reports.gpus import measured_of, quantity, span
from tests.evidence import samples
from tests.evidence.samples import ADD_GROUP, GPUS, PUT_GROUP
from tests.reports.test_html import HOSTILE, Outline

MARK = "rank 1: memory error (RAS/ECC): ecc_corrected +2"


def evidence_of(tmp_path, records):
    return read(samples.write(tmp_path / "evidence.jsonl", records))


def marked():
    records = samples.on_gpus()
    records[-3] = samples.telemetry(samples.case(1), samples.case(2), marks=(MARK,))
    return records


def printed(evidence):
    console = Console(file=io.StringIO(), width=150)
    print_table(view_of(evidence), console)
    return console.file.getvalue()


def page(evidence):
    return " ".join("".join(Outline(render_html(evidence)).text).split())


def test_without_gpus_no_view_mentions_them(tmp_path):
    evidence = evidence_of(tmp_path, samples.green())
    assert measured_of(evidence) is None
    assert "telemetry" not in printed(evidence)
    assert 'id="gpus"' not in render_html(evidence)
    write_junit(evidence, tmp_path / "junit.xml")
    assert "telemetry" not in (tmp_path / "junit.xml").read_text()


def test_the_table_has_one_line_of_telemetry(tmp_path):
    text = printed(evidence_of(tmp_path, samples.on_gpus()))
    assert (
        "telemetry  2 GPUs: 71–690 W, 31–55 °C, 12.3 kJ; 3 of 3 cases measured; 2 fields unavailable; no mark" in text
    )


def test_marks_are_shown_next_to_green_verdicts_in_each_view(tmp_path):
    evidence = evidence_of(tmp_path, marked())
    assert evidence.verdict() is Verdict.PASS
    text = printed(evidence)
    assert f"{MARK} ({PUT_GROUP})" in text
    assert "2 of 3 cases measured" in text
    shown = page(evidence)
    assert f"{MARK} around 2 cases of {PUT_GROUP}" in shown
    assert "1 case: no telemetry record" in shown
    write_junit(evidence, tmp_path / "junit.xml")
    outputs = {test.name: test.system_out for suite in JUnitXml.fromfile(str(tmp_path / "junit.xml")) for test in suite}
    assert outputs[PUT_GROUP] == f"telemetry: {MARK}"
    assert outputs[ADD_GROUP] is None


def test_a_failing_case_shows_its_marks(tmp_path):
    bad = samples.failing_case()
    records = [*samples.red()[:-1], samples.hardware(), samples.telemetry(bad, marks=(MARK,)), samples.red()[-1]]
    evidence = evidence_of(tmp_path, records)
    assert MARK in printed(evidence)
    assert f"Telemetry{MARK}" in page(evidence).replace("Telemetry ", "Telemetry")


def test_the_page_has_a_row_per_gpu(tmp_path):
    shown = page(evidence_of(tmp_path, samples.on_gpus()))
    assert f"NVIDIA H200{GPUS[0]} 71–690 W 6.15 kJ 31–55 °C" in shown
    assert "Read by nvml (nvml 13.580.0) every 0.1 s, driver version 580.159." in shown
    assert "link_ecc_errorsunavailable: Not Supported" in shown.replace("errors unavailable", "errorsunavailable")


def test_the_junit_file_has_a_summary_of_telemetry(tmp_path):
    evidence = evidence_of(tmp_path, samples.on_gpus())
    write_junit(evidence, tmp_path / "junit.xml")
    [suite] = [suite for suite in JUnitXml.fromfile(str(tmp_path / "junit.xml")) if suite.name == "telemetry"]
    values = {prop.name: prop.value for prop in suite.properties()}
    assert values["summary"].startswith("2 GPUs: ")
    assert values[f"unavailable.{GPUS[0]}.link_ecc_errors"] == "Not Supported"


def test_a_recorder_without_samples_is_reported_with_its_reason(tmp_path):
    records = samples.on_gpus()
    cases = [samples.case(1), samples.case(2), samples.case(3, requirement=samples.ADD)]
    records[-4:-1] = [
        samples.telemetry(*cases, reason="nvml: no library"),
        samples.telemetry(reason="nvml: no library"),
    ]
    evidence = evidence_of(tmp_path, records)
    assert evidence.verdict() is Verdict.PASS
    assert "2 GPUs: nothing measured; 0 of 3 cases measured; 2 fields unavailable; no mark" in printed(evidence)
    assert "3 cases: nvml: no library" in page(evidence)


def test_energies_of_brackets_are_never_added_up(tmp_path):
    """Check that overlapping brackets give no sum: a killed run has no record of the whole run."""
    records = samples.on_gpus()
    del records[-2]
    measured = measured_of(evidence_of(tmp_path, records))
    assert [row.sums for row in measured.rows] == [{}, {}]
    assert "kJ" not in measured.headline
    assert "71–690 W" in measured.headline


def test_several_watches_are_added_up_unless_one_has_no_value(tmp_path):
    records = samples.on_gpus()
    records.insert(-1, samples.telemetry())
    assert measured_of(evidence_of(tmp_path, records)).rows[0].sums["energy"] == 12300.0
    records.insert(-1, samples.telemetry(deltas={}, unavailable={"energy": "it went backwards"}))
    measured = measured_of(evidence_of(tmp_path / "again", records))
    assert "energy" not in measured.rows[0].sums
    assert "kJ" not in measured.headline


def test_events_outside_of_cases_are_shown(tmp_path):
    records = samples.on_gpus()
    records[-2] = samples.telemetry(marks=(MARK,))
    evidence = evidence_of(tmp_path, records)
    assert f"{MARK} (no case)" in printed(evidence)
    assert f"{MARK}, outside of any case" in page(evidence)


def test_text_from_hardware_is_not_interpreted_as_markup(tmp_path):
    records = samples.on_gpus()
    records.insert(-1, samples.telemetry(samples.case(1), marks=(HOSTILE,), unavailable={"power": HOSTILE}))
    evidence = evidence_of(tmp_path, records)
    assert render_html(evidence).count("<script") == 1, "the page's own"
    write_junit(evidence, tmp_path / "junit.xml")
    JUnitXml.fromfile(str(tmp_path / "junit.xml"))


@pytest.mark.parametrize(
    ("value", "text"), [(12300.0, "12.3 kJ"), (0.5, "0.5 J"), (4e9, "4 GJ"), (0, "0 J"), (7e13, "70 TJ")]
)
def test_quantities(value, text):
    assert quantity(value, "J") == text


def test_spans():
    assert span([(70.6, 690.2), (60.0, 100.0)], "W") == "60–690 W"
    assert span([(41, 41)], "°C") == "41 °C"
