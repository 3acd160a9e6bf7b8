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
    for name in (".created", ".installed", ".compiled"):
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


def test_ci_calls_the_targets_and_stops_at_the_first_failure():
    script = (ROOT / ".ci" / "run").read_text()
    assert "set -euo pipefail" in script
    assert script.index(" check") < script.index(" test")
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
