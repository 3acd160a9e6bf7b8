"""The JUnit file is valid against Jenkins's schema and has what CI systems read."""

import io
from pathlib import Path

import pytest
from junitparser import JUnitXml
from lxml import etree

import reports
from harness.errors import UsageError
from harness.evidence import Difference, Group, Verdict, read
from reports import render_junit, write_html, write_junit
from tests.evidence import samples
from tests.evidence.samples import ADD, ADD_GROUP, PUT, PUT_GROUP
from tests.reports import runs
from tests.reports.runs import FUSED, GET

SCHEMA = etree.XMLSchema(etree.parse(str(Path(reports.__file__).with_name("junit-10.xsd"))))


def of_verdict(verdict):
    bad = samples.case(1, verdict=verdict, message="heap differs")
    return [samples.run(), samples.plan(), samples.kernel(), bad, Group(PUT_GROUP, PUT, verdict, 1), samples.end(1)]


RUNS = {
    "passing": samples.green,
    "failing": samples.red,
    "unknown": lambda: of_verdict(Verdict.UNKNOWN),
    "not run": lambda: [*samples.green()[:6], samples.end(1)],
    "killed": lambda: samples.green()[:5],
    "without a plan": lambda: [samples.run(), *samples.green()[2:]],
    "empty": list,
    "partial": runs.partial,
    "complete": runs.complete,
    "on GPUs": samples.on_gpus,
    "marked": lambda: [
        *samples.on_gpus()[:-1], samples.telemetry(samples.case(1), marks=("too hot",)), samples.end(),
    ],
    "hostile": runs.poisoned,
}  # fmt: skip


def evidence_of(tmp_path, records):
    return read(samples.write(tmp_path / "evidence.jsonl", records))


def suites_of(evidence):
    return {suite.name: suite for suite in JUnitXml.fromroot(etree.fromstring(render_junit(evidence).encode()))}


def properties_of(suite):
    return {each.name: each.value for each in suite.properties()}


@pytest.mark.parametrize("name", RUNS)
def test_every_file_fits_the_schema_and_its_counts_are_those_of_its_test_cases(tmp_path, name):
    root = etree.parse(io.BytesIO(render_junit(evidence_of(tmp_path, RUNS[name]())).encode())).getroot()
    SCHEMA.assertValid(root)
    for holder in (root, *root.iter("testsuite")):
        tests = list(holder.iter("testcase"))
        assert int(holder.get("tests")) == len(tests)
        assert float(holder.get("time")) == pytest.approx(sum(float(test.get("time")) for test in tests), abs=1e-3)
        for count, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            if holder.get(count) is not None or kind != "skipped":
                assert int(holder.get(count)) == len(list(holder.iter(kind))), count


def test_the_schema_refuses_files_of_an_earlier_version():
    bare = '<testsuite name="a" tests="0" failures="0" errors="0"><property name="statement" value="b"/></testsuite>'
    assert not SCHEMA.validate(etree.fromstring(f"<testsuites>{bare}</testsuites>"))


def test_a_suite_has_file_time_and_class_names(tmp_path):
    suite = suites_of(evidence_of(tmp_path, samples.green()))[PUT]
    element = suite._elem
    assert element.get("file") == "conformance/rma/test_put.py"
    assert element.get("timestamp") == "2026-11-21T02:00:00Z"
    assert element.get("hostname") is None
    [test] = suite
    assert (test.name, test.classname) == (PUT_GROUP, "conformance.rma.test_put")
    assert properties_of(suite)["statement"] == "put copies exactly the masked elements to the peer"


def test_the_run_is_described(tmp_path):
    properties = properties_of(suites_of(evidence_of(tmp_path, samples.green()))["run"])
    expected = {
        "complete": "true",
        "verdict": "pass",
        "device": "emulated",
        "arch": "gfx942",
        "ranks": "4",
        "seed": "20",
        "level": "gate",
        "implementation.name": "iris_under_test",
        "implementation.commit": "0" * 40,
        "environment.packages.triton": "3.9.0",
    }
    assert expected.items() <= properties.items()
    assert "argv" not in properties, "argv holds paths of the machine"


