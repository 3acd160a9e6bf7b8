"""``iris-harness gate`` as a user runs it, on a fake suite and a small library in a git repository."""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import pytest

from command_line.gate import publish, reach
from tests.cli import fake_suite
from tests.gate import library
from tests.gate.test_times import bench

PUT, ADD = "RMA-PUT-001", "ATOMIC-ADD-001"
SOURCE = {
    "__init__.py": "from .core.instance import iris\n",
    "gluon.py": "from .core.instance import IrisDeviceCtx\n",
    "ccl.py": "class Config:\n    pass\n",
    "core/__init__.py": "",
    "core/instance.py": """from .ops import add, put


class IrisDeviceCtx:
    pass


def iris(heap_size):
    return put, add
""",
    "core/ops.py": "def put():\n    return 1\n\n\ndef add():\n    return 2\n",
}


@pytest.fixture(scope="module")
def suite(tmp_path_factory):
    return fake_suite.make_suite(tmp_path_factory.mktemp("suite"))


@pytest.fixture
def folder(tmp_path, suite):
    """A repository with the library, whose map states that PUT reaches put, and ADD add."""
    package = tmp_path / "iris_small"
    for name, text in SOURCE.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    (tmp_path / ".gitignore").write_text("out/\narguments\nmap.json\n__pycache__/\n")
    tests = {PUT: suite / "conformance/rma/test_put.py", ADD: suite / "conformance/atomics/test_add.py"}
    lines = {PUT: 1, ADD: 5}
    records = [
        {
            "requirement": name,
            "test": str(tests[name]),
            "places": [f"{package}/core/ops.py:{lines[name]}"],
            "problem": "",
        }
        for name in (PUT, ADD)
    ]
    run = {"level": "gate", "arch": "gfx942", "triton": version("triton"), "harness": "0"}
    made = reach.made([*records, {"end": True}], {}, "iris_small", package, suite / "conformance", run)
    reach.write(made, tmp_path / "map.json")
    library.commit(tmp_path)
    return tmp_path


def gate(suite, folder, *options, fake="pass", base="HEAD", **extra):
    environment = fake_suite.environment(suite, fake, **extra)
    environment["PYTHONPATH"] += os.pathsep + str(folder)
    given = ("--base", base, "--output", "out", "--implementation", "iris_small", "--reach", "map.json", "--no-figures")
    return fake_suite.run_in(environment, folder, "gate", *given, *options)


def change(folder, old="return 1", new="return 3"):
    library.edit(folder, "iris_small/core/ops.py", old, new)


def result(folder):
    return json.loads((folder / "out" / publish.RESULT).read_text())


def test_what_the_change_can_affect_runs_first(suite, folder):
    change(folder, "return 2", "return 4")
    done = gate(suite, folder, "--budget", "2m")
    assert done.returncode == 0, done.stderr
    assert "The change since HEAD" in done.stdout
    assert "can affect 1 of 2 requirements" in done.stdout
    assert f"{ADD}: it reaches iris_small/core/ops.py:add, which changed" in done.stdout
    words = (folder / "arguments").read_text().split()
    assert [words[place + 1] for place, word in enumerate(words) if word == "--requirement"] == [ADD, PUT]
    assert 0 < float(words[words.index("--budget") + 1]) <= 120
    assert (result(folder)["judgement"], list(result(folder)["chosen"])) == ("passed", [ADD])
    assert {path.name for path in (folder / "out").iterdir()} >= {*publish.FILES, "junit.xml", "report.html"}


def test_without_a_change_nothing_is_affected_and_the_level_runs(suite, folder):
    done = gate(suite, folder)
    assert done.returncode == 0, done.stderr
    assert "can affect 0 of 2 requirements" in done.stdout


@pytest.mark.parametrize(
    ("old", "new", "fake", "status", "word"),
    [
        ("return 2", "return 4", "fail", 1, "red"),
        ("return 1", "return 3", "fail", 1, "red"),  # a failure of the rest is red too
        ("return 1", "return 3", "short", 6, "passed, the rest of the level did not run"),
        ("return 2", "return 4", "short", 3, "undecided"),
        ("return 2", "return 4", "gap", 3, "undecided"),
    ],
)
def test_exit_statuses(suite, folder, old, new, fake, status, word):
    change(folder, old, new)
    done = gate(suite, folder, "--budget", "5m", fake=fake)
    assert done.returncode == status, done.stdout + done.stderr
    assert result(folder)["judgement"] == word
    assert word in done.stdout


