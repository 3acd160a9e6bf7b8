"""Trials of real mutants: one that is killed, one that survives, one that does not apply, one of the harness; each runs
its own copy of the library in a fork of one prepared process."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from command_line.mutants import pool
from command_line.mutants import trial as trial_module
from command_line.mutants.prepared import Prepared
from command_line.mutants.trial import Trial, how_of
from fixtures import worker
from harness.errors import HarnessError
from mutants import listing, matrix, planting
from mutants.mutant import HARNESS, LISTED, SOURCE, Mutant
from mutants.selection import FIRST, SECOND, Stage

LOGGING = Stage(("conformance/host/test_log_format.py",))
GOING_ON = SimpleNamespace(signal=None)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared]:
    with Prepared(tmp_path_factory.mktemp("prepared")) as process:
        yield process


@pytest.fixture(scope="module")
def of_checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prepared]:
    with Prepared(tmp_path_factory.mktemp("prepared"), checkout=True) as process:
        yield process


def of_rounding(old: str, new: str) -> Mutant:
    """Return a change of the bound on rounding errors."""
    file = "harness/oracles/rounding.py"
    start = (planting.ROOT / file).read_text(encoding="utf-8").index(old)
    return Mutant(f"any:{file}:1:1", HARNESS, "any", file, 1, 1, start, old, new)


def naming_its_file(number: int) -> Mutant:
    """Return a mutant that logs the file of the code that runs where the rank should be."""
    return replace(killed_by_the_suite(), id=f"file-{number}:a:1:1", new="{__file__}/")


def killed_by_the_suite() -> Mutant:
    [mutant] = [mutant for mutant in listing.all_of(LISTED) if mutant.id == "listed:logging: rank missing"]
    return mutant


def survivor() -> Mutant:
    """Return a mutant that changes only a docstring."""
    text = planting.original("host/logging/logging.py")
    start = text.index('"""') + 3
    return Mutant(
        "none:host/logging/logging.py:1:4", SOURCE, "none", "host/logging/logging.py", 1, 4, start, text[start], "?"
    )


@pytest.mark.slow
def test_a_mutant_is_killed_and_a_planted_survivor_is_reported(prepared):
    gone = replace(survivor(), id="gone:a:1:1", old="text that is not there")
    mutants = (killed_by_the_suite(), survivor(), gone)
    results = {}
    trials = [lambda mutant=mutant: Trial(mutant, [LOGGING], 90, 300, lambda: prepared) for mutant in mutants]
    pool.run_trials(trials, 2, lambda trial, result: results.update({result.id: result}), GOING_ON)
    killed, alive, error = (results[mutant.id] for mutant in mutants)
    assert killed.verdict == matrix.KILLED and killed.requirement.startswith("HOST-"), killed
    assert killed.group and killed.case and killed.nodeid and killed.seconds > 0 and killed.cpu_seconds > 0, killed
    assert alive.verdict == matrix.SURVIVED and alive.levels == {FIRST: matrix.SURVIVED}, alive
    assert error.verdict == matrix.ERROR and "no longer holds" in error.message and error.levels == {}, error

    assert pool.controlled([killed], 2, 90, 300, lambda: prepared, GOING_ON) == [killed], (
        "the test passes on an unchanged copy"
    )
    other = replace(killed, nodeid="conformance/host/test_log_format.py::test_gone[ranks=2]")
    [denied] = pool.controlled([other], 2, 90, 300, lambda: prepared, GOING_ON)
    assert denied.verdict == matrix.ERROR and "does not pass on an unchanged copy" in denied.message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "verdict", "test"),
    [
        ("return 0.0", "return 2.0", matrix.KILLED, "tests/oracles/test_rounding.py::test_"),
        # No test of it can be collected.
        pytest.param("import torch", "import torch_gone", matrix.KILLED, "", marks=pytest.mark.nightly),
        ("Bound on", "A bound on", matrix.SURVIVED, ""),
    ],
)
def test_a_mutant_of_the_harness_is_run_in_its_own_copy_of_the_checkout(of_checkout, old, new, verdict, test):
    results = []
    stages = [
        Stage(("tests/oracles/test_rounding.py::test_gone",), optional=True),
        Stage(("tests/oracles/test_rounding.py",)),
    ]
    trial = partial(Trial, of_rounding(old, new), stages, 0, 300, lambda: of_checkout)
    pool.run_trials([trial], 1, lambda trial, result: results.append(result), GOING_ON)
    [result] = results
    assert (result.verdict, result.levels) == (verdict, {}) and result.cpu_seconds > 0, result
    assert result.nodeid.startswith(test) and bool(result.nodeid) == bool(test), result


