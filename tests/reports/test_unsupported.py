"""Each view counts what a library does not support, with its reason, neither green nor red."""

import io

import pytest
from lxml import etree
from rich.console import Console

from command_line.publishing import PARTIAL, UNSUPPORTED, publish
from harness.evidence import Verdict, read
from reports import names_of, render_html, render_junit, view_of
from tests.evidence import samples
from tests.reports import runs
from tests.reports.runs import FREE
from tests.reports.test_completeness import in_colour, section, uncoloured, words

GREEN, RED = "\x1b[32m", "\x1b[1;31m"
REASON = "needs Iris.free: planned for release 2"
DECLARED = "iris_capabilities.toml declares put, which is not there"


def evidence_of(tmp_path, records):
    return read(samples.write(tmp_path / "evidence.jsonl", records))


def test_the_headline_counts_what_is_supported(tmp_path):
    report = view_of(evidence_of(tmp_path, runs.unsupported()))
    assert report.verdict is Verdict.UNSUPPORTED
    assert report.headline == "All 2 requirements that the library supports passed; 1 is unsupported."
    report = view_of(evidence_of(tmp_path / "published", runs.unsupported(api="published")))
    assert report.headline.startswith("All 2 requirements of the API published that the library supports passed")
    partial = runs.unsupported(left_out={f"{samples.PUT}[ranks=2]": "-k"})
    headline = view_of(evidence_of(tmp_path / "partial", partial)).headline
    assert headline.endswith("All 2 requirements of this run that the library supports passed; 1 is unsupported.")
    red = view_of(evidence_of(tmp_path / "red", runs.unsupported(samples.red())))
    assert red.headline.startswith("1 of 3 requirements passed, 1 failed, 1 is unsupported.")
    assert red.verdict is Verdict.FAIL


def test_a_library_that_supports_nothing(tmp_path):
    first, plan, *_ = runs.unsupported(groups=(), requirements=())
    [free] = runs.unsupported()[1].requirements[-1:]
    records = [first, type(plan)((), (free,), unsupported=plan.unsupported, capabilities=plan.capabilities)]
    evidence = evidence_of(tmp_path, [*records, samples.end(**{"pass": 0})])
    assert evidence.problems == [] and evidence.verdict() is Verdict.UNSUPPORTED
    assert view_of(evidence).headline == "The library supports none of the 1 requirement."
    assert publish(evidence, tmp_path, Console(file=io.StringIO())) == 1, "nothing passed"


def test_the_table_lists_it_with_the_reason_and_is_not_green(tmp_path):
    shown = in_colour(evidence_of(tmp_path, runs.unsupported()))
    plain = uncoloured(shown)
    assert f"1 item that the library does not support\n  {REASON}: {FREE}" in plain
    assert "1 of 3 capabilities present, 1 missing, 1 known only to a run" in plain
    assert "Iris.free   missing: planned for release 2" in plain and "put" not in plain.partition("capabilities")[2]
    assert f"{GREEN}All" not in shown and f"{RED}All" not in shown


def test_the_page_has_both_tables(tmp_path):
    page = render_html(evidence_of(tmp_path, runs.unsupported(api="published")))
    for piece in (FREE, "free releases memory", REASON):
        assert piece in section(page, "unsupported")
    assert "planned for release 2" in section(page, "capabilities") and "(a, b)" in section(page, "capabilities")
    assert 'class="verdict unsupported"' in page and "1 unsupported" in words(page)
    assert "published" in words(page)
    assert 'id="capabilities"' not in render_html(evidence_of(tmp_path / "none", samples.green()))


def test_junit_skips_it_and_states_the_reason(tmp_path):
    root = etree.fromstring(render_junit(evidence_of(tmp_path, runs.unsupported())).encode())
    [suite] = root.xpath(f"testsuite[@name='{FREE}']")
    [test] = suite.xpath("testcase")
    [skipped] = test.xpath("skipped")
    assert (skipped.get("type"), skipped.get("message"), suite.get("skipped")) == ("unsupported", REASON, "1")
    assert (root.get("failures"), root.get("errors")) == ("0", "0")
    held = {each.get("name"): each.get("value") for each in root.xpath("testsuite[@name='run']/properties/property")}
    assert (held["api"], held["unsupported"], held["verdict"]) == ("extended", "1", "unsupported")


def test_a_wrong_declaration_is_a_failure_in_each_view(tmp_path):
    records = runs.unsupported(declaration=(DECLARED,))
    records[-1] = samples.end(1)
    evidence = evidence_of(tmp_path, records)
    assert view_of(evidence).headline.endswith("1 is unsupported, 1 declared capability is missing.")
    assert DECLARED in uncoloured(in_colour(evidence))
    assert DECLARED in section(render_html(evidence), "capabilities")
    root = etree.fromstring(render_junit(evidence).encode())
    [failure] = root.xpath("testsuite[@name='capabilities']/testcase/failure")
    assert failure.get("message") == DECLARED and root.get("failures") == "1"
    assert publish(evidence, tmp_path, Console(file=io.StringIO())) == 1


@pytest.mark.parametrize(
    ("records", "status"),
    [
        (samples.green(), 0),
        (runs.complete(), 0),
        (runs.unsupported(), UNSUPPORTED),
        (runs.unsupported(left_out={f"{samples.PUT}[ranks=2]": "-k"}), PARTIAL),
        (runs.unsupported(samples.red()), 1),
    ],
)
def test_the_exit_status(tmp_path, records, status):
    assert publish(evidence_of(tmp_path, records), tmp_path, Console(file=io.StringIO())) == status


def test_a_name_of_it_did_not_pass(tmp_path):
    table = names_of([evidence_of(tmp_path, runs.unsupported())])
    [row] = [row for row in table.rows if row.name == "Iris.free"]
    assert row.cells[0].text == "unsupported" and not row.good
