"""docs/nightly.md: its plan is one, and its commands run."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from command_line.main import run as command
from command_line.nightly.plan import read_plan
from tests.evidence import samples
from tests.history import planted

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "nightly.md").read_text("utf-8")
COMMANDS = [
    line for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL) for line in block.splitlines()
]


def test_the_plan_of_the_page_is_a_plan(tmp_path):
    [block] = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    (tmp_path / "plan.toml").write_text(block)
    plan = read_plan(tmp_path / "plan.toml")
    assert [leg.name for leg in plan.legs] == ["gate-ranks2", "gate-ranks4", "weak"]
    assert plan.soak.budget == 7200 and plan.corpus.mended_after == 5


@pytest.mark.parametrize("line", [line for line in COMMANDS if " nightly " not in line])
def test_the_commands_of_the_page_run(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out" / "certify").mkdir(parents=True)
    samples.write(tmp_path / "out" / "certify" / "evidence.jsonl", samples.green())
    shutil.copyfile(planted.plant(tmp_path / "planted", nights=12), tmp_path / "history.sqlite")
    program, *words = shlex.split(line)
    assert program == "iris-harness"
    assert command(words) == (1 if words[-1] == "changes" else 0), "a group newly fails in the planted history"
    assert capsys.readouterr().err == ""