def test_annotations_and_the_job_summary_in_github_actions(suite, folder):
    change(folder, "return 2", "return 4")
    summary = folder / "out.md"
    extra = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    done = gate(suite, folder, fake="fail", **extra)
    assert "::error file=iris_small/core/ops.py,line=6,title=ATOMIC-ADD-001" in done.stdout
    assert summary.read_text().startswith("## iris-harness gate: red")
    assert "::error" not in gate(suite, folder, fake="fail", GITHUB_ACTIONS="").stdout


@pytest.mark.parametrize("name", [publish.COMMENT, "report.html"])
def test_a_report_that_cannot_be_written_is_red(suite, folder, name):
    """While the suite runs, a folder takes the place of the file."""
    done = gate(suite, folder, FAKE_BLOCKS=str(folder / "out" / name))
    assert done.returncode == 1, done.stdout
    assert f"{name} is not a regular file" in done.stderr
    assert result(folder)["judgement"] == "passed"


def test_a_job_summary_that_cannot_be_written_is_red(suite, folder):
    done = gate(suite, folder, GITHUB_STEP_SUMMARY=str(folder / "none" / "summary.md"))
    assert done.returncode == 1, done.stdout
    assert "summary.md could not be written: No such file or directory" in done.stderr


def test_a_dry_run_writes_nothing(suite, folder):
    change(folder)
    done = gate(suite, folder, "--dry-run")
    assert done.returncode == 0
    assert f"{PUT}: it reaches iris_small/core/ops.py:put, which changed" in done.stdout
    assert not (folder / "out").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--budget", "5x"], "--budget: expected a time from 1s to 168h"),
        (["--budget", "0"], "--budget: expected a time"),
        (["--thresholds", "none.toml"], "--thresholds none.toml: it cannot be read"),
        (["--reach", "none.json"], "none.json cannot be read"),
        (["--base-evidence", "none.jsonl"], "none.jsonl"),
        (["--run-base", "--base-evidence", "map.json"], "map.json"),
        (["--base", "nope"], "has no revision 'nope'"),
        (["--level", "huge"], "huge"),
        (["--bench", "all_reduce"], "--bench: times are those of a GPU, and the device is emulated"),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(suite, folder, options, message):
    (folder / "out").mkdir()
    (folder / "out" / publish.SUMMARY).write_text("earlier")
    done = gate(suite, folder, *options)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1
    assert {path.name: path.read_text() for path in (folder / "out").iterdir()} == {publish.SUMMARY: "earlier"}


def test_a_base_that_does_not_build_is_one_line_and_changes_nothing(suite, folder):
    good = (folder / "iris_small/core/ops.py").read_text()
    (folder / "iris_small/core/ops.py").write_text("def put(:\n")
    library.commit(folder)
    (folder / "iris_small/core/ops.py").write_text(good)
    done = gate(suite, folder)
    assert done.returncode == 2
    assert "--base HEAD does not build: iris_small/core/ops.py:1 is not Python source" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (folder / "out").exists()
    assert not list(Path(tempfile.gettempdir()).glob(f"iris-harness-base-{os.getpid()}-*"))


def test_a_map_of_another_library_is_refused(suite, folder):
    text = (folder / "map.json").read_text()
    (folder / "map.json").write_text(text.replace('"implementation": "iris_small"', '"implementation": "other"'))
    assert "it is of other, and the library under test is iris_small" in gate(suite, folder).stderr


@pytest.mark.nightly
def test_the_base_evidence_is_compared(suite, folder):
    change(folder, "return 2", "return 4")
    assert gate(suite, folder).returncode == 0
    shutil.copy(folder / "out" / "evidence.jsonl", folder / "out" / "base.jsonl")
    done = gate(suite, folder, "--base-evidence", "out/base.jsonl")
    assert done.returncode == 0, done.stderr
    assert result(folder)["figures"] == []
    (folder / "out" / "base.jsonl").write_text("{}\n")
    assert gate(suite, folder, "--base-evidence", "out/base.jsonl").returncode == 2


