"""Every command of the README, of the quick starts and of the guides is one that works.

Each shell line is matched with the check below that exercises it; a line without one fails. Commands that take
minutes are exercised where they are run anyway: ``make test`` is what .ci/run calls and what runs this test; ``make
certify`` is run by ``test_make`` with installation and suite replaced by the ones at hand. Python examples are
executed.
"""

import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from certificates.sharpness import SHARPNESS
from harness.evidence import read
from mutants import matrix
from mutants.page import share
from tests import python
from tests.certificates import run as signed
from tests.cli import fake_suite
from tests.evidence import samples
from tests.examples import programs
from tests.isa import kernels
from tests.reports import test_benchmarks as benchmarks

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
# Their commands need more than a fake suite: test_guide.py of tests/emulator and tests/bench, tests/examples, and
# test_allocators.py, test_bench.py, test_ops.py and test_x.py of tests/iris; tests/adapters; test_page.py of
# tests/certificates; test_mustpass.py of tests/cli; test_page.py of tests/fleet.
ELSEWHERE = {
    "emulator.md", "bench.md", "api-comparison.md", "context-tensor.md", "memory-model.md", "names.md", "tracing.md",
    "memory.md", "measuring.md", "collectives.md", "fused.md", "tile-collectives.md", "own-op.md", "adapters.md",
    "certificates.md", "levels.md", "fleets.md",
}  # fmt: skip
STARTS = sorted((ROOT / "docs/start").glob("*.md"))
PAGES = [
    ROOT / "README.md",
    *STARTS,
    *(page for page in sorted((ROOT / "docs").glob("*.md")) if page.name not in ELSEWHERE),
]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def fences(language):
    return [(page, text) for page in PAGES for kind, text in FENCE.findall(page.read_text()) if kind == language]


def commands():
    return sorted({line for _, text in fences("sh") for line in text.splitlines() if line})


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    """A fake suite, next to the other library that the quick starts name."""
    folder = fake_suite.make_suite(tmp_path_factory.mktemp("suite"))
    (folder / "my_iris.py").write_text("from iris_under_test import *\nfrom iris_under_test import ccl, gluon, iris\n")
    first = fake_suite.run(folder, folder, "certify", "--output", "finished/certify", fake="fail")
    assert first.returncode == 1, first.stderr
    return folder


def harness_line(line, suite, folder):
    """Run an ``iris-harness`` line of the page with the fake suite, in a folder that has a finished run."""
    shutil.copytree(suite / "finished", folder / "out")
    shutil.copytree(suite / "finished" / "certify", folder / "out" / "before")
    if "lab.key" in line and "key new" not in line:
        signed.lab(folder)
    if "--bench" in line:
        [recorded] = read(folder / "out" / "certify" / "evidence.jsonl").runs
        benchmarks.written(folder / "out" / "bench", benchmarks.results(run=recorded))
    arguments = [samples.failing_case().id if word == "CASE" else word for word in line.split()[1:]]
    # Its own register of runs: a newer run of another test may have a case with the same id.
    done = fake_suite.run(suite, folder, *arguments, XDG_STATE_HOME=str(folder / "state"))
    if "--device cuda" in line and done.returncode == 2:  # without a GPU, one line names the reason
        assert re.fullmatch(r"iris-harness: device cuda cannot be used here: .*\n", done.stderr), done.stderr
        return
    # report and names read the failed run; the sample certificate is one of another suite than the installed one
    expected = {"report": 1, "names": 1, "verify": 3}.get(arguments[0], 0)
    assert done.returncode == expected, done.stdout + done.stderr


def pytest_line(line, suite, folder):
    """Check that pytest accepts the options and collects tests. ``make test`` runs them."""
    done = python.run([sys.executable, *line.split()[1:], "--collect-only", "-q"], cwd=ROOT)
    assert done.returncode == 0, done.stdout
    assert "test_put" in done.stdout


