"""JUnit XML: one suite per requirement, one test case per planned group."""

from __future__ import annotations

from pathlib import Path

from junitparser import Error, Failure, JUnitXml, Property, TestCase, TestSuite

from harness.evidence import Case, Evidence, Verdict
from reports.text import shown

_ILLEGAL = dict.fromkeys((*range(9), 11, 12, *range(14, 32), 65534, 65535), "�")
"""Characters that XML 1.0 cannot hold, even escaped; kernels' and ranks' output may carry them."""


def write_junit(evidence: Evidence, path: Path) -> None:
    """Write ``path``. A group that did not run or could not be checked is an error: no CI takes that for green."""
    xml = JUnitXml("iris-harness")
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
            suite.add_testcase(test)
        for number, gap in enumerate(result.gaps if result.verdict is not Verdict.FAIL else (), 1):
            suite.add_testcase(_broken(f"{result.id} gap {number}", result.id, gap))
        xml.add_testsuite(suite)
    if evidence.gaps():
        suite = TestSuite("evidence")
        for number, gap in enumerate(evidence.gaps(), 1):
            suite.add_testcase(_broken(f"evidence gap {number}", "evidence", gap))
        xml.add_testsuite(suite)
    xml.update_statistics()
    xml.write(str(path), pretty=True)


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
