"""Summary, comment, annotations and the file for programs, from a run with a failure."""

import json
import re

import pytest

from command_line.gate import publish
from command_line.gate.changes import Base
from command_line.gate.choose import Choice
from command_line.gate.figures import NOTE, RED, Row
from command_line.gate.judge import judged
from command_line.gate.publish import Annotation, github, quality
from command_line.gate.units import Sources
from harness.evidence import Group, Verdict, read
from tests.evidence import samples
from tests.gate import library

ADD = samples.ADD
UNIT = "lib/core/helpers.py:checked"


@pytest.fixture
def folder(tmp_path):
    return library.write(tmp_path / "repository")


def gate_of(folder, tmp_path, records=None, prefix="", **changes):
    evidence = read(samples.write(tmp_path / "e.jsonl", records or samples.red()))
    choice = Choice({ADD: (f"it reaches {UNIT}, which changed",)}, (samples.PUT,), changed={UNIT: "changed"})
    lines = {f"{prefix}lib/core/helpers.py": ((2, 2),)}
    base = Base("main", "0" * 40, folder, folder / "lib", tuple(lines), lines)
    values = {
        "evidence": evidence, "judgement": judged(evidence, choice), "choice": choice, "base": base, "rows": (),
        "broken": (), "notes": (), "units": Sources(folder / "lib").units, "prefix": prefix.rstrip("/"),
    }  # fmt: skip
    return publish.Gate(**{**values, **changes})


def test_all_files_are_written(folder, tmp_path):
    publish.write(gate_of(folder, tmp_path), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} >= set(publish.FILES)
    plain = json.loads((tmp_path / publish.RESULT).read_text())
    assert (plain["judgement"], plain["status"], plain["failures"]) == ("red", 1, [ADD])


def test_the_summary_states_judgement_failure_reason_and_repeat(folder, tmp_path):
    text = publish.summary(gate_of(folder, tmp_path))
    assert text.startswith("## iris-harness gate: red\n\nRed: 2 of 2 groups ran, 1 of them did not pass.")
    assert "The change can affect 1 of 2 requirements. Compared with `000000000000`." in text
    assert "iris-harness replay 0123456789abcdef" in text
    assert "it reaches lib/core/helpers.py:checked, which changed" in text


def test_text_of_the_library_cannot_write_markdown(folder, tmp_path):
    bad = samples.case(7, requirement=ADD, verdict=Verdict.FAIL, message="a|b\n<img src=x> [c](d)")
    group = Group(samples.ADD_GROUP, ADD, Verdict.FAIL, 1, failing_case=bad.id, message="x")
    text = publish.summary(gate_of(folder, tmp_path, [*samples.green()[:6], bad, group, samples.end(1)]))
    row = next(line for line in text.splitlines() if samples.ADD_GROUP.partition("[")[0] in line and "src=x" in line)
    assert r"a\|b \<img src=x> \[c\](d)" in row


def test_a_comment_fits_the_limit_of_github(folder, tmp_path):
    rows = [Row(f"call {n}", "gfx942", "x" * 300, "1", "2", NOTE) for n in range(5000)]
    gate = gate_of(folder, tmp_path, rows=rows, broken=["y" * 3000] * 100)
    assert len(publish.comment(gate).encode()) <= publish.COMMENT_BYTES
    assert "... and 4,990 more" in publish.comment(gate)
    assert len(publish.summary(gate).encode()) <= publish.SUMMARY_BYTES


def test_worse_figures_come_first(folder, tmp_path):
    rows = [Row("a", "gfx942", "waits", "1", "2", NOTE), Row("b", "gfx942", "spills", "0", "2", RED)]
    text = publish.summary(gate_of(folder, tmp_path, rows=rows))
    assert text.index("| b | gfx942 | spills") < text.index("| a | gfx942 | waits")


@pytest.mark.parametrize("prefix", ["", "python/"])
def test_a_failure_is_noted_on_the_changed_line(folder, tmp_path, prefix):
    (note,) = publish.remarks(gate_of(folder, tmp_path, prefix=prefix))
    assert (note.file, note.line) == (f"{prefix}lib/core/helpers.py", 2)
    assert "returned value differs" in note.message


def test_the_line_of_the_fault_is_preferred_if_it_changed(folder, tmp_path):
    bad = samples.case(
        7, requirement=ADD, verdict=Verdict.FAIL, message="KernelFault: bad address", fault="KernelFault: bad address",
        fault_source="/elsewhere/lib/core/helpers.py:2:9 @ /elsewhere/t.py:3:1",
    )  # fmt: skip
    group = Group(samples.ADD_GROUP, ADD, Verdict.FAIL, 1, failing_case=bad.id, message="x")
    gate = gate_of(folder, tmp_path, [*samples.green()[:6], bad, group, samples.end(1)])
    (note,) = publish.remarks(gate)
    assert (note.file, note.line) == ("lib/core/helpers.py", 2)


def test_a_red_figure_is_noted_too(folder, tmp_path):
    rows = [Row("b", "gfx942", "spills", "0", "2", RED), Row("a", "gfx942", "waits", "1", "2", NOTE)]
    notes = list(publish.remarks(gate_of(folder, tmp_path, samples.green(), rows=rows)))
    assert [note.title for note in notes] == ["spills is worse"]


def test_githubs_form_escapes():
    note = Annotation("a,b:c%.py", 3, "t: u, v", "one\ntwo 100%\r::error::x\x1b[2J")
    text = github(note)
    assert text.startswith("::error file=a%2Cb%3Ac%25.py,line=3,title=t%3A u%2C v::one%0Atwo 100%25")
    assert "\n" not in text
    assert "\x1b" not in text
    assert re.fullmatch(r"::error file=[^,]*,line=\d+,title=[^,:]*::.*", text)


def test_gitlabs_form_has_its_fields():
    entry = quality(Annotation("a.py", 3, "title", "message"))
    assert set(entry) == {"description", "check_name", "fingerprint", "severity", "location"}
    assert entry["location"] == {"path": "a.py", "lines": {"begin": 3}}
    assert entry["severity"] in {"info", "minor", "major", "critical", "blocker"}
    assert entry["fingerprint"] != quality(Annotation("b.py", 3, "title", "message"))["fingerprint"]