def make_line(line, suite, folder):
    """Check that make knows the target. test_make tests its effect."""
    done = subprocess.run(["make", "-n", *line.split()[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def pip_line(line, suite, folder):
    """Check that pip accepts the command for this project, without installing anything."""
    command = [sys.executable, *shlex.split(line)[1:], "--dry-run", "--no-deps", "--no-build-isolation", "--quiet"]
    if subprocess.run(
        [sys.executable, "-c", "import setuptools, sys; sys.exit(setuptools.__version__ < '77')"], check=False
    ).returncode:
        pytest.fail("setuptools 77 or newer is needed: pip install -e '.[dev]' brings it")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def telemetry_line(line, suite, folder):
    """Run the telemetry command, which may also print one line with the reason why it cannot run.

    tests/telemetry/test_main.py tests its output.
    """
    command = [sys.executable, *line.split()[1:], "--seconds", "1"]
    done = python.run(command, cwd=ROOT)
    assert done.returncode in (0, 1) or (done.returncode == 2 and len(done.stderr.splitlines()) == 1), done.stderr


def program_line(line, suite, folder):
    """The program runs as written, in a folder that has the examples."""
    done = programs.run(line, folder)
    assert done.returncode == 0, done.stdout + done.stderr


def module_line(line, suite, folder):
    """The module runs as written, in a folder that has the examples."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, *line.split()[1:]]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


def emulate_line(line, suite, folder):
    """The emulator command runs the program as written."""
    words = line.split()
    module_line(" ".join(["python", "-m", "command_line", *words[1:]]), suite, folder)


def own_test_line(line, suite, folder):
    """The options of tests outside this repository are the plugin's; tests/examples/test_own_op.py runs such a test."""
    words = [word for word in line.split()[1:] if not word.endswith(".py")]
    (folder / "my_iris.py").write_text((suite / "my_iris.py").read_text())
    variables = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"}
    command = [sys.executable, *words, "--help"]
    done = python.run(command, cwd=folder, env=variables)
    assert done.returncode == 0, done.stderr
    for option in [word for word in words if word.startswith("--")]:
        assert option in done.stdout, option


def options_line(line, suite, folder):
    """The command and its options exist. Tests of the command line and the folders of mutants, gate, nightly and
    history run them."""
    words = shlex.split(line, comments=True)[1:]
    command = [sys.executable, "-m", "command_line", *words, "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    names = list(itertools.takewhile(lambda word: not word.startswith("-") and "." not in word, words[:2]))
    assert done.stdout.startswith("Usage: iris-harness " + " ".join(names)), done.stdout
    for option in [word for word in words if word.startswith("--")]:
        assert option in done.stdout, option


CHECKS = {
    "iris-harness emulate": emulate_line,
    "iris-harness attribute": options_line,
    "iris-harness dashboard": options_line,
    "iris-harness gate": options_line,
    "iris-harness history": options_line,
    "iris-harness nightly": options_line,
    "iris-harness isa": options_line,
    "iris-harness reach": options_line,
    "iris-harness mutants": options_line,
    "python -m pytest -p fixtures.plugin": own_test_line,
    "python -m harness.emulator": module_line,
    "python examples/": program_line,
    "iris-harness ": harness_line,
    "python -m pytest ": pytest_line,
    "python -m pip ": pip_line,
    "python -m harness.devices.telemetry": telemetry_line,
    "make ": make_line,
}


@pytest.mark.slow
@pytest.mark.parametrize("line", commands())
def test_command(line, suite, tmp_path):
    # The longest beginning is the most particular.
    starts = [start for start in CHECKS if line.startswith(start)]
    assert starts, f"no check exercises {line!r}"
    CHECKS[max(starts, key=len)](line, suite, tmp_path)


def test_every_reader_has_a_quick_start_with_commands():
    readers = {page.stem for page in STARTS} - {"install"}
    assert readers == {"kernel-developer", "ci-engineer", "certification-lab", "library-author", "triton-user"}
    for page in STARTS:
        assert "```sh\n" in page.read_text(encoding="utf-8"), page.name
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    assert all(f"](start/{reader}.md)" in index for reader in readers)


@pytest.mark.slow
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
    assert ran == 7


def test_links_lead_somewhere():
    for page in PAGES:
        prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#]+)\)", prose):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_pages_name_no_machine():
    for page in PAGES:
        assert not re.search(r"/(work|opt|root|tmp|home)/|https?://(?!example\.org/)", page.read_text()), page.name


def results_of(name):
    return matrix.read(ROOT / f"docs/results/data/mutants-{name}.json").results


def test_the_readmes_share_of_rejected_changes_is_that_of_the_data():
    results = results_of("machine-code")
    killed, decided = share(results)
    assert f"Of {len(results)} changes of the machine code" in README
    assert f"reject {killed}; {len(results) - decided} are argued to be equivalent" in README
    assert (SHARPNESS["changes"], SHARPNESS["rejected"]) == (decided, killed), "the figure of certificates"
    further = [*results_of("collectives"), *results_of("fused")]
    killed, decided = share(further)
    assert f"Of {len(further)} in\nall collectives and fused products, they reject {killed}; " in README
    assert f"{len(further) - decided} are argued to be equivalent. The [kill" in README


def test_the_readmes_share_of_rejected_sources_is_that_of_the_data():
    results = results_of("source")
    killed, decided = share(results)
    at_ci, _ = share(results, "ci")
    assert f"Of {len(results):,} generated changes of its source, level `ci` rejects {at_ci:,}, and" in README
    assert f"level `gate` {killed - at_ci} more; {len(results) - decided} are argued to be equivalent" in README
