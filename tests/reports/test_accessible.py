"""WCAG 2.1 A and AA: axe-core, the checker that browsers' tools use, finds nothing in reports, in all their forms.

axe-core comes from npm, since the releases on PyPI are from 2022. It sees about half of the criteria; keyboard, paper
and phones are in ``test_browser``.
"""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.evidence import read
from reports import render_html
from tests.evidence import samples
from tests.reports import chromium, huge

pytestmark = pytest.mark.nightly
AXE = "axe-core@4.14.1"
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]
RUN = """
const done = arguments[arguments.length - 1];
axe.run(document, {runOnly: arguments[0]}).then(
  found => done(found.violations.map(each => [each.id, each.help, each.nodes.length, each.nodes[0].html])),
  error => done([["axe", String(error), 0, ""]]));
"""


@pytest.fixture(scope="module")
def axe(tmp_path_factory):
    """The source of axe-core."""
    if not shutil.which("npm"):
        pytest.skip("needs npm")
    folder = tmp_path_factory.mktemp("axe")
    command = ["npm", "install", "--no-audit", "--no-fund", "--silent", "--ignore-scripts", AXE]
    if subprocess.run(command, cwd=folder, capture_output=True, timeout=120, check=False).returncode:
        pytest.skip(f"needs the npm package {AXE}, and npm could not install it")
    return (folder / "node_modules" / "axe-core" / "axe.min.js").read_text("utf-8")


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with chromium.started(tmp_path_factory.mktemp("chromium")) as started:
        yield started


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Pages by name: a green, a red, a long run, and one on GPUs."""
    folder = tmp_path_factory.mktemp("pages")
    runs = {"green": samples.green(), "red": samples.red(), "gpus": samples.on_gpus()}
    evidence = {name: read(samples.write(folder / f"{name}.jsonl", listed)) for name, listed in runs.items()}
    evidence["long"] = huge.evidence(numbers=5, cases=2)
    return {name: written(folder / f"{name}.html", render_html(each)) for name, each in evidence.items()}


def written(file: Path, text: str) -> str:
    file.write_text(text, "utf-8")
    return file.as_uri()


def violations(browser, axe, address, *, width, scheme):
    """Return what axe finds on a page, with all that is folded opened: rule, its words, how often, the first place."""
    chromium.resize(browser, width)
    chromium.emulate(browser, scheme=scheme)
    browser.get(address)
    browser.execute_script("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    browser.execute_script(axe)
    return browser.execute_async_script(RUN, TAGS)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
@pytest.mark.parametrize("name", ["green", "red", "gpus", "long"])
def test_axe_finds_nothing(browser, axe, pages, name, width, scheme):
    browser.set_script_timeout(120)
    broken = violations(browser, axe, pages[name], width=width, scheme=scheme)
    assert broken == [], json.dumps(broken, indent=1)


@pytest.mark.parametrize(
    ("before", "after", "rule"),
    [
        ('<html lang="en"', "<html", "html-has-lang"),
        ("</main>", '<p style="color:#999;background:#aaa">pale</p></main>', "color-contrast"),
        ("</main>", '<button></button><img src="data:,"></main>', "button-name"),
    ],
)
def test_planted_a_page_that_breaks_a_criterion(browser, axe, tmp_path, before, after, rule):
    text = render_html(read(samples.write(tmp_path / "evidence.jsonl", samples.red())))
    assert before in text
    page = written(tmp_path / "broken.html", text.replace(before, after, 1))
    broken = violations(browser, axe, page, width=1400, scheme="light")
    assert rule in {each[0] for each in broken}
