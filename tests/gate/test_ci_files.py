"""The files in ci/: valid by the schemas of GitHub and GitLab, with commands that exist, and exit statuses mapped as
docs/gate.md states."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
import yaml

from command_line.main import cli
from tests import python

ROOT = Path(__file__).resolve().parents[2]
CI = ROOT / "ci"
GITHUB, GITLAB = CI / "github" / "gate.yml", CI / "gitlab" / "gate.gitlab-ci.yml"
JENKINS = CI / "jenkins" / "Jenkinsfile"
RULES = "line-length: {max: 120}, document-start: disable, comments: {min-spaces-from-content: 1}"
STYLE = f"{{extends: default, rules: {{{RULES}}}}}"


def check(*arguments):
    return python.run([sys.executable, "-m", *arguments], timeout=120)


def schema(folder, text, name):
    """Check a file's text; the template of GitLab's jobs is merged into them, since no schema looks into it."""
    plain = yaml.safe_load(text)
    if (template := plain.pop(".gate", None)) is not None:
        for job in plain.values():
            job.pop("extends")
            job.update({key: value for key, value in template.items() if key not in job})
    (folder / "merged.yml").write_text(yaml.safe_dump(plain))
    return check("check_jsonschema", "--builtin-schema", name, str(folder / "merged.yml"))


@pytest.mark.parametrize(("file", "name"), [(GITHUB, "vendor.github-workflows"), (GITLAB, "vendor.gitlab-ci")])
def test_the_official_schema_accepts_the_file(tmp_path, file, name):
    whole = check("check_jsonschema", "--builtin-schema", name, str(file))
    merged = schema(tmp_path, file.read_text(), name)
    assert (whole.returncode, merged.returncode) == (0, 0), whole.stdout + merged.stdout


@pytest.mark.parametrize(
    ("file", "name", "old", "new"),
    [
        (GITHUB, "vendor.github-workflows", "runs-on: ubuntu-24.04", "run-on: ubuntu-24.04"),
        (GITLAB, "vendor.gitlab-ci", "exit_codes: [6]", "exit_code: [6]"),
        (GITLAB, "vendor.gitlab-ci", "when: always", "when: sometimes"),
    ],
)
def test_the_schema_rejects_a_planted_mistake(tmp_path, file, name, old, new):
    text = file.read_text()
    assert old in text
    assert schema(tmp_path, text.replace(old, new), name).returncode == 1


def test_yamllint_has_nothing_to_say():
    done = check("yamllint", "--strict", "-d", STYLE, str(CI))
    assert done.returncode == 0, done.stdout


def commands():
    """Yield (file, arguments) of each call of iris-harness in the files."""
    for path in sorted(CI.rglob("*")):
        if not path.is_file():
            continue
        text = path.read_text().replace("${options}", "--budget 5m")
        for line in text.splitlines():
            if line.lstrip().startswith(("#", "//")):
                continue
            for call in re.findall(r"(?:^|[\s/(])iris-harness ((?:cache|gate|certify|doctor)\b[^;|)\n]*)", line):
                plain = re.sub(r'\\?"\\?\$\(.*', '"x"', call) if "$(" in call else call
                yield path.relative_to(ROOT).as_posix(), plain.split(" || ")[0].split("' is ")[0]


@pytest.mark.parametrize(("file", "text"), sorted(set(commands())))
def test_every_command_takes_its_options(file, text):
    words = shlex.split(text.replace('"$BASE"', "main").replace("$key", "k").replace("$HOME", "/h"))
    name, *arguments = words
    command = cli.get_command(click.Context(cli), name)
    if isinstance(command, click.Group):
        command = command.get_command(click.Context(command), arguments.pop(0))
    if (name, command.name) == ("cache", "import"):
        arguments = [__file__]  # it has to exist
    if "--base" not in arguments and name == "gate":
        arguments += ["--base", "main"]
    with command.make_context(name, arguments):
        pass


def test_there_are_commands_in_each_ci():
    assert {file for file, text in commands() if text.startswith("gate")} >= {
        path.relative_to(ROOT).as_posix() for path in (GITHUB, GITLAB, JENKINS)
    }


def stub(folder, status):
    """Write an ``iris-harness`` that ends with a status, and return a PATH that has it."""
    path = folder / "iris-harness"
    path.write_text(f"#!/bin/sh\nexit {status}\n")
    path.chmod(0o755)
    return f"{folder}:/usr/bin:/bin"


@pytest.mark.parametrize(("status", "expected"), [(0, 0), (1, 1), (2, 2), (3, 3), (6, 0)])
def test_githubs_step_fails_for_every_status_but_0_and_6(tmp_path, status, expected):
    steps = yaml.safe_load(GITHUB.read_text())["jobs"]["cpu"]["steps"]
    (run,) = (step["run"] for step in steps if step.get("name") == "gate")
    environment = {"PATH": stub(tmp_path, status), "BASE": "main"}
    done = subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", run], env=environment, check=False, timeout=30,
        capture_output=True,
    )  # fmt: skip
    assert done.returncode == expected


def test_gitlab_allows_status_6_only():
    plain = yaml.safe_load(GITLAB.read_text())
    assert plain[".gate"]["allow_failure"] == {"exit_codes": [6]}
    assert plain[".gate"]["artifacts"]["reports"] == {
        "junit": "out/gate/junit.xml", "codequality": "out/gate/code-quality.json",
    }  # fmt: skip


def test_the_gpu_runner_executes_no_code_of_forks():
    job = yaml.safe_load(GITHUB.read_text())["jobs"]["gpu"]
    assert "head.repo.full_name == github.repository" in job["if"]
    assert yaml.safe_load(GITHUB.read_text())["permissions"] == {"contents": "read"}


def test_jenkins_marks_status_6_unstable_and_fails_for_others():
    text = JENKINS.read_text()
    assert re.search(r"status == 6\) \{\s*unstable\(", text)
    assert re.search(r"status != 0\) \{\s*error\(", text)
    assert text.count("{") == text.count("}")
