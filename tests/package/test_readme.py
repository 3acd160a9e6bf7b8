"""Every command of the README and of the guides is one that works.

Each shell line is matched with the check below that exercises it; a line without one fails. Commands that take
minutes are exercised where they are run anyway: ``make test`` is what .ci/run calls and what runs this test; ``make
certify`` is run by ``test_make`` with installation and suite replaced by the ones at hand. Python examples are
executed.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli import fake_suite
from tests.evidence import samples
from tests.isa import kernels

ROOT = Path(__file__).resolve().parents[2]
# Their commands need more than a fake suite: test_guide.py of tests/emulator and tests/bench, tests/examples, and
# test_allocators.py, test_bench.py, test_ops.py and test_x.py of tests/iris.
ELSEWHERE = {
    "emulator.md", "bench.md", "api-comparison.md", "context-tensor.md", "memory-model.md", "names.md", "tracing.md",
    "memory.md", "measuring.md", "collectives.md", "fused.md", "tile-collectives.md",
}  # fmt: skip
PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in ELSEWHERE)]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def fences(language):
    return [(page, text) for page in PAGES for kind, text in FENCE.findall(page.read_text()) if kind == language]


def commands():
    return sorted({line for _, text in fences("sh") for line in text.splitlines() if line})


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    return fake_suite.make_suite(tmp_path_factory.mktemp("suite"))


def harness_line(line, suite, folder):
    """An ``iris-harness`` line as written, against the fake suite; it stands in a folder that has a finished run."""
    first = fake_suite.run(suite, folder, "certify", "--output", "out/certify", fake="fail")
    assert first.returncode == 1, first.stderr
    arguments = [samples.failing_case().id if word == "CASE" else word for word in line.split()[1:]]
    done = fake_suite.run(suite, folder, *arguments)
    if "--device cuda" in line and done.returncode == 2:  # no GPU here: that is told in one line
        assert re.fullmatch(r"iris-harness: device cuda cannot be used here: .*\n", done.stderr), done.stderr
        return
    expected = 1 if arguments[0] in ("report", "names") else 0  # these are of the failed run
    assert done.returncode == expected, done.stdout + done.stderr


def pytest_line(line, suite, folder):
    """The options are the plugin's and the selection finds tests; running them is what ``make test`` does."""
    done = subprocess.run(
        [sys.executable, *line.split()[1:], "--collect-only", "-q"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "test_put" in done.stdout


def make_line(line, suite, folder):
    """make knows the target and would run it; see test_make for what it does."""
    done = subprocess.run(["make", "-n", *line.split()[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def pip_line(line, suite, folder):
    """pip reads this project: the same command, without installing anything."""
    command = [sys.executable, *line.split()[1:], "--dry-run", "--no-deps", "--no-build-isolation", "--quiet"]
    if subprocess.run(
        [sys.executable, "-c", "import setuptools, sys; sys.exit(setuptools.__version__ < '77')"], check=False
    ).returncode:
        pytest.fail("setuptools 77 or newer is needed: pip install -e '.[dev]' brings it")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def telemetry_line(line, suite, folder):
    """It runs, or says in one line what this machine lacks; tests/telemetry/test_main.py shows what it prints."""
    command = [sys.executable, *line.split()[1:], "--seconds", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1) or (done.returncode == 2 and len(done.stderr.splitlines()) == 1), done.stderr


CHECKS = {
    "iris-harness": harness_line,
    "python -m pytest": pytest_line,
    "python -m pip": pip_line,
    "python -m harness.telemetry": telemetry_line,
    "make": make_line,
}


@pytest.mark.parametrize("line", commands())
def test_command(line, suite, tmp_path):
    checks = [check for start, check in CHECKS.items() if line.startswith(start + " ")]
    assert len(checks) == 1, f"no check exercises {line!r}"
    checks[0](line, suite, tmp_path)


def test_python_examples_run(tmp_path):
    samples.write(tmp_path / "out" / "certify" / "evidence.jsonl", samples.green())
    (tmp_path / "put.amdgcn").write_text(kernels.listing("put", "fp16"))
    ran = 0
    for page, text in fences("python"):
        if "import" not in text:
            continue  # a fragment of a device function: it shows where a comment goes
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, "-c", text], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{page.name}: {done.stderr}"
        assert done.stdout
        ran += 1
    assert ran == 3


def test_links_lead_somewhere():
    for page in PAGES:
        prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#]+)\)", prose):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_pages_name_no_machine():
    for page in PAGES:
        assert not re.search(r"/(work|opt|root|tmp|home)/|https?://", page.read_text()), page.name