@pytest.mark.slow
def test_a_run_that_would_test_the_checkout_itself_is_an_error(of_checkout, monkeypatch):
    """Its copy lacks a package, which Python would find somewhere else."""
    whole = of_checkout.checkouts.take

    def without_harness() -> Path:
        folder = whole()
        (folder / "harness" / "__init__.py").rename(folder / "gone.py")
        return folder

    monkeypatch.setattr(of_checkout.checkouts, "take", without_harness)
    results = []
    stage = Stage(("tests/oracles/test_rounding.py",))
    trial = partial(Trial, of_rounding("Bound", "A bound"), [stage], 0, 300, lambda: of_checkout)
    pool.run_trials([trial], 1, lambda trial, result: results.append(result), GOING_ON)
    [result] = results
    assert result.verdict == matrix.ERROR and "harness would be imported from" in result.message, result


@pytest.mark.nightly
def test_what_survives_the_first_level_is_tried_at_the_second(prepared):
    """The level ci draws one case of uniform, whose low is 0; the gate draws others."""
    [drawn] = [mutant for mutant in listing.all_of(LISTED) if mutant.id == "listed:uniform: low ignored"]
    tests = ("conformance/host/test_drawn_tensors.py", "conformance/host/test_log_format.py")
    results = {}
    trials = [
        partial(
            Trial, mutant, [Stage((test,), chosen, level=level) for level in (FIRST, SECOND)], 90, 300, lambda: prepared
        )
        for mutant, test, chosen in ((drawn, tests[0], "uniform"), (survivor(), tests[1], ""))
    ]
    pool.run_trials(trials, 2, lambda trial, result: results.update({result.id: result}), GOING_ON)
    later, alive = results[drawn.id], results[survivor().id]
    assert later.verdict == matrix.KILLED and later.requirement == "HOST-TENSOR-002", later
    assert later.levels == {FIRST: matrix.SURVIVED, SECOND: matrix.KILLED} and later.level == SECOND, later
    assert alive.verdict == matrix.SURVIVED and set(alive.levels.values()) == {matrix.SURVIVED}, alive
    assert list(alive.levels) == [FIRST, SECOND], alive
    assert pool.controlled([later], 2, 90, 300, lambda: prepared, GOING_ON) == [later]


@pytest.mark.slow
def test_a_killer_that_no_longer_exists_is_left_out(prepared):
    """Tests of an earlier run may have other names now; those that a list names must exist."""
    gone = Stage(("conformance/host/test_log_format.py::test_gone[ranks=2]",), optional=True)
    results = {}
    trials = [
        partial(Trial, mutant, stages, 90, 300, lambda: prepared)
        for mutant, stages in (
            (killed_by_the_suite(), [gone, LOGGING]),
            (survivor(), [replace(gone, optional=False), LOGGING]),
        )
    ]
    pool.run_trials(trials, 2, lambda trial, result: results.update({result.id: result}), GOING_ON)
    killed, refused = results[killed_by_the_suite().id], results[survivor().id]
    assert killed.verdict == matrix.KILLED and killed.nodeid and killed.limit == 300, killed
    assert refused.verdict == matrix.ERROR and "test_gone" in refused.message, refused


@pytest.mark.nightly
def test_each_level_has_the_whole_limit(prepared, monkeypatch):
    """The clock that the limit is read from jumps by more than half of it in each stage."""
    now = 0.0
    monkeypatch.setattr("command_line.mutants.trial.time", SimpleNamespace(monotonic=lambda: now))
    trial = Trial(
        survivor(), [replace(LOGGING, level=FIRST), replace(LOGGING, level=SECOND)], 90, 100, lambda: prepared
    )
    with contextlib.closing(trial):
        assert trial.start() is None
        now = 60.0
        while not trial._levels:
            assert trial.poll() is None
            time.sleep(0.01)
        now = 120.0
        assert trial.poll() is None
        now = 161.0
        late = trial.poll()
    assert late is not None and late.verdict == matrix.TIMEOUT, late
    assert late.message == "not decided within 100 s at level gate" and late.seconds == 161.0, late
    assert late.levels == {FIRST: matrix.SURVIVED, SECOND: matrix.TIMEOUT}, late


def test_a_kill_by_tests_of_the_harness_that_fail_anyway_is_an_error(monkeypatch):
    of_harness = listing.all_of(HARNESS)[0]
    killed = matrix.result_of(of_harness, matrix.KILLED, 1.0, how="test")
    monkeypatch.setattr(Trial, "start", lambda trial: matrix.result_of(trial.mutant, matrix.KILLED, 1.0, "1 failed"))
    [denied] = pool.harness_controlled([killed], 1, 60, Prepared, GOING_ON)
    assert denied.verdict == matrix.ERROR and "1 failed" in denied.message
    monkeypatch.setattr(Trial, "start", lambda trial: matrix.result_of(trial.mutant, matrix.SURVIVED, 1.0))
    assert pool.harness_controlled([killed], 1, 60, Prepared, GOING_ON) == [killed]