def test_the_base_runs_what_the_change_can_affect(suite, folder):
    change(folder, "return 2", "return 4")
    done = gate(suite, folder, "--run-base", "--budget", "100s")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Running 1 group with the base's library" in done.stdout
    assert (folder / "out" / "base" / "evidence.jsonl").is_file()
    words = (folder / "out" / "base" / "arguments").read_text().split()
    assert [words[place + 1].partition("[")[0] for place, word in enumerate(words) if word == "--group"] == [ADD]
    assert "--budget" in words
    assert words[words.index("--seed") + 1] == "20"


@pytest.mark.parametrize(("broken", "verdict"), [("BROKEN = True", "fail"), ("BROKEN = False", "pass")])
def test_a_failure_states_whether_the_base_has_it(suite, folder, broken, verdict):
    start = folder / "iris_small" / "__init__.py"
    start.write_text(f"{SOURCE['__init__.py']}\n{broken}\n")
    library.commit(folder)
    start.write_text(f"{SOURCE['__init__.py']}\nBROKEN = True\n")
    change(folder, "return 2", "return 4")
    done = gate(suite, folder, "--run-base", fake="library")
    assert done.returncode == 1, done.stdout + done.stderr
    of_base = result(folder)["failures_of_base"]
    assert [(group.partition("[")[0], word) for group, word in of_base.items()] == [(ADD, verdict)]
    summary = (folder / "out" / publish.SUMMARY).read_text()
    assert ("1 group that failed did so with the base too" in summary) is (verdict == "fail")
    assert f"| fail | {verdict} |" in summary


def test_a_run_that_imports_the_head_in_place_of_the_base_is_an_error(suite, folder):
    """The head's folder is before all others: no figure or verdict of it may pass for the base's."""
    change(folder, "return 2", "return 4")
    (folder / "sitecustomize.py").write_text(f"import sys; sys.path.insert(0, {str(folder)!r})\n")
    done = gate(suite, folder, "--run-base")
    assert done.returncode == 1
    assert "the base's run imported a library with the digest" in done.stdout + done.stderr


def test_a_base_that_leaves_no_evidence_is_a_note(suite, folder):
    """The fake suite reads BROKEN of the library, which the base does not have: pytest ends at its start."""
    (folder / "iris_small" / "__init__.py").write_text(f"{SOURCE['__init__.py']}\nBROKEN = True\n")
    change(folder, "return 2", "return 4")
    done = gate(suite, folder, "--run-base", fake="library")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "what cases executed was not compared: the base's run " in (folder / "out" / publish.SUMMARY).read_text()
    assert result(folder)["failures_of_base"] == {}


def test_a_stopped_gate_leaves_no_copy_of_the_base(suite, folder):
    change(folder, "return 2", "return 4")
    environment = {**fake_suite.environment(suite, "hang"), "TMPDIR": str(folder / "out")}
    environment["PYTHONPATH"] += os.pathsep + str(folder)
    (folder / "out").mkdir()
    given = (
        "--base",
        "HEAD",
        "--output",
        "out",
        "--implementation",
        "iris_small",
        "--reach",
        "map.json",
        "--no-figures",
    )
    process = subprocess.Popen(
        fake_suite.command("gate", *given),
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + 60
    while not (folder / "straggler").exists():
        assert process.poll() is None
        assert time.monotonic() < end
        time.sleep(0.05)
    assert list((folder / "out").glob("iris-harness-base-*"))
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    assert not list((folder / "out").glob("iris-harness-base-*"))


@pytest.mark.parametrize(
    ("scale", "noise", "status", "word"), [(1.2, 0.01, 1, "red"), (1.05, 0.4, 3, "undecided"), (1.0, 0.01, 0, "passed")]
)
def test_times_of_a_gpu(suite, folder, scale, noise, status, word):
    bench(folder / "base.json", 1, noise=noise)
    bench(folder / "head.json", 2, scale, noise)
    done = gate(suite, folder, "--times", "base.json", "head.json")
    assert done.returncode == status, done.stdout + done.stderr
    assert result(folder)["judgement"] == word
    assert "Mann-Whitney p = " in (folder / "out" / publish.SUMMARY).read_text()
