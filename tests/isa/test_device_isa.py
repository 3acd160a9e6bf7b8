"""Table of the code of device operations: docs/device-isa.md is the current output of the benchmark."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import triton

from benchmarks.device_isa import DTYPES, TARGETS
from tests import python

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "device-isa.md").read_text(encoding="utf-8")


def table(text: str) -> list[list[str]]:
    """The cells of all rows about operations."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return [row for row in rows if row[0] in DTYPES]


def test_the_page_is_whole_and_every_remote_access_of_a_transfer_is_16_bytes_wide():
    rows = table(PAGE)
    forms = PAGE.count("\n## ")
    assert forms in (2, 3)
    assert len(rows) == forms * sum(map(len, DTYPES.values()))
    for op, dtype, *cells in rows:
        assert len(cells) == len(TARGETS)
        for cell in cells:
            _, accesses, _, spills = cell.split(" · ")
            assert spills == "0", (op, dtype, cell)
            if not op.startswith("atomic"):
                assert re.fullmatch(r"\d+ x 16", accesses), (op, dtype, cell)


@pytest.mark.nightly
def test_the_page_says_what_is_compiled_now():
    done = python.run(
        [sys.executable, "-m", "benchmarks.device_isa", "--ops", "put", "--arch", "gfx942", "sm_90"],
        timeout=300,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = table(done.stdout)
    assert len(rows) in (2 * len(DTYPES["put"]), 3 * len(DTYPES["put"]))
    if f"with Triton {triton.__version__}." not in PAGE:
        pytest.skip(f"the page is about another Triton than {triton.__version__}")
    page = [[row[0], row[1], row[2], row[4]] for row in table(PAGE) if row[0] == "put"]
    assert all(row in page for row in rows), (rows, page)
