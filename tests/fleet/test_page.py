"""docs/fleets.md: its plan is one, and its commands have the options that it names."""

import re
from pathlib import Path

from command_line.fleet.plan import read_plan
from command_line.main import cli

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "fleets.md").read_text(encoding="utf-8")


def fences(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_plan_is_one(tmp_path):
    [text] = fences("toml")
    (tmp_path / "plan.toml").write_text(text)
    plan = read_plan(tmp_path / "plan.toml")
    assert (plan.run.profile, plan.fleet.shards, plan.slurm.gres) == ("mi300x-8", 16, "gpu:8")
    assert plan.request().ranks == (8, 2)


def test_every_command_and_option_exists():
    lines = [line.split() for text in fences("sh") for line in text.splitlines() if line and "export" not in line]
    lines = [words[words.index("iris-harness") :] for words in lines]
    assert {words[1] for words in lines} == {"attribute", "certify", "merge", "submit", "status", "cancel"}
    for _, name, *words in lines:
        command = cli.get_command(None, name)
        context = command.make_context(name, list(words))
        assert context.params
