"""Make docs/report.png: the report of a real run of a library with two planted defects, in Chromium.

    python -m tests.reports.picture

It takes about half a minute, and needs Chromium and its driver.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

from PIL import Image

from harness.evidence import Evidence, read
from mutants.listed import DEFECTS
from mutants.planting import plant
from reports import render_html
from tests.planted import run_suite
from tests.reports import chromium

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "report.png"
LIMIT = 150_000
"""Bytes of the picture at most."""

_BUGS = ("store: mask ignored", "triton get: of oneself")
_TESTS = ("conformance/rma/test_store.py", "conformance/rma/test_get.py")


def main() -> None:
    """Run the suite on the defective library and take the picture."""
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder, "report.html")
        page.write_text(render_html(_anonymous(_red(Path(folder)), folder)), "utf-8")
        with chromium.started(Path(folder, "chromium")) as browser:
            chromium.resize(browser, 1200, 1740)
            chromium.emulate(browser)
            browser.get(page.as_uri())
            browser.execute_script("document.documentElement.style.scrollbarWidth = 'none'")
            browser.execute_script("document.getElementById('failures').remove()")
            browser.save_screenshot(str(PICTURE))
    Image.open(PICTURE).convert("P", palette=Image.Palette.ADAPTIVE, colors=256).save(PICTURE, optimize=True)
    size = PICTURE.stat().st_size
    if size > LIMIT:
        raise SystemExit(f"{PICTURE} has {size:,} bytes; at most {LIMIT:,} are allowed: take fewer lines of the page")
    print(f"{PICTURE}: {size:,} bytes")


def _red(folder: Path) -> Evidence:
    bugs = [next(defect for defect in DEFECTS if defect.name == name) for name in _BUGS]
    plant(bugs[0], folder, *bugs[1:])
    run_suite(folder, *_TESTS, "-k", "int8 or fp16", "--ranks", "2", "--profile", "ci", timeout=500)
    return read(folder / "evidence.jsonl")


def _anonymous(evidence: Evidence, folder: str) -> Evidence:
    """Return the evidence with short paths in the commands that repeat a case, since those name this machine."""
    for place, case in enumerate(evidence.cases):
        repeat = f"iris-harness replay {case.id}"
        evidence.cases[place] = dataclasses.replace(case, repeat=repeat)
    root = str(PICTURE.parents[1])
    for groups in evidence.groups.values():
        for place, group in enumerate(groups):
            stores = tuple(
                {name: _short(value, folder, root) for name, value in store.items()} for store in group.stores
            )
            groups[place] = dataclasses.replace(group, stores=stores)
    return evidence


def _short(value: object, *folders: str) -> object:
    if isinstance(value, str):
        for folder in folders:
            value = value.replace(f"{folder}/", "")
    return value


if __name__ == "__main__":
    main()
