"""The judgement where developers look: a job summary and a comment in Markdown, annotations on changed lines; and a
file for programs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from command_line.gate.changes import Base
from command_line.gate.choose import Choice, groups_of_reasons
from command_line.gate.figures import RED, Row
from command_line.gate.judge import Judgement
from command_line.gate.units import Unit
from command_line.publishing import written
from harness.evidence import Case, Evidence, Verdict
from harness.files import write_whole
from harness.printable import plain
from reports.causes import stores_of
from reports.symptoms import symptom_of
from reports.text import cut, markdown_row, plural

SUMMARY, COMMENT = "summary.md", "comment.md"
ANNOTATIONS, QUALITY, RESULT = "annotations.txt", "code-quality.json", "gate.json"
FILES = (SUMMARY, COMMENT, ANNOTATIONS, QUALITY, RESULT)

SUMMARY_BYTES, COMMENT_BYTES = 900_000, 60_000
"""GitHub cuts off a job summary beyond a mebibyte, and refuses a comment beyond 65,536 characters."""

_ROWS, _FEW, _NAMES = 200, 10, 6
_CELL = 400


@dataclass(frozen=True)
class Annotation:
    """A remark on a line of a file of the repository. ``bad``: an error, else a warning."""

    file: str
    line: int
    title: str
    message: str
    bad: bool = True


@dataclass(frozen=True)
class Gate:
    """Everything that is published. ``base`` and ``rows`` may be missing; ``notes`` are sentences about the run."""

    evidence: Evidence
    judgement: Judgement
    choice: Choice
    base: Base | None
    rows: Sequence[Row]
    broken: Sequence[str]
    notes: Sequence[str]
    units: Mapping[str, Unit]
    prefix: str
    """The folder of the package's parent, relative to the repository, "" if it is the root."""
    of_base: Mapping[str, Verdict] = field(default_factory=dict)
    """Verdicts of the base for groups that the head fails, as far as they ran."""
    code: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The kernels of chosen requirements, in base and head, as ``planned.Code``, by requirement and target."""


def write(gate: Gate, folder: Path) -> bool:
    """Write all files into ``folder``. Returns False, after the reason is printed, if one could not be written."""
    noted = list(remarks(gate))
    files = {
        SUMMARY: summary(gate),
        COMMENT: comment(gate),
        ANNOTATIONS: "".join(f"{github(one)}\n" for one in noted),
        QUALITY: json.dumps([quality(one) for one in noted], indent=1) + "\n",
        RESULT: json.dumps(_plain(gate), indent=1) + "\n",
    }
    writers = {name: partial(write_whole, text=text) for name, text in files.items()}
    return all([written(folder / name, write) for name, write in writers.items()])  # noqa: C419 - each is tried


def summary(gate: Gate) -> str:
    """Return the job summary."""
    return _fitting(gate, _ROWS, SUMMARY_BYTES)


def comment(gate: Gate) -> str:
    """Return the text of a comment: the same with short tables."""
    return _fitting(gate, _FEW, COMMENT_BYTES)


def remarks(gate: Gate) -> Iterator[Annotation]:
    """Yield a remark for each failing group and each figure that is worse, on a changed line if there is one for it."""
    for result in gate.judgement.failures:
        for case in result.failing:
            if case.verdict is Verdict.PASS:
                continue
            file, line = _place_of(gate, result.id, case)
            yield Annotation(file, line, f"{case.group}: {case.verdict}", f"{case.message}\nrepeat: {case.repeat}")
    fallback = _changed_place(gate, gate.choice.changed)
    for row in gate.rows:
        if row.change == RED and fallback is not None:
            yield Annotation(*fallback, f"{row.figure} is worse", row.sentence)
    for sentence in gate.broken:
        if fallback is not None:
            yield Annotation(*fallback, "a contract is broken", sentence)


def github(one: Annotation) -> str:
    """Return the workflow command of GitHub Actions that makes an annotation."""
    place = f"file={_property(one.file)},line={one.line},title={_property(plain(one.title))}"
    return f"::{'error' if one.bad else 'warning'} {place}::{_data(_lines(one.message))}"


def quality(one: Annotation) -> dict[str, Any]:
    """Return the entry of GitLab's Code Quality report for an annotation."""
    text = f"{one.title}: {one.message}"
    return {
        "description": cut(plain(" ".join(text.split())), 1000),
        "check_name": "iris-harness gate",
        "fingerprint": hashlib.sha256(f"{one.file}\n{one.title}".encode()).hexdigest(),
        "severity": "critical" if one.bad else "minor",
        "location": {"path": one.file, "lines": {"begin": one.line}},
    }