@pytest.mark.slow
def test_each_run_executes_the_code_of_its_own_copy(prepared, monkeypatch):
    places, cut = {}, trial_module.without_folders
    monkeypatch.setattr(
        trial_module, "without_folders", lambda message, copy: places.update({copy: message}) or cut(message, copy)
    )
    results = []
    trials = [
        lambda mutant=mutant: Trial(mutant, [LOGGING], 90, 300, lambda: prepared)
        for mutant in (naming_its_file(1), naming_its_file(2))
    ]
    pool.run_trials(trials, 2, lambda trial, result: results.append(result), GOING_ON)
    assert len(places) == 2
    for folder, message in places.items():
        assert f"{folder}/{planting.NAME}/host/logging" in message
    for result in results:
        assert result.verdict == matrix.KILLED and f"{planting.NAME}/host/logging" in result.message, result
        assert not any(str(folder) in result.message for folder in places), "a published matrix has no paths"


@pytest.mark.nightly
def test_a_child_that_would_run_another_copy_is_an_error(tmp_path, monkeypatch):
    planting.write_copy(tmp_path, {})
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Prepared(tmp_path, [f"{planting.NAME}.host.logging.logging"]) as loaded:
        results = []
        trial = partial(Trial, killed_by_the_suite(), [LOGGING], 90, 300, lambda: loaded)
        pool.run_trials([trial], 1, lambda trial, result: results.append(result), GOING_ON)
    [result] = results
    assert result.verdict == matrix.ERROR and f"imported from {tmp_path}" in result.message, result


def test_a_rank_with_another_copy_is_an_error_of_the_harness(tmp_path):
    here = SimpleNamespace(module=planting)
    worker._check_folder(here, str(Path(planting.__file__).parent))
    with pytest.raises(HarnessError, match=f"imported from .*planting.py, expected its sources in {tmp_path}"):
        worker._check_folder(here, str(tmp_path))


@pytest.mark.slow
def test_a_process_that_cannot_be_prepared_is_reported(tmp_path):
    with pytest.raises(HarnessError, match="prepared process ended: ModuleNotFoundError: No module named 'iris_gone'"):
        Prepared(tmp_path, ["iris_gone"])


@pytest.mark.slow
def test_what_runs_have_started_ends_with_a_command_that_is_killed(tmp_path):
    planting.write_copy(tmp_path, {})
    (tmp_path / "test_waiting.py").write_text(
        "import pathlib, subprocess, sys, time\n"
        "def test_waiting():\n"
        "    command = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        "    child = subprocess.Popen(command, start_new_session=True)\n"
        "    pathlib.Path('part').write_text(str(child.pid))\n"
        "    pathlib.Path('part').rename('child')\n"
        "    time.sleep(600)\n"
    )
    script = (
        "import pathlib, sys, time; from command_line.mutants.prepared import Prepared;"
        " folder = pathlib.Path(sys.argv[1]);"
        " kept = Prepared(folder); kept.run(['test_waiting.py', '-p', 'no:cacheprovider'], folder, folder / 'log');"
        " time.sleep(600)"
    )
    command = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], env={**os.environ, "PYTHONPATH": str(planting.ROOT)}
    )
    end = time.monotonic() + 90
    while not (tmp_path / "child").exists() and command.poll() is None and time.monotonic() < end:
        time.sleep(0.1)
    command.kill()
    command.wait()
    child = psutil.Process(int((tmp_path / "child").read_text()))
    gone, _ = psutil.wait_procs([child], timeout=30)
    for process in () if gone else (child,):
        process.kill()
    assert gone


@pytest.mark.slow
def test_the_time_limit_and_a_stop_leave_nothing_behind(prepared, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    results = []
    pool.run_trials(
        [lambda: Trial(survivor(), [LOGGING], 90, 0.2, lambda: prepared)],
        1,
        lambda trial, result: results.append(result),
        GOING_ON,
    )
    assert [result.verdict for result in results] == [matrix.TIMEOUT]
    stop = SimpleNamespace(signal=None)

    def make() -> Trial:
        stop.signal = 2
        return Trial(survivor(), [LOGGING], 90, 300, lambda: prepared)

    pool.run_trials([make], 1, lambda trial, result: results.append(result), stop)
    assert len(results) == 1 and list(tmp_path.iterdir()) == []
    assert psutil.Process(prepared.pid).children(recursive=True) == []


@pytest.mark.parametrize(
    ("message", "fault", "how"),
    [
        ("rank 0 raised triton.compiler.errors.CompilationError: at 3:4", None, "compilation"),
        ("the case did not end within 30 s", None, "hang"),
        ("the case did not end: ranks [0, 1] poll memory that no rank changes", None, "hang"),
        ("rank 0 raised MemoryFault: 4-byte access", "4-byte access", "fault"),
        ("rank 1, output, element 3: got 1, wanted 2", None, "result"),
    ],
)
def test_how_a_case_failed(message, fault, how):
    assert how_of(message, fault) == how
