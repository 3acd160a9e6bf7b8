"""Settings of the development tools: nox, pre-commit, the changelog."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from tests.package.test_pyproject import PROJECT

ROOT = Path(__file__).resolve().parents[2]


def constants(path):
    """The tuples that a file assigns at its top level, by name; the file is not executed."""
    statements = ast.parse(path.read_text()).body
    return {
        statement.targets[0].id: ast.literal_eval(statement.value)
        for statement in statements
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Tuple)
    }


def test_nox_runs_every_supported_version():
    values = constants(ROOT / "noxfile.py")
    pythons = SpecifierSet(PROJECT["project"]["requires-python"])
    assert [version in pythons for version in ("3.9", *values["PYTHONS"])] == [False] + [True] * len(values["PYTHONS"])
    [triton] = [
        Requirement(line) for line in PROJECT["project"]["optional-dependencies"]["device"] if line.startswith("triton")
    ]
    supported = [f"3.{minor}" for minor in range(20) if triton.specifier.contains(f"3.{minor}.0")]
    assert list(values["TRITONS"]) == supported
    patterns = PROJECT["tool"]["setuptools"]["packages"]["find"]["include"]
    assert {f"{name}*" for name in values["PACKAGES"]} == set(patterns)


def test_the_hooks_are_local_and_their_commands_start():
    repositories = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repository["repo"] for repository in repositories] == ["local"]
    hooks = {hook["id"]: hook for hook in repositories[0]["hooks"]}
    assert set(hooks) == {"ruff-check", "ruff-format", "wording", "mypy"}
    for hook in hooks.values():
        module = {"ruff": "ruff", "python": hook["entry"].split()[2]}[hook["entry"].split()[0]]
        code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
        assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0, hook["entry"]


def test_the_changelog_has_the_version_and_what_is_unreleased():
    titles = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert titles[0] == "Unreleased"
    assert re.fullmatch(rf"{re.escape(PROJECT['project']['version'])} - \d{{4}}-\d{{2}}-\d{{2}}", titles[1])
