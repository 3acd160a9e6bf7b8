"""Every recipe of CONTRIBUTING.md, applied as it stands there to a copy of the repository and run."""

import os
import re
import shlex
import sys

import pytest

from tests import python
from tests.recipes.page import ROOT, apply, copy, recipes

RECIPES = recipes()


@pytest.fixture
def scratch(tmp_path):
    return copy(tmp_path / "scratch")


def run(scratch, command, **environment):
    """A command of the page, with the packages of ``scratch``."""
    first, *rest = shlex.split(command)
    arguments = {"python": [], "iris-harness": ["-m", "command_line"]}[first]
    return python.run(
        [sys.executable, *arguments, *rest],
        cwd=scratch,
        env={**os.environ, "PYTHONPATH": str(scratch), "PYTHONDONTWRITEBYTECODE": "1", **environment},
        timeout=600,
    )


def passes(scratch, command):
    done = run(scratch, command)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_there_are_six():
    assert list(RECIPES) == [
        "An RMA op",
        "A collective",
        "An opcode",
        "A kind of device",
        "A requirement of your own",
        "A failing case",
    ]


@pytest.mark.parametrize("title", list(RECIPES))
def test_a_recipe_names_every_file_that_it_edits_and_fits_the_code(title, scratch):
    recipe = RECIPES[title]
    table = "\n".join(line for line in recipe.text.splitlines() if line.startswith("|"))
    for path in {hunk.path for hunk in recipe.hunks}:
        folder = path.rpartition("/")[0]
        assert title == "A failing case" or path in table or f"`{folder}/`" in table or "`test_*.py`" in table, path
    apply(recipe.hunks, scratch, backwards=title == "An opcode")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("title", "broken", "fault"),
    [
        ("An RMA op", "iris_under_test/device/gluon/context.py", ('to_rank, mask, "push")\n', "to_rank = 0\n")),
        (
            "A collective",
            "iris_under_test/ccl/exchange_rows.py",
            ('"exchange_rows", "own", "each"', '"exchange_rows", "own", "all"'),
        ),
    ],
)
def test_an_op_is_tested_by_what_the_recipe_adds(title, broken, fault, scratch):
    recipe = RECIPES[title]
    apply(recipe.hunks, scratch)
    for command in recipe.commands:
        passes(scratch, command)
    before, after = fault
    path = scratch / broken
    assert path.read_text().count(before) == 1
    after = before + " " * 8 + after if before.endswith("\n") else after
    path.write_text(path.read_text().replace(before, after))
    assert run(scratch, recipe.commands[0]).returncode == 1


@pytest.mark.nightly
def test_an_opcode(scratch):
    recipe = RECIPES["An opcode"]
    [command] = recipe.commands
    entry, meaning = recipe.hunks
    apply([entry, meaning], scratch, backwards=True)
    assert "1 passed" in passes(scratch, command)  # the coverage test alone: there is no such opcode
    apply([entry], scratch)
    untested = run(scratch, command)
    assert untested.returncode == 1
    assert "v_bfi_b32" in untested.stdout
    apply([meaning], scratch)
    assert "1 passed" not in passes(scratch, command)


@pytest.mark.nightly
def test_a_kind_of_device(scratch):
    recipe = RECIPES["A kind of device"]
    apply(recipe.hunks, scratch)
    [command] = recipe.commands
    done = run(scratch, command)
    assert done.returncode == 2
    assert re.fullmatch(r"iris-harness: device xpu cannot be used here: .*\n", done.stderr), done.stderr
    (scratch / "known.py").write_text(
        "from types import SimpleNamespace\nimport torch\nfrom triton.runtime import driver\n"
        "from iris_under_test.host.platform import kinds\n"
        "driver._active = SimpleNamespace(get_active_torch_device=lambda: torch.device('xpu'))\n"
        "print(type(kinds.current()).__name__, kinds.xcd_count())\n"
    )
    assert passes(scratch, "python known.py") == "XpuPlatform 1\n"


@pytest.mark.nightly
def test_a_requirement(scratch):
    recipe = RECIPES["A requirement of your own"]
    assert (ROOT / "tests/examples/test_own_op.py").exists()
    apply(recipe.hunks, scratch)
    [command] = recipe.commands
    assert "HOST-OWNRANK-001" in passes(scratch, f"{command} -v")


@pytest.mark.nightly
def test_a_failing_case_leads_to_the_line_at_fault(scratch):
    recipe = RECIPES["A failing case"]
    apply(recipe.hunks, scratch)
    path = scratch / "iris_under_test/device/gluon/context.py"
    lines = path.read_text().splitlines()
    planted = next(number for number, line in enumerate(lines) if "(1 << 40)" in line)
    store = next(n for n, line in enumerate(lines[planted:], start=planted + 1) if "gl.store(" in line)
    check, replay = recipe.commands
    state = str(scratch / "state")
    done = run(scratch, check, XDG_STATE_HOME=state)
    assert done.returncode == 1, done.stdout + done.stderr
    [case] = set(re.findall(r"([0-9a-f]{16})\.json", done.stdout)) or {None}
    assert case, done.stdout
    again = run(scratch, replay.replace("CASE", case[:8]), XDG_STATE_HOME=state)
    assert again.returncode == 1, again.stdout + again.stderr
    for output in (done.stdout, again.stdout):
        assert f"device/gluon/context.py:{store}:" in output, output