def test_a_partial_run_is_neither_red_nor_unmarked(tmp_path):
    evidence = evidence_of(tmp_path, runs.partial())
    suites = suites_of(evidence)
    assert properties_of(suites["run"])["complete"] == "false"
    skipped = {test.name: test.result[0] for test in suites["completeness"]}
    assert {name: result.message for name, result in skipped.items()} == {
        GET: "deselected by -k put",
        f"{PUT}[ranks=2,dtype=fp16]": "this machine has 1 GPU",
    }
    assert skipped[GET].text == "get copies exactly the masked elements from the peer"
    [test] = suites["not applicable"]
    assert (test.name, test.result[0].message, test.is_skipped) == (FUSED, "needs a GPU", True)
    root = JUnitXml.fromroot(etree.fromstring(render_junit(evidence).encode()))
    assert (root.failures, root.errors) == (0, 0)
    assert "completeness" not in suites_of(evidence_of(tmp_path / "other", runs.complete()))


@pytest.mark.parametrize("verdict", [Verdict.FAIL, Verdict.UNKNOWN, Verdict.NOT_RUN])
def test_a_group_that_did_not_pass_is_a_failure_or_an_error(tmp_path, verdict):
    [test] = [test for test in suites_of(evidence_of(tmp_path, of_verdict(verdict)))[PUT] if test.name == PUT_GROUP]
    assert test.is_failure if verdict is Verdict.FAIL else test.is_error


def test_a_failure_has_the_replay_command(tmp_path):
    bad = samples.failing_case()
    [test] = suites_of(evidence_of(tmp_path, samples.red()))[ADD]
    assert test.name == ADD_GROUP
    assert f"case id: {bad.id}" in test.result[0].text
    assert f"replay: iris-harness replay {bad.id}" in test.result[0].text


@pytest.mark.parametrize("nodeid", ["../../etc/passwd", "a b.py::x", "<x>.py::y", "::", "\x1b[31m.py::x"])
def test_a_node_id_that_names_no_test_file_gives_no_file(tmp_path, nodeid):
    records = [samples.run(), samples.case(1, nodeid=nodeid), Group(PUT_GROUP, PUT, Verdict.PASS, 1), samples.end()]
    suite = suites_of(evidence_of(tmp_path, records))[PUT]
    assert suite._elem.get("file") is None
    assert next(iter(suite)).classname == PUT


def test_characters_that_xml_cannot_hold_are_shown_as_escapes(tmp_path):
    bad = samples.case(
        1,
        verdict=Verdict.FAIL,
        message="\x1b[31m\x00 & <b>\ud800\ufffe",
        differs=Difference("a\x01", 0, 0, "\x02", 1),
    )
    records = [samples.run(), samples.plan(), bad, Group(PUT_GROUP, PUT, Verdict.FAIL, 1), samples.end(1)]
    [test] = [test for test in suites_of(evidence_of(tmp_path, records))[PUT] if test.result]
    assert test.result[0].message == "\\x1b[31m\\x00 & <b>\\ud800\\ufffe"


@pytest.mark.parametrize("write", [write_html, write_junit])
def test_a_symbolic_link_is_not_followed_and_the_old_report_stays(tmp_path, write):
    evidence = evidence_of(tmp_path, samples.green())
    target, report = tmp_path / "target", tmp_path / "report"
    target.write_text("precious")
    report.symlink_to(target)
    with pytest.raises(UsageError, match="symbolic link"):
        write(evidence, report)
    assert target.read_text() == "precious"
    assert report.is_symlink()
    report.unlink()
    report.write_text("old")
    with report.open() as before:
        write(evidence, report)
        assert before.read() == "old", "replaced, not written over: a reader of the old file keeps it"
    assert report.read_text() != "old"
