"""JUnit XML: one suite per requirement, one test case per planned group."""

from __future__ import annotations

from pathlib import Path

from junitparser import Error, Failure, JUnitXml, Properties, Property, TestCase, TestSuite

from harness.evidence import Case, Evidence, Verdict
from reports.gpus import marks_of, measured_of
from reports.text import shown

_ILLEGAL = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 65534, 65535), "�")
"""Characters that XML 1.0 cannot hold, even escaped; kernels' and ranks' output may carry them."""


def write_junit(evidence: Evidence, path: Path) -> None:
    """Write ``path``. A group that did not run or could not be checked is an error: no CI takes that for green.

    What telemetry says of a group's cases stands in its properties ``telemetry.mark``, of the run in those of the suite
    ``telemetry``; neither changes a verdict.
    """
    xml = JUnitXml("iris-harness")
    marks = _marks_by_group(evidence)
    for result in evidence.requirements().values():
        suite = TestSuite(_legal(result.id))
        if result.statement:
            suite.append(Property("statement", _legal(result.statement)))
        failing = {case.group: case for case in result.failing}
        for group, verdict in result.groups.items():
            records = evidence.groups.get(group, [])
            test = TestCase(_legal(group), classname=_legal(result.id), time=sum(r.seconds or 0.0 for r in records))
            problem = _problem(verdict, failing.get(group), records[-1].message if records else "did not run")
            if problem is not None:
                test.result = [problem]
            if group in marks:
                properties = Properties()
                for mark in marks[group]:
                    properties.add_property(Property("telemetry.mark", _legal(mark)))
                test.append(properties)
            suite.add_testcase(test)
        for number, gap in enumerate(result.gaps if result.verdict is not Verdict.FAIL else (), 1):
            suite.add_testcase(_broken(f"{result.id} gap {number}", result.id, gap))
        xml.add_testsuite(suite)
    if measured := measured_of(evidence):
        suite = TestSuite("telemetry")
        suite.add_property("summary", _legal(measured.headline))
        for row in measured.rows:
            for field, reason in row.unavailable.items():
                suite.add_property(f"unavailable.{row.gpu}.{field}", _legal(reason))
        xml.add_testsuite(suite)
    if evidence.gaps():
        suite = TestSuite("evidence")
        for number, gap in enumerate(evidence.gaps(), 1):
            suite.add_testcase(_broken(f"evidence gap {number}", "evidence", gap))
        xml.add_testsuite(suite)
    xml.update_statistics()
    xml.write(str(path), pretty=True)


def _marks_by_group(evidence: Evidence) -> dict[str, list[str]]:
    """Group -> the marks of its cases, each once."""
    by_case = marks_of(evidence)
    found: dict[str, dict[str, None]] = {}
    for case in evidence.cases:
        found.setdefault(case.group, {}).update(dict.fromkeys(by_case.get(case.id, ())))
    return {group: list(marks) for group, marks in found.items() if marks}


def _problem(verdict: Verdict, case: Case | None, message: str) -> Failure | Error | None:
    if verdict is Verdict.PASS:
        return None
    text = _legal(case.message if case else message or str(verdict))
    result = Failure(text, type_="fail") if verdict is Verdict.FAIL else Error(text, type_=str(verdict))
    result.text = _legal(_story(case) if case else text)
    return result


def _story(case: Case) -> str:
    lines = [case.message, "case: " + ", ".join(f"{key}={shown(value)}" for key, value in case.case["fields"].items())]
    if case.differs:
        d = case.differs
        lines.append(f"first wrong: {d.what}, rank {d.rank}, index {d.index}: got {d.got!r}, wanted {d.wanted!r}")
    lines += [f"fault: {case.fault}"] if case.fault else []
    lines += [f"at: {case.fault_source}"] if case.fault_source else []
    lines += [f"--- stack of rank {rank}\n{stack}" for rank, stack in (case.stacks or {}).items()]
    return "\n".join([*lines, f"repeat: {case.repeat}"])


def _broken(name: str, classname: str, text: str) -> TestCase:
    test = TestCase(_legal(name), classname=_legal(classname))
    test.result = [Error(_legal(text), type_="gap")]
    return test


def _legal(text: str) -> str:
    return text.translate(_ILLEGAL)