# -- Markdown ----------------------------------------------------------------------------------------------------------


def _fitting(gate: Gate, rows: int, limit: int) -> str:
    """Return the Markdown with tables of at most ``rows`` rows, fewer if it is longer than ``limit`` bytes."""
    while True:
        text = "\n".join([*_markdown(gate, rows), ""])
        if len(text.encode()) <= limit or rows == 0:
            return text.encode()[:limit].decode("utf-8", "ignore")
        rows //= 2


def _markdown(gate: Gate, rows: int) -> Iterator[str]:
    judged = gate.judgement
    yield f"## iris-harness gate: {judged.word.text}"
    yield ""
    against = f" Compared with `{gate.base.short}`." if gate.base is not None else ""
    count = len(gate.choice.reasons)
    total = count + len(gate.choice.rest)
    headline = f"{judged.headline[0].upper()}{judged.headline[1:]}"
    yield f"{headline}. The change can affect {count} of {total} requirements.{against}"
    if judged.failures:
        cells = [
            (case.group, str(case.verdict), _in_base(gate, case.group), case.message, case.repeat)
            for one in judged.failures
            for case in one.failing
        ]
        yield from _table("Failures", ("group", "verdict", "base", "first difference", "repeat"), cells, rows)
    yield from _list("Undecided", judged.unclear, rows)
    yield from _list("Contracts that the base does not break", gate.broken, rows)
    if gate.rows:
        order = sorted(gate.rows, key=lambda row: row.change != RED)
        lines = [(row.subject, row.target, row.figure, row.before, row.after, row.change) for row in order]
        yield from _table("Figures that changed", ("kernel", "target", "figure", "base", "head", ""), lines, rows)
    reasons = [(reason, str(len(names)), _names(names)) for reason, names in groups_of_reasons(gate.choice).items()]
    yield from _table("What ran first, and why", ("reason", "requirements", ""), reasons, rows)
    yield from _code(gate, rows)
    if judged.idle_rest or judged.idle_chosen:
        names = list(dict.fromkeys(group.partition("[")[0] for group in (*judged.idle_chosen, *judged.idle_rest)))
        title = f"Did not run: {plural(len(judged.idle_chosen) + len(judged.idle_rest), 'group')}"
        yield from _list(title, [_names(names, 40)], rows)
    yield from _list("Notes", gate.notes, rows)


def _code(gate: Gate, rows: int) -> Iterator[str]:
    """Yield the table of the requirements whose kernels have other code than the base's, and a line for the others."""
    other = {name: table for name, table in gate.code.items() if any(one.other for one in table.values())}
    same = [name for name, table in gate.code.items() if all(one.is_same for one in table.values())]
    cells = [(name, "; ".join(f"{arch}: {one.words}" for arch, one in table.items())) for name, table in other.items()]
    yield from _table("Kernels with other code", ("requirement", "kernels"), cells, rows)
    if same:
        yield from ("", f"All kernels of {plural(len(same), 'chosen requirement')} have the same code: {_names(same)}.")


def _in_base(gate: Gate, group: str) -> str:
    return str(gate.of_base.get(group, "\N{EN DASH}"))


