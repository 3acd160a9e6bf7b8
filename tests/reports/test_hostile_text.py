"""Text of the evidence cannot control a terminal, be invisible, or make a report arbitrarily long."""

import dataclasses
import io
import re
import unicodedata

import pytest
from rich.console import Console

import reports.names
import reports.table
from harness.evidence import Group, Verdict, read
from reports import markdown, names_of, print_names, print_table, render_html, render_junit, view_of
from reports.text import cut, fields_of, plain
from tests.evidence import samples
from tests.evidence.samples import PUT, PUT_GROUP
from tests.reports import runs
from tests.reports.runs import POISON
from tests.reports.test_html import Outline

CATEGORIES = {"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"}
SEQUENCE = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="module")
def evidence(tmp_path_factory):
    return read(samples.write(tmp_path_factory.mktemp("hostile") / "evidence.jsonl", runs.poisoned()))


@pytest.fixture(scope="module")
def own_sequences(tmp_path_factory):
    """Return the colour sequences that the views themselves write, taken from a run with harmless text."""
    records = [*runs.partial(samples.red())[:-1], samples.telemetry(samples.case(1), marks=("hot",)), samples.end(1)]
    harmless = read(samples.write(tmp_path_factory.mktemp("harmless") / "evidence.jsonl", records))
    lacking = runs.unsupported(declaration=("declares put",))
    other = read(samples.write(tmp_path_factory.mktemp("lacking") / "evidence.jsonl", lacking))
    return set(SEQUENCE.findall(table_of(harmless) + names_table_of(harmless) + table_of(other)))


def terminal(show):
    console = Console(file=io.StringIO(), width=200, force_terminal=True, color_system="standard", legacy_windows=False)
    show(console)
    return console.file.getvalue()


def table_of(evidence):
    return terminal(lambda console: print_table(view_of(evidence), console))


def names_table_of(evidence):
    return terminal(lambda console: print_names(names_of([evidence]), console))


def unprintable(text, sequences=frozenset()):
    """Return the characters of ``text`` that act on a terminal, are invisible, or cannot be encoded.

    The colour ``sequences`` are allowed.
    """
    text = SEQUENCE.sub(lambda match: "" if match[0] in sequences else match[0], text)
    return {char for char in set(text) - {"\n"} if unicodedata.category(char) in CATEGORIES}


@pytest.mark.parametrize("show", [table_of, names_table_of])
def test_a_terminal_gets_no_control_characters_from_the_evidence(evidence, own_sequences, show):
    shown = show(evidence)
    assert unprintable(shown, own_sequences) == set()
    assert r"\x1b]0;owned\x07\x1b[31m\x9b2J\x7f\x00" in shown
    assert "\\u202e" in shown


@pytest.mark.parametrize(("module", "show"), [(reports.table, table_of), (reports.names, names_table_of)])
def test_without_the_filter_the_terminal_would_get_control_characters(
    evidence, own_sequences, monkeypatch, module, show
):
    monkeypatch.setattr(module, "plain", lambda text, **_: text)
    assert {"\x1b", "\u202e"} <= unprintable(show(evidence), own_sequences)


def test_one_line_stays_one_line(evidence):
    lines = [line for line in table_of(evidence).splitlines() if "iris-harness replay" in line]
    assert len(lines) == 2, "one from the case id, one recorded"
    assert "\\r\\n" in lines[1]


def test_the_markdown_table_is_one_line_per_name(evidence):
    names = names_of([evidence])
    text = markdown(names)
    assert unprintable(text) == set()
    assert sum(line.startswith("| `") for line in text.splitlines()) == len(names.rows)


@pytest.mark.parametrize("render", [render_html, render_junit])
def test_files_hold_nothing_invisible(evidence, render):
    text = render(evidence)
    assert unprintable(text) == set()
    assert text.count("<script") == (render is render_html), "the page's own script only"
    assert "[red]" in text


def test_the_attributes_of_the_page_hold_nothing_invisible(evidence):
    values = [value or "" for _, attributes in Outline(render_html(evidence)).tags for value in attributes.values()]
    assert any("owned" in value for value in values)
    assert unprintable("".join(values)) == set()


def test_plain():
    harmless = "as it is: ä, שלום, 日本, C:\\x, \N{NO-BREAK SPACE}"
    assert plain(harmless) == harmless
    assert plain("a\tb\nc\r") == r"a\tb\nc\r"
    assert plain("a\tb\nc\r", lines=True) == "a\tb\nc\\r"
    assert plain("\ud800\u061c\U000e0001") == r"\ud800\u061c\U000e0001"
    every = "".join(map(chr, range(0x110000)))
    assert {char for char in plain(every) if unicodedata.category(char) in CATEGORIES - {"Cn"}} <= VISIBLE
    assert plain(POISON * 2).isprintable()


VISIBLE = {char for char in map(chr, range(0x110000)) if unicodedata.category(char) == "Cf"} & set(
    map(chr, [*range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD, *range(0x13430, 0x13440)])
)
"""Visible format characters, which some scripts use."""


def test_a_long_text_is_cut_with_a_note():
    assert cut("short", 5) == "short"
    text = cut("a" * 500 + "b" * 500, 100)
    assert text.startswith("a" * 75 + " [... 900 characters are not shown: evidence.jsonl has them ...] b")
    assert text.endswith("b" * 25)


@pytest.mark.parametrize("show", [table_of, render_html, render_junit])
def test_huge_texts_are_cut_in_each_view(tmp_path, show):
    """Show a case whose message, fault, stack and field have 20 million characters each."""
    huge = "x" * 20_000_000
    bad = samples.case(
        1,
        verdict=Verdict.FAIL,
        message=huge,
        fault=huge,
        stacks={"0": huge},
        repeat=huge,
        case={"type": "Copy", "fields": {"text": huge, "list": [huge]}},
    )
    harmless = [samples.run(), samples.plan(), samples.kernel(), samples.case(1), samples.end(1)]
    evidence = read(samples.write(tmp_path / "evidence.jsonl", harmless))
    evidence.cases[:] = [bad]
    evidence.groups[PUT_GROUP] = [Group(PUT_GROUP, PUT, Verdict.FAIL, 1, failing_case=bad.id, message=huge)]
    text = show(evidence)
    assert len(text) < 400_000
    assert "characters are not shown: evidence.jsonl has them" in re.sub(r"\s+", " ", SEQUENCE.sub("", text))


def test_many_fields_stacks_failures_and_gaps_are_counted(tmp_path):
    fields = {f"field{number}": number for number in range(5000)}
    bad = samples.case(
        1, verdict=Verdict.FAIL, case={"type": "Copy", "fields": fields}, stacks={str(n): f"at {n}" for n in range(500)}
    )
    assert fields_of(bad)[-1] == ("…", "4,900 more fields, in evidence.jsonl")
    evidence = read(samples.write(tmp_path / "evidence.jsonl", [samples.run(), samples.plan(), samples.end(1)]))
    for number in range(300):
        group = f"{PUT}[number={number}]"
        evidence.cases.append(dataclasses.replace(bad, group=group, id=f"{number:016x}"))
        evidence.groups[group] = [Group(group, PUT, Verdict.FAIL, 1)]
    evidence.problems.extend(f"line {number} is not JSON" for number in range(5000))
    page = render_html(evidence)
    assert page.count('<article class="card') == 1, "the one cause"
    assert page.count('<details class="card') == 100, "the first failing groups"
    assert "… and 200 more, in evidence.jsonl" in page
    assert "… and 468 more, in evidence.jsonl" in page, "stacks of a case"
    assert page.count("is not JSON") == 1000
    assert len(page) < 4_000_000
