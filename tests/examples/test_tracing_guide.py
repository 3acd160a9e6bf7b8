"""The blocks of docs/tracing.md are one program, in which ``ctx`` is an Iris; it runs on two emulated ranks."""

import re
from pathlib import Path

import pytest

from tests.examples.test_guides import blocks, execute
from tests.iris.ranks import run_checks

GUIDE = Path(__file__).resolve().parents[2] / "docs/tracing.md"


def guide(ctx, rank, num_ranks):
    execute("\n\n".join(blocks(GUIDE)), ctx)


def a_wrong_guide_is_seen(ctx, rank, num_ranks):
    with pytest.raises(AssertionError):
        execute("\n\n".join(blocks(GUIDE)).replace("== 200 * 4", "== 200"), ctx)


CHECKS = [a_wrong_guide_is_seen, guide]


@pytest.fixture(scope="module")
def failures():
    return run_checks(CHECKS, num_ranks=2, heap_size=1 << 20, emulated=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", [check.__name__ for check in CHECKS])
def test_on_two_emulated_ranks(failures, name):
    assert failures[name] == "", failures[name]


def test_the_columns_are_those_of_the_buffers():
    from iris_under_test.host.tracing.export import COLUMNS

    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall(r"`(\w+)`", row)) == sorted(COLUMNS)


def test_links_lead_somewhere_and_no_machine_is_named():
    text = re.sub(r"```.*?```|`[^`\n]*`", "", GUIDE.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = {re.sub(r"\W+", "-", line).lower() for line in re.findall(r"^#+ (.*)$", text, re.MULTILINE)}
    for page, heading in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", text):
        assert (GUIDE.parent / page).exists() and (page or heading in headings), f"links to {page}#{heading}"
    assert not re.search(r"/(work|opt|root|home|tmp)/|https?://", text)
