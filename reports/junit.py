"""JUnit XML for CI systems, valid against Jenkins's junit-10.xsd; GitHub's and GitLab's readers accept it too.

There is one suite per requirement, with one test case per planned group; a group that the library does not support, or
a whole requirement, is a *skipped* test case, and so is a failed group of a waived requirement. The class name of a
test case is its module with dots; the ``file`` of a suite is the test file. Further suites:

``run``              no test cases; its properties hold the run record, the verdict, and ``complete``: true or false
``completeness``     a *skipped* test case for each requirement or group that makes the run partial. CI systems do not
                     fail for it, but a reader sees it, and ``certify`` has an exit status for it. Only in partial runs.
``not applicable``   a skipped test case for each requirement that the device cannot run, with the reason
``waivers``          a failed test case for each waiver that expired, matches nothing, or is not needed
``capabilities``     a failed test case for each capability that the library declares and does not have
``telemetry``        no test cases; its properties summarize the telemetry of the GPUs
``evidence``         a test case with an error for each gap in the evidence

No suite has a ``hostname``: a report names no machine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from harness.evidence import Case, Evidence, RequirementResult, Verdict, in_words
from harness.files import write_whole
from reports.absent import Absent, Completeness, completeness_of
from reports.gpus import Measured, marks_of, measured_of
from reports.symptoms import symptom_of
from reports.text import cut, fields_of, plain, replay_of, stacks_of

Element = ElementTree.Element
Pairs = Iterable[tuple[str, str]]

_ATTRIBUTE_CHARACTERS, _TEXT_CHARACTERS = 2_000, 50_000
_FILE = re.compile(r"[\w./-]+\.py")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[\w.:+-]*")


def render_junit(evidence: Evidence) -> str:
    """Return the file as text. A group that did not run or could not be checked is an error, which fails a CI job.

    The telemetry marks of a group's cases are in its ``system-out``; they change no verdict.
    """
    started = evidence.runs[0].started if evidence.runs else ""
    completeness = completeness_of(evidence)
    marks = _marks_by_group(evidence)
    cases: dict[str, list[Case]] = {}
    for case in evidence.cases:
        cases.setdefault(case.group, []).append(case)
    suites = [_suite("run", [], _run(evidence, completeness))]
    suites += [_requirement(result, evidence, cases, marks) for result in evidence.requirements().values()]
    if completeness.missing:
        suites.append(_suite("completeness", [_skipped(each, "left out") for each in completeness.missing]))
    if completeness.not_applicable:
        tests = [_skipped(each, "not applicable") for each in completeness.not_applicable]
        suites.append(_suite("not applicable", tests))
    if measured := measured_of(evidence):
        suites.append(_suite("telemetry", [], _telemetry(measured)))
    if evidence.declaration:
        suites.append(_suite("capabilities", [_declared(n, each) for n, each in enumerate(evidence.declaration, 1)]))
    if wrong := evidence.waiver_problems():
        suites.append(_suite("waivers", [_wrong_waiver(number, each) for number, each in enumerate(wrong, 1)]))
    if gaps := evidence.gaps():
        suites.append(_suite("evidence", [_gap(f"evidence gap {n}", "evidence", gap) for n, gap in enumerate(gaps, 1)]))
    root = Element("testsuites", name="iris-harness")
    for count in ("tests", "failures", "errors"):
        root.set(count, str(sum(int(suite.attrib[count]) for suite in suites)))
    root.set("time", _time(sum(float(suite.attrib["time"]) for suite in suites)))
    root.extend(suites)
    for suite in suites if _MOMENT.fullmatch(started) else ():
        suite.set("timestamp", started)
    _make_plain(root)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def write_junit(evidence: Evidence, path: Path) -> None:
    """Replace ``path`` atomically. Raises UsageError for a symbolic link, and OSError if the file cannot be written."""
    write_whole(path, render_junit(evidence))


def _requirement(
    result: RequirementResult, evidence: Evidence, cases: Mapping[str, list[Case]], marks: Mapping[str, list[str]]
) -> Element:
    failing = {case.group: case for case in result.failing}
    nodeids = {group: _nodeid(group, evidence, cases) for group in result.groups}
    tests = []
    for group, verdict in result.groups.items():
        records = evidence.groups.get(group, [])
        seconds = sum(record.seconds or 0.0 for record in records)
        test = _test(group, _class_name(nodeids[group]) or result.id, seconds)
        message = records[-1].message if records else "did not run"
        if verdict is Verdict.UNSUPPORTED:
            why = evidence.unsupported.get(group, "unsupported")
            ElementTree.SubElement(test, "skipped", type="unsupported", message=why)
        elif verdict is Verdict.QUARANTINED:
            entry = evidence.quarantined()[group]
            text = (
                f"quarantined until {entry.expires}: it failed in {entry.failed} of {entry.runs} runs ({entry.issue})"
            )
            ElementTree.SubElement(test, "skipped", type="quarantined", message=text).text = message
        elif result.verdict is Verdict.WAIVED and verdict is Verdict.FAIL:
            waiver = evidence.waivers()[result.id]
            text = f"waived until {waiver.expires}: {waiver.reason} ({waiver.issue})"
            ElementTree.SubElement(test, "skipped", type="waived", message=text).text = message
        elif verdict is not Verdict.PASS:
            _add_problem(test, verdict, failing.get(group), message, evidence)
        if group in marks:
            ElementTree.SubElement(test, "system-out").text = "\n".join(f"telemetry: {mark}" for mark in marks[group])
        tests.append(test)
    if reason := evidence.unsupported.get(result.id):
        tests.append(_skipped(Absent(result.id, reason, ""), "unsupported"))
    for number, gap in enumerate(result.gaps if result.verdict not in (Verdict.FAIL, Verdict.FLAKY) else (), 1):
        tests.append(_gap(f"{result.id} gap {number}", result.id, gap))
    demanded = [("statement", result.statement)]
    if result.form_of and result.form and result.form_of in evidence.statements:  # form_of has the statement
        demanded = [("form_of", result.form_of), ("form", result.form)]
    properties = [*demanded, ("source", result.source), ("verdict", result.verdict.value)]
    suite = _suite(result.id, tests, properties)
    files = {_file(nodeid) for nodeid in nodeids.values()}
    if len(files) == 1 and (file := files.pop()):
        suite.set("file", file)
    return suite


def _suite(name: str, tests: list[Element], properties: Pairs = ()) -> Element:
    def count(kind: str) -> str:
        return str(sum(test.find(kind) is not None for test in tests))

    suite = Element("testsuite", name=name, tests=str(len(tests)), failures=count("failure"), errors=count("error"))
    suite.set("skipped", count("skipped"))
    suite.set("time", _time(sum(float(test.attrib["time"]) for test in tests)))
    if pairs := [(key, value) for key, value in properties if value]:
        holder = ElementTree.SubElement(suite, "properties")
        for key, value in pairs:
            ElementTree.SubElement(holder, "property", name=key, value=value)
    suite.extend(tests)
    return suite


def _test(name: str, class_name: str, seconds: float = 0.0) -> Element:
    return Element("testcase", name=name, classname=class_name, time=_time(seconds))


def _skipped(absent: Absent, kind: str) -> Element:
    test = _test(absent.id, kind.replace(" ", "_"))
    skipped = ElementTree.SubElement(test, "skipped", type=kind, message=absent.reason or kind)
    skipped.text = absent.statement
    return test


def _declared(number: int, problem: str) -> Element:
    test = _test(f"declared capability {number}", "capabilities")
    ElementTree.SubElement(test, "failure", type="declared", message=problem)
    return test


def _wrong_waiver(number: int, problem: str) -> Element:
    test = _test(f"waiver {number}", "waivers")
    ElementTree.SubElement(test, "failure", type="waiver", message=problem)
    return test


def _gap(name: str, class_name: str, text: str) -> Element:
    test = _test(name, class_name)
    ElementTree.SubElement(test, "error", type="gap", message=text)
    return test


def _add_problem(test: Element, verdict: Verdict, case: Case | None, message: str, evidence: Evidence) -> None:
    kind = "failure" if verdict in (Verdict.FAIL, Verdict.FLAKY) else "error"
    text = case.message if case and verdict is not Verdict.FLAKY else message or verdict.value
    ElementTree.SubElement(test, kind, type=verdict.value, message=text).text = _story(case, evidence) if case else text


def _story(case: Case, evidence: Evidence) -> str:
    """Return the failure's text. The commands come before the long texts, whose middle may be cut out."""
    title = symptom_of(case, evidence.statements.get(case.requirement)).title
    lines = [title, case.message, "case: " + ", ".join(f"{name}={value}" for name, value in fields_of(case))]
    if case.differs:
        d = case.differs
        lines.append(f"first wrong: {d.what}, rank {d.rank}, index {d.index}: got {d.got!r}, wanted {d.wanted!r}")
        lines += [f"in words: {in_words(d)}"] if d.detail else []
    lines += [f"at: {case.fault_source}"] if case.fault_source else []
    lines = [cut(line, _ATTRIBUTE_CHARACTERS) for line in lines]
    commands = {"replay": replay_of(case, evidence), "repeat": case.repeat}
    lines += [
        f"case id: {case.id}",
        *(f"{name}: {cut(text, _ATTRIBUTE_CHARACTERS)}" for name, text in commands.items()),
    ]
    lines += [f"fault: {case.fault}"] if case.fault else []
    lines += [f"--- on the rank\n{case.traceback}"] if case.traceback else []
    lines += [f"--- stack of {ranks}\n{stack}" for ranks, stack in stacks_of(case)]
    return "\n".join(lines)