def _table(title: str, columns: Sequence[str], cells: Sequence[Sequence[str]], rows: int) -> Iterator[str]:
    if not cells:
        return
    yield from ("", f"### {title}", "", markdown_row(columns), markdown_row(["---"] * len(columns)))
    for row in cells[:rows]:
        yield markdown_row(plain(cut(" ".join(cell.split()), _CELL)) for cell in row)
    if len(cells) > rows:
        yield from ("", f"... and {len(cells) - rows:,} more, in {RESULT} and report.html")


def _list(title: str, sentences: Sequence[str], rows: int) -> Iterator[str]:
    if not sentences:
        return
    yield from ("", f"### {title}", "")
    for sentence in sentences[:rows]:
        row = markdown_row([plain(cut(" ".join(sentence.split()), 2 * _CELL))])
        yield f"- {row.removeprefix('| ').removesuffix(' |')}"
    if len(sentences) > rows:
        yield f"- ... and {len(sentences) - rows:,} more, in {RESULT}"


def _names(names: Sequence[str], shown: int = _NAMES) -> str:
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return f"{', '.join(names[:shown])}{more}"


# -- annotations -------------------------------------------------------------------------------------------------------


def _place_of(gate: Gate, requirement: str, case: Case) -> tuple[str, int]:
    """Return the file and line of a failure: the line that failed if it is in the repository, best one that the change
    touches; else a changed line of a unit that the requirement reaches; else the test."""
    file, _, line = _source_of(gate, case).partition(":")
    number = line.partition(":")[0]
    known = {unit.file for unit in gate.units.values()}
    inside = next((name for name in known if file and (file == name or file.endswith(f"/{name}"))), None)
    failed = (_in_repository(gate, inside), int(number)) if inside and number.isdigit() else None
    if failed is not None and _is_changed(gate, *failed):
        return failed
    touched = [
        unit for unit in gate.choice.changed if any(unit in text for text in gate.choice.reasons.get(requirement, ()))
    ]
    place = _changed_place(gate, touched) or failed or _changed_place(gate, gate.choice.changed)
    return place or (case.nodeid.partition("::")[0], 1)


def _source_of(gate: Gate, case: Case) -> str:
    """Return the line of the library that caused a failure, "" if it is not known."""
    statement = gate.evidence.statements.get(case.requirement)
    return symptom_of(case, statement, stores_of(gate.evidence, case)).source


def _changed_place(gate: Gate, units: Iterable[str]) -> tuple[str, int] | None:
    """Return the first changed line in one of the units."""
    if gate.base is None:
        return None
    for name in units:
        if (unit := gate.units.get(name)) is None:
            continue
        file = _in_repository(gate, unit.file)
        for first, last in gate.base.lines.get(file, ()):
            if first <= unit.last and last >= unit.first:
                return file, max(first, unit.first)
    return None


def _is_changed(gate: Gate, file: str, line: int) -> bool:
    return gate.base is not None and any(first <= line <= last for first, last in gate.base.lines.get(file, ()))


def _in_repository(gate: Gate, file: str) -> str:
    return f"{gate.prefix}/{file}" if gate.prefix else file


def _lines(text: str) -> str:
    return "\n".join(plain(cut(line, 1000)) for line in text.splitlines()[:20])


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _plain(gate: Gate) -> dict[str, Any]:
    judged = gate.judgement
    return {
        "schema": 1,
        "judgement": judged.word.text,
        "status": judged.word.status,
        "base": None if gate.base is None else gate.base.commit,
        "planned": judged.planned,
        "ran": judged.ran,
        "failures": [one.id for one in judged.failures],
        "failures_of_base": {group: str(verdict) for group, verdict in gate.of_base.items()},
        "unclear": list(judged.unclear),
        "chosen": {name: list(reasons) for name, reasons in gate.choice.reasons.items()},
        "rest": list(gate.choice.rest),
        "changed": dict(gate.choice.changed),
        "not_run": {"chosen": list(judged.idle_chosen), "rest": list(judged.idle_rest)},
        "figures": [asdict(row) for row in gate.rows],
        "broken": list(gate.broken),
        "code": {name: {arch: asdict(one) for arch, one in table.items()} for name, table in gate.code.items()},
        "notes": list(gate.notes),
    }
