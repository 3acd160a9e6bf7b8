"""Bisection of a failing case: on a toy library with the fake suite, and on the bundled library with a real defect."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from command_line.bisect.trial import BEHIND
from command_line.suite.process import child_environment, pytest_command
from mutants import planting
from mutants.listed import DEFECTS
from tests.cli import fake_suite
from tests.evidence.samples import failing_case

LIBRARY = "toy_iris"
REQUEST = {
    "device": "emulated", "arch": "gfx942", "mode": "fast", "ranks": [4], "ranks_per_gpu": 1, "level": "ci",
    "implementation": LIBRARY, "seed": 0, "deadline": 30.0,
}  # fmt: skip


def git(folder, *words):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def commit(folder, text, subject):
    (folder / LIBRARY).mkdir(exist_ok=True)
    (folder / LIBRARY / "__init__.py").write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "--quiet", "--allow-empty", "-m", subject)
    return git(folder, "rev-parse", "HEAD")


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    return fake_suite.make_suite(tmp_path_factory.mktemp("suite"))


@pytest.fixture
def repository(tmp_path):
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet")
    return folder


@pytest.fixture
def case(tmp_path):
    bad = failing_case()
    record = {"id": bad.id, "requirement": bad.requirement, "group": bad.group, "nodeid": bad.nodeid, "case": bad.case}
    (tmp_path / "case.json").write_text(json.dumps({**record, "request": REQUEST}))
    return tmp_path / "case.json"


def words(tmp_path, good, bad, *more):
    return [
        "bisect", tmp_path / "case.json", "--good", good, "--bad", bad, "--repository", tmp_path / "repository",
        "--implementation", LIBRARY, *more,
    ]  # fmt: skip


def environment(suite, tmp_path):
    known = fake_suite.environment(suite, "library", TMPDIR=str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir(exist_ok=True)
    return {**known, "PYTHONPATH": f"{known['PYTHONPATH']}{os.pathsep}{tmp_path / 'repository'}"}


def bisect(suite, tmp_path, good, bad, *more):
    done = fake_suite.run_in(environment(suite, tmp_path), tmp_path, *words(tmp_path, good, bad, *more))
    assert list((tmp_path / "tmp").glob("iris-bisect-*")) == [], "nothing is left"
    assert git(tmp_path / "repository", "worktree", "list").count("\n") == 0
    return done


def history(repository, first_bad, count=8, broken=()):
    """Commits of which those from ``first_bad`` on are bad; those in ``broken`` cannot be imported."""
    texts = [f"BROKEN = {number >= first_bad}\nN = {number}\n" for number in range(count)]
    for number in broken:
        texts[number] = f"{number} / 0\n"
    return [commit(repository, text, f"change {number}") for number, text in enumerate(texts)]


def test_the_first_bad_commit_is_named_with_the_command_that_repeats_it(suite, repository, case, tmp_path):
    commits = history(repository, 5)
    (repository / "work").write_text("in progress")
    done = bisect(suite, tmp_path, commits[0], "HEAD")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"First bad commit: {commits[5][:12]}" in done.stdout and "change 5" in done.stdout
    assert f"--good '{commits[5][:12]}^' --bad {commits[5][:12]}" in done.stdout
    assert len(re.findall(r"^(?:good|bad) ", done.stdout, re.MULTILINE)) <= 2 + 3, "both ends and log2 of 7"
    assert git(repository, "status", "--porcelain") == "?? work", "the user's checkout is as it was"
    assert git(repository, "rev-parse", "HEAD") == commits[-1]


@pytest.mark.nightly
def test_revisions_that_cannot_be_tried_are_skipped_and_leave_a_range_only_next_to_the_answer(
    suite, repository, case, tmp_path
):
    commits = history(repository, 5, broken=(4, 5))
    done = bisect(suite, tmp_path, commits[0], commits[-1])
    assert done.returncode == 3, done.stdout + done.stderr
    assert "is one of 3" in done.stdout and "cannot be imported: ZeroDivisionError" in done.stdout
    listed = done.stdout.partition("is one of 3")[2]
    assert {each[:12] for each in commits if each[:12] in listed} == {each[:12] for each in commits[4:7]}


@pytest.mark.slow
def test_a_build_that_fails_skips_its_revision(suite, repository, case, tmp_path):
    commits = history(repository, 2, count=2)
    (repository / "unbuildable").touch()
    commits.append(commit(repository, "BROKEN = True\n", "change 2"))
    (repository / "unbuildable").unlink()
    commits.append(commit(repository, "BROKEN = True\nN = 3\n", "change 3"))
    done = bisect(suite, tmp_path, commits[0], commits[-1], "--build", "test ! -e unbuildable")
    assert done.returncode == 3 and "does not build" in done.stdout
    assert "is one of 2" in done.stdout


@pytest.mark.slow
def test_ends_that_are_not_what_they_were_named_are_reported(suite, repository, case, tmp_path):
    commits = history(repository, 5)
    done = bisect(suite, tmp_path, commits[6], commits[7])
    assert done.returncode == 1 and f"{commits[6][:12]} was named --good, and it is not" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        ("HEAD", "HEAD", "same commit"),
        ("HEAD", "HEAD~1", "is not an ancestor"),
        ("nope", "HEAD", "has no commit 'nope'"),
        ("--all", "HEAD", "has no commit '--all'"),
    ],
)
def test_wrong_revisions_are_one_line(suite, repository, case, tmp_path, good, bad, message):
    history(repository, 1, 2)
    done = bisect(suite, tmp_path, f"{good}", bad)
    assert done.returncode == 2 and message in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_a_signal_ends_it_and_nothing_is_left(suite, repository, case, tmp_path):
    commits = history(repository, 1, 2)
    held = environment(suite, tmp_path)
    command = fake_suite.command(*words(tmp_path, commits[0], commits[1], "--build", "sleep 600"))
    process = subprocess.Popen(command, cwd=tmp_path, env=held, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not list((tmp_path / "tmp").glob("iris-bisect-*/1/build.log")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    assert list((tmp_path / "tmp").glob("iris-bisect-*")) == []


@pytest.mark.nightly
def test_a_defect_of_the_bundled_library_is_traced_to_its_commit(tmp_path):
    """The suite is this one, the library that of each revision: 4 commits, of which the third plants a defect."""
    repository, defect = tmp_path / "repository", next(each for each in DEFECTS if each.chosen.startswith("test_put"))
    repository.mkdir()
    git(repository, "init", "--quiet")
    shutil.copytree(planting.SOURCE, repository / "iris_under_test", ignore=shutil.ignore_patterns("__pycache__"))
    commits = []
    for number in range(4):
        (repository / "notes").write_text(str(number))
        if number == 2:
            (repository / "iris_under_test" / defect.file).write_text(planting.with_defect(defect))
        git(repository, "add", "-A")
        git(repository, "commit", "--quiet", "-m", f"change {number}")
        commits.append(git(repository, "rev-parse", "HEAD"))
    held = {**os.environ, "PYTHONPATH": str(fake_suite.ROOT), "XDG_STATE_HOME": str(tmp_path / "state")}
    planted = child_environment()
    planted["PYTHONPATH"] = os.pathsep.join([str(repository), planted.get("PYTHONPATH", "")])
    options = ["--ranks", "2", "--level", "ci", "-k", "test_put and fp32", "-x", BEHIND]
    (tmp_path / "run").mkdir()
    words = pytest_command(
        ["conformance/rma/test_put.py"], *options, "--evidence", str(tmp_path / "run" / "evidence.jsonl")
    )
    subprocess.run(words, cwd=tmp_path, env=planted, check=False, timeout=600, capture_output=True)
    case = next((tmp_path / "run" / "cases").glob("*.json"))
    command = fake_suite.command("bisect", case, "--good", commits[0], "--bad", commits[3], "--repository", repository)
    done = subprocess.run(command, cwd=tmp_path, env=held, capture_output=True, text=True, check=False, timeout=1800)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"First bad commit: {commits[2][:12]}" in done.stdout
    assert not Path(tmp_path / "out").exists()