def _run(evidence: Evidence, completeness: Completeness) -> Iterator[tuple[str, str]]:
    yield "complete", {"complete": "true", "partial": "false"}.get(completeness.label, "unknown")
    yield "verdict", evidence.verdict().value
    yield "left_out", str(len(completeness.missing))
    yield "not_applicable", str(len(completeness.not_applicable))
    yield "api", evidence.api
    yield "unsupported", str(evidence.counts()["unsupported"])
    for run in evidence.runs[:1]:
        for field in fields(run):
            if field.name != "argv":  # argv holds paths of the machine
                yield from _flat(field.name, getattr(run, field.name))
    for end in evidence.ends[-1:]:
        yield "finished", end.finished


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Yield nested fields with dotted names, as ``environment.packages.torch``, down to three levels."""
    if isinstance(value, Mapping) and name.count(".") < 3:
        for key, entry in value.items():
            yield from _flat(f"{name}.{key}", entry)
    elif isinstance(value, (list, tuple)):
        yield name, ",".join(map(str, value))
    elif value is not None:
        yield name, str(value)


def _telemetry(measured: Measured) -> Iterator[tuple[str, str]]:
    yield "summary", measured.headline
    for row in measured.rows:
        for field, reason in row.unavailable.items():
            yield f"unavailable.{row.gpu}.{field}", reason


def _marks_by_group(evidence: Evidence) -> dict[str, list[str]]:
    """Return a dictionary from each group with marks to the marks of its cases, without duplicates."""
    by_case = marks_of(evidence)
    groups: dict[str, dict[str, None]] = {}
    for case in evidence.cases:
        groups.setdefault(case.group, {}).update(dict.fromkeys(by_case.get(case.id, ())))
    return {group: list(marks) for group, marks in groups.items() if marks}


def _nodeid(group: str, evidence: Evidence, cases: Mapping[str, list[Case]]) -> str:
    if group in evidence.plan:
        return evidence.plan[group].nodeid
    return cases[group][0].nodeid if group in cases else ""


def _file(nodeid: str) -> str:
    """Return the file of a node id, as ``conformance/rma/test_put.py``, or "" if it names none."""
    path = nodeid.partition("::")[0]
    return path if _FILE.fullmatch(path) else ""


def _class_name(nodeid: str) -> str:
    """Return the module of a node id, as ``conformance.rma.test_put``, or "" if it names no file."""
    return ".".join(part for part in _file(nodeid).removesuffix(".py").split("/") if part)


def _time(seconds: float) -> str:
    """Return seconds in the schema's format: at most three decimals."""
    return f"{seconds:.3f}" if 0 <= seconds < 1e12 else "0.000"


def _make_plain(root: Element) -> None:
    """Bound every text and make it printable, which also removes every character that XML does not allow."""
    for element in root.iter():
        if element.text:
            element.text = plain(cut(element.text, _TEXT_CHARACTERS), lines=True)
        for name, value in element.attrib.items():
            element.set(name, plain(cut(value, _ATTRIBUTE_CHARACTERS)))
