"""The dashboard: each planted change is on it; it is one page without network, script and foreign markup."""

import re
from html.parser import HTMLParser

import pytest

from command_line.main import run as command
from history import History
from history.charts import parts_of
from history.dashboard import render
from tests.history import planted
from tests.history.planted import BREAKS, BROKEN, COMMITS, FLAKY, NODE, STEADY, STEPS, night_of
from tests.reports import chromium


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return planted.plant(tmp_path_factory.mktemp("history") / "h.sqlite", nights=BREAKS + 1)


@pytest.fixture(scope="module")
def page(file):
    with History(file) as history:
        return render(history, "8x MI300X <b>")


def section(page, name):
    return re.search(rf'<section id="{name}".*?</section>', page, re.DOTALL)[0]


def test_each_planted_change_is_in_its_section(page):
    failed = section(page, "failed")
    assert BROKEN in failed and COMMITS[BREAKS][:12] in failed and COMMITS[BREAKS - 1][:12] in failed
    assert night_of(BREAKS) in failed
    assert FLAKY in section(page, "flaky") and BROKEN not in section(page, "flaky")
    trends = section(page, "trends")
    assert "iris.busbw_gbs" in trends and f"in {night_of(STEPS)}" in trends and "nccl" not in trends
    assert f"seconds {STEADY}" in trends and "drifts by +" in trends
    assert f"instructions {STEADY} put_kernel" in trends
    rows = dict(
        re.findall(r'<th scope="row">(node-.)</th>.*?(\d+)</td><td class="number">1</td>', section(page, "nodes"))
    )
    assert int(rows["node-b"]) >= 8 > int(rows["node-a"])
    assert NODE in section(page, "groups") and STEADY not in section(page, "groups")
    assert section(page, "nights").count("<svg") == BREAKS + 1


def test_mended_groups_are_listed_in_their_night(tmp_path):
    with History(planted.plant(tmp_path / "h", nights=planted.MENDS + 1)) as history:
        assert planted.MENDED in section(render(history), "mended")


def test_the_page_loads_nothing_and_escapes_text(page, tmp_path):
    assert "default-src 'none'; style-src 'unsafe-inline'" in page
    assert "<script" not in page and "8x MI300X &lt;b&gt;" in page
    parser = _Links()
    parser.feed(page)
    assert parser.links and all(link.startswith("#") for link in parser.links)
    hostile = "<img src=x onerror=alert(1)>"
    with History(planted.plant(tmp_path / "h", nights=12)) as history:
        history.execute("UPDATE verdict SET message = ?, name = name || ? WHERE verdict = 'fail'", hostile, hostile)
        history.execute("UPDATE run SET node = ? WHERE node = 'node-a'", hostile)
        history.execute("UPDATE measure SET metric = ?  WHERE metric LIKE '%iris%'", f"bench.{hostile}")
        assert "<img" not in render(history)


class _Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.links = []

    def handle_starttag(self, tag, attrs):
        self.links += [value for name, value in attrs if name in ("href", "src", "action")]


def test_one_failure_among_thousands_is_visible():
    parts = parts_of({"fail": 1, "pass": 9999}, ["fail", "pass"])
    assert [part.verdict for part in parts] == ["fail", "pass"] and parts[0].width > 0.9
    assert sum(part.width for part in parts) == pytest.approx(100, abs=0.1)


def test_the_command_writes_the_page_and_refuses_a_missing_or_empty_history(file, tmp_path, capsys):
    assert command(["dashboard", str(file), "--output", str(tmp_path / "site")]) == 0
    assert (tmp_path / "site" / "index.html").read_text("utf-8").startswith("<!doctype html>")
    assert command(["dashboard", str(tmp_path / "none"), "--output", str(tmp_path / "other")]) == 2
    with History(tmp_path / "empty", create=True):
        pass
    assert command(["dashboard", str(tmp_path / "empty"), "--output", str(tmp_path / "other")]) == 2
    assert not (tmp_path / "other").exists() and not (tmp_path / "none").exists()


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_fits_a_phone_and_a_wide_window(page, tmp_path_factory, width, scheme):
    folder = tmp_path_factory.mktemp("site")
    (folder / "index.html").write_text(page, "utf-8")
    with chromium.started(tmp_path_factory.mktemp("chromium"), script=False) as browser:
        chromium.resize(browser, width)
        chromium.emulate(browser, scheme=scheme)
        browser.get((folder / "index.html").as_uri())
        metrics = browser.execute_cdp_cmd("Page.getLayoutMetrics", {})
        assert metrics["cssContentSize"]["width"] <= width, "the page scrolls sideways"
        assert chromium.errors(browser) == []
        shown = browser.find_elements("css selector", "section h2")
        assert len(shown) == 8 and all(each.is_displayed() for each in shown)
