"""The Makefile: refused environments, and that certify passes on options and exit status."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli import fake_suite

ROOT = Path(__file__).resolve().parents[2]


def make(*arguments, cwd=ROOT, **environment):
    return subprocess.run(
        ["make", *arguments], cwd=cwd, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


@pytest.fixture
def installed(tmp_path):
    """Make a virtual environment as the Makefile leaves it; its iris-harness runs this checkout with a fake suite."""
    suite = fake_suite.make_suite(tmp_path / "suite")
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    script = venv / "bin" / "iris-harness"
    paths = os.pathsep.join([str(suite), str(ROOT)])
    script.write_text(f'#!/bin/sh\nPYTHONPATH="{paths}" exec "{sys.executable}" -m command_line "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    for name in ("Makefile", "pyproject.toml", "constraints-ci.txt"):
        (tmp_path / name).symlink_to(ROOT / name)
    for name in (".created", ".installed"):
        (venv / name).touch()
    return venv


@pytest.mark.parametrize(("fake", "status"), [("pass", 0), ("fail", 2)])
def test_certify_passes_on_the_exit_status(installed, tmp_path, fake, status):
    done = make("certify", f"VENV={installed}", "OUTPUT=here", cwd=tmp_path, FAKE=fake)
    assert done.returncode == status, done.stdout + done.stderr
    assert (tmp_path / "here" / "report.html").is_file()
    assert "Report: " in done.stdout


def test_an_old_python_is_refused_in_one_line(tmp_path):
    old = tmp_path / "python-old"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    done = make("certify", f"PYTHON={old}", f"VENV={tmp_path / 'venv'}")
    assert done.returncode != 0
    assert "Python 3.10 or newer is needed" in done.stderr
    assert not (tmp_path / "venv").exists()


def test_help_is_the_default():
    done = make()
    assert done.returncode == 0
    for target in ("make certify", "make test", "make check", "make clean"):
        assert target in done.stdout


@pytest.fixture
def run_ci(tmp_path):
    """Return a function that runs .ci/run with other programs: ``make`` executes a line of shell for each target."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("chromium", "chromedriver", "sbatch", "munged", "make"):
        (programs / name).write_text('#!/bin/sh\nexec "$FAKE_MAKE" "$@"\n')
        (programs / name).chmod(0o755)

    def run(**targets):
        lines = "".join(f"  {target}) {line} ;;\n" for target, line in targets.items())
        words = f'for word; do\n  echo "make $word"\n  case $word in\n{lines}  esac\ndone\n'
        fake = tmp_path / "make"
        fake.write_text(f"#!/bin/sh\nset -e\n{words}")
        fake.chmod(0o755)
        environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "FAKE_MAKE": str(fake)}
        environment |= {"TMPDIR": str(tmp_path), "FOLDER": str(tmp_path)}
        return subprocess.run(
            [ROOT / ".ci" / "run"], env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    return run


CI_TARGETS = ["check", "docs", "test-ci-harness", "test-ci-suite"]


def test_ci_runs_everything_and_removes_its_environment(run_ci, tmp_path):
    done = run_ci()
    assert done.returncode == 0, done.stdout + done.stderr
    words = [line.removeprefix("make ") for line in done.stdout.splitlines()]
    assert words[1].endswith(".installed-ci"), "installed before anything else starts"
    assert sorted(word for word in words if word in CI_TARGETS) == CI_TARGETS
    assert sorted(path.name for path in tmp_path.iterdir()) == ["make", "programs"]


@pytest.mark.parametrize(("red", "slow"), [("test-ci-harness", "docs"), ("check", "test-ci-harness")])
def test_ci_ends_the_other_job_at_the_first_failure(run_ci, tmp_path, red, slow):
    """The slow target waits for a signal, for half a minute at most; the other one fails once it waits."""
    begun = 'until [ -e "$FOLDER/begun" ]; do sleep 0.05; done; exit 3'
    waits = (
        'trap \'touch "$FOLDER/ended"; exit 1\' INT; touch "$FOLDER/begun"; for _ in $(seq 500); do sleep 0.05; done'
    )
    done = run_ci(**{red: begun, slow: waits})
    assert done.returncode == 3, done.stdout + done.stderr
    assert (tmp_path / "ended").exists()
    assert f"make {red}" in done.stdout and f"make {slow}" in done.stdout, "the output of both is shown"


def test_ci_fails_with_its_last_job(run_ci, tmp_path):
    """The suite fails after all tests have passed."""
    ended = 'until [ -e "$FOLDER/begun" ]; do sleep 0.05; done; sleep 0.5; exit 3'
    done = run_ci(**{"test-ci-harness": 'touch "$FOLDER/begun"', "test-ci-suite": ended})
    assert done.returncode == 3, done.stdout + done.stderr


@pytest.mark.parametrize("target", CI_TARGETS)
def test_what_ci_calls_is_a_target(target):
    assert make("--dry-run", target).returncode == 0


def test_both_parts_of_the_tests_have_a_target():
    whole, *parts = (make("--dry-run", "VENV=venv", *names).stdout for names in (["test-ci"], CI_TARGETS[2:]))
    assert [whole] == parts
