"""docs/report.md states what the page does."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from urllib.parse import parse_qs

from command_line.main import run as command
from reports import render_html
from reports.facets import FACETS
from tests.evidence import samples
from tests.reports import huge
from tests.reports import test_benchmarks as benchmarks

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "report.md").read_text("utf-8")
KEYS = {"q", "verdict", "sort", *FACETS}


def test_the_commands_write_the_report(tmp_path, monkeypatch, capsys):
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    place = tmp_path / "out" / "certify"
    place.mkdir(parents=True)
    samples.write(place / "evidence.jsonl", samples.green())
    benchmarks.written(tmp_path / "out" / "bench", benchmarks.results(run=samples.run()))
    monkeypatch.chdir(tmp_path)
    for block, measured in zip(blocks, (False, True), strict=True):
        assert command(shlex.split(block)[1:]) == 0
        assert "Report: " in capsys.readouterr().out
        assert ('id="bench"' in (place / "report.html").read_text()) == measured


def test_the_keys_of_links_are_those_of_the_filter():
    [link] = re.findall(r"`report\.html#(\w+=[^`]*)`", PAGE)
    assert set(parse_qs(link)) <= KEYS
    [row] = [line for line in PAGE.splitlines() if link in line]
    assert set(re.findall(r"`(\w+)`", row)) == KEYS - {"device"}
    controls = re.findall(r'<(?:input|select)[^>]* name="(\w+)"', render_html(huge.evidence(numbers=2, cases=1)))
    assert set(controls) == KEYS - {"device"}, "one run has one device"


def test_each_section_is_named():
    titles = re.findall(r'<h2 id="[^"]*">(.*?)</h2>', render_html(huge.evidence(numbers=2, cases=1)))
    table = PAGE.partition("| section |")[2].partition("\n\n")[0].lower()
    for word in ("causes", "failing groups", "operations by type", "requirements", "time", "kernels", "environment"):
        assert word in table
        assert any(word.removesuffix("s") in title.lower() for title in titles), word
