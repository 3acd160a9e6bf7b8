"""Comparison of two runs: one comparison, three renderings, and an exit status that scripts can use."""

import dataclasses

import pytest

from command_line.main import run
from harness.evidence import Group, Verdict, read
from reports import compare, comparison_html, comparison_markdown
from tests.evidence import samples
from tests.evidence.samples import ADD, ADD_GROUP, PUT_GROUP
from tests.reports.runs import poisoned


def compared(tmp_path, before, after):
    files = [samples.write(tmp_path / f"{name}.jsonl", records) for name, records in (("a", before), ("b", after))]
    return compare(*map(read, files))


def section(comparison, title):
    return next((each.rows for each in comparison.sections if each.title == title), ())


def test_equal_runs_have_no_change(tmp_path):
    comparison = compared(tmp_path, samples.green(), samples.green())
    assert not comparison.worse
    assert [each.title for each in comparison.sections] == ["Runs"]
    assert comparison.headline.startswith("0 new failures, 0 mended, 0 failed in both, 0 changes of compiled code")


def test_a_new_failure_is_named_by_its_cause(tmp_path):
    comparison = compared(tmp_path, samples.green(), samples.red())
    assert comparison.worse
    [(cause, group, replay)] = section(comparison, "New failures")
    assert (cause, group) == ("atomic_add gave a wrong result: old value", ADD_GROUP)
    assert replay == f"iris-harness replay {samples.failing_case().id}"


def test_a_mended_group_is_listed_and_makes_nothing_worse(tmp_path):
    comparison = compared(tmp_path, samples.red(), samples.green())
    assert not comparison.worse
    assert section(comparison, "Mended")[0][1] == ADD_GROUP


def test_what_failed_in_both_is_not_new(tmp_path):
    comparison = compared(tmp_path, samples.red(), samples.red())
    assert not comparison.worse
    assert section(comparison, "Failed in both")


def test_a_group_that_no_longer_runs_is_worse(tmp_path):
    comparison = compared(tmp_path, samples.green(), [*samples.green()[:6], samples.end(1)])
    assert comparison.worse
    assert section(comparison, "Groups that no longer ran") == ((ADD_GROUP,),)


def test_compiled_code_is_compared_for_the_same_cases(tmp_path):
    code = {**samples.kernel().fingerprint, "vgprs": 30}
    other = dataclasses.replace(samples.kernel(), fingerprint=code, listing_sha256="2" * 64)
    changed = [other if record == samples.kernel() else record for record in samples.green()]
    comparison = compared(tmp_path, samples.green(), changed)
    assert section(comparison, "Compiled code") == (("put_kernel", "registers 22 → 30", "1 variant"),)


def test_a_changed_time_is_listed_without_compilation(tmp_path):
    slow = samples.case(3, requirement=ADD, timing={"seconds": 9.25, "compile_seconds": 5.0})
    ended = Group(ADD_GROUP, ADD, Verdict.PASS, 1)
    comparison = compared(tmp_path, samples.green(), [*samples.green()[:6], slow, ended, samples.end(0)])
    assert section(comparison, "Time") == ((ADD_GROUP, "0.25 s", "4.25 s", "17.0"),)


def test_hostile_text_is_escaped_in_every_rendering(tmp_path):
    comparison = compared(tmp_path, samples.green(), poisoned())
    page, text = comparison_html(comparison), comparison_markdown(comparison)
    assert "<script>" not in page
    assert "<script>" not in text.replace("\\<", "")
    assert all(letter.isprintable() or letter == "\n" for letter in page + text)


@pytest.mark.parametrize("form", ["table", "markdown", "html"])
def test_the_command_prints_each_form_and_returns_its_status(tmp_path, capsys, form):
    green = samples.write(tmp_path / "a.jsonl", samples.green())
    red = samples.write(tmp_path / "b.jsonl", samples.red())
    assert run(["compare", str(green), str(red), "--format", form]) == 1
    assert "New failures" in capsys.readouterr().out
    assert run(["compare", str(red), str(green), "--format", form]) == 0


def test_bad_input_has_status_2(tmp_path, capsys):
    green = samples.write(tmp_path / "a.jsonl", samples.green())
    assert run(["compare", str(green), str(tmp_path / "missing.jsonl")]) == 2
    damaged = tmp_path / "c.jsonl"
    damaged.write_bytes(green.read_bytes().replace(PUT_GROUP.encode(), b"x", 1))
    assert run(["compare", str(green), str(damaged)]) == 2
    assert run(["compare", str(green), str(green), "--output", "x"]) == 2
    assert "--output needs" in capsys.readouterr().err


def test_the_output_file_has_the_page(tmp_path):
    green = samples.write(tmp_path / "a.jsonl", samples.green())
    assert run(["compare", str(green), str(green), "--format", "html", "--output", str(tmp_path / "page.html")]) == 0
    assert "0 new failures" in (tmp_path / "page.html").read_text(encoding="utf-8")
