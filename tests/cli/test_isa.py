"""``iris-harness isa``: exit statuses, baselines and their differences; and a planted fault, found without a GPU."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from command_line import main
from command_line.commands import isa
from command_line.isa import baseline
from command_line.isa.compiled import Result
from conformance.isa.catalogue import CALLS
from conformance.isa.compilers import defects
from conformance.isa.contract import contracts
from conformance.isa.figures import changes
from conformance.isa.targets import ARCHS
from harness.errors import HarnessError, UsageError
from mutants.planting import NAME, ROOT, Defect, plant
from tests import python
from tests.planted import run_suite

RING = {
    "kernel": "ring_gluon", "sha256": "a" * 16, "instructions": 524, "registers": 52, "spills": 0,
    "fences": {"write-back sc0 sc1": 2, "invalidation sc0 sc1": 2}, "accesses": {"remote store 16": 3},
}  # fmt: skip
CALL = "all_reduce ring gluon"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Result]:
    """The results that the command gets instead of compiling; a test may replace them."""
    results = [Result("gfx942", CALL, [RING])]
    monkeypatch.setattr(isa, "compile_all", lambda tasks, *_: list(results))
    return results


def run(*arguments: str) -> int:
    return main.run(["isa", *arguments, "--arch", "gfx942", "--only", CALL])


def test_accept_writes_what_diff_then_finds_unchanged(compiled, tmp_path, capsys):
    folder = ("--baselines", str(tmp_path))
    assert run("diff", *folder) == 3
    assert "there is no such baseline; iris-harness isa accept --arch gfx942" in capsys.readouterr().out
    assert run("accept", *folder) == 0
    assert run("diff", *folder) == 0
    assert "as in the baseline" in capsys.readouterr().out
    path = baseline.path_of(tmp_path, "gfx942")
    assert json.loads(path.read_text(encoding="utf-8")) == {CALL: [RING]}
    before = path.read_text(encoding="utf-8")
    assert run("accept", *folder) == 0
    assert path.read_text(encoding="utf-8") == before, "the same figures give the same bytes"


def test_diff_names_what_changed_and_has_a_status_of_its_own(compiled, tmp_path, capsys):
    folder = ("--baselines", str(tmp_path))
    run("accept", *folder)
    fences = {"write-back sc0 sc1": 1, "invalidation sc0 sc1": 2}
    compiled[0] = Result("gfx942", CALL, [{**RING, "registers": 60, "fences": fences}])
    capsys.readouterr()
    assert run("diff", *folder) == 3
    wanted = f"{CALL}, gfx942: ring_gluon: registers 52 -> 60; fences: write-back sc0 sc1 2 -> 1"
    assert wanted in capsys.readouterr().out.splitlines()


def test_a_broken_contract_is_status_1_and_no_baseline(compiled, tmp_path, capsys):
    compiled[0] = replace(compiled[0], broken=["ring_gluon (gfx942): missing buffer_wbl2 sc0 sc1"])
    assert run("check") == 1
    assert f"{CALL}: ring_gluon (gfx942): missing buffer_wbl2 sc0 sc1" in capsys.readouterr().out
    assert run("diff", "--baselines", str(tmp_path)) == 1, "also without a baseline"
    assert run("accept", "--baselines", str(tmp_path)) == 1
    assert list(tmp_path.iterdir()) == []


WAIT = "order (amdgcn): wanted release at scope sys for release at scope sys, got missing s_waitcnt vmcnt(0) after the buffer_wbl2 before 'global_atomic_add v1'"  # noqa: E501
NO_WRITE_BACK = "order (amdgcn): wanted release at scope sys for release at scope sys, got missing buffer_wbl2 sc0 sc1 before 'global_atomic_add v1'"  # noqa: E501


@pytest.mark.parametrize(
    ("triton", "call", "line", "status"),
    [
        ("3.6.0", "atomic_add release sys context", WAIT, 0),
        ("3.7.1", "atomic_add release sys context", WAIT, 0),
        ("3.9.0", "atomic_add release sys context", WAIT, 1),
        ("3.6.0", "atomic_add release sys context", NO_WRITE_BACK, 1),
        ("3.6.0", CALL, WAIT, 1),
    ],
    ids=["3.6", "3.7", "a release without the defect", "another finding", "another contract"],
)
def test_a_known_defect_of_triton_is_counted_apart(triton, call, line, status, compiled, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(isa, "version", lambda _: triton)
    compiled[0] = Result("gfx942", call, [RING], broken=[line])
    assert run("accept", "--baselines", str(tmp_path)) == status
    printed = capsys.readouterr().out
    apart = f"1 findings are a known defect of Triton {triton}: a release does not wait for its write-back"
    assert (apart in printed) == (status == 0)
    assert (f"{call}: {line}" in printed) == (status == 1)


def test_the_known_defects_are_of_contracts_that_exist():
    for defect in defects():
        assert set(defect.contracts) <= set(contracts()), defect


def test_a_defect_without_a_reason_is_refused(tmp_path):
    (tmp_path / "wrong.toml").write_text('[[defect]]\ntriton = ["3.6"]\ncontracts = []\nfinding = ""\n', "utf-8")
    with pytest.raises(HarnessError, match=r"'reason'.* in each defect, got"):
        defects(tmp_path / "wrong.toml")


def test_a_kernel_that_does_not_compile_is_status_1(compiled, capsys):
    compiled[0] = Result("gfx942", CALL, error="CompilationError: no")
    assert run("check") == 1
    assert f"{CALL}, gfx942: not compiled: CompilationError: no" in capsys.readouterr().out


def test_accept_keeps_the_other_calls_of_a_baseline(compiled, tmp_path):
    path = baseline.path_of(tmp_path, "gfx942")
    baseline.save(path, [Result("gfx942", "put gluon", [{**RING, "kernel": "put"}])])
    assert run("accept", "--baselines", str(tmp_path)) == 0
    assert list(baseline.load(path) or {}) == [CALL, "put gluon"]


@pytest.mark.parametrize("content", ["not JSON", "[]", '{"put": 1}'])
def test_a_file_that_is_not_a_baseline_is_refused(tmp_path, content):
    path = tmp_path / "gfx942.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(UsageError, match=r"gfx942\.json"):
        baseline.load(path)


def test_wrong_arguments_are_refused(capsys):
    assert main.run(["isa", "check", "--only", "nothing"]) == 2
    assert "no call has 'nothing' in its name" in capsys.readouterr().err
    assert main.run(["isa", "accept", "--implementation", "iris"]) == 2
    assert "--baselines: the default is about iris_under_test" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({}, None),
        ({"sha256": "b" * 16}, "ring_gluon: the same figures, but other instructions"),
        ({"accesses": {"remote store 8": 6}}, "ring_gluon: accesses: remote store 16 3 -> 0, remote store 8 0 -> 6"),
        ({"spills": 4}, "ring_gluon: spills 0 -> 4"),
        ({"kernel": "other"}, "ring_gluon: no longer launched"),
    ],
)
def test_changes_of_figures(change: dict[str, Any], line: str | None):
    listed = list(changes([RING], [{**RING, **change}]))
    assert listed[:1] == ([line] if line else [])
    assert list(changes([RING, RING], [RING, {**RING, **change}])) == [
        one.replace("ring_gluon", "ring_gluon 2", 1) for one in listed
    ]


def test_the_baselines_of_the_library_have_every_call():
    folders = {path.name for path in baseline.FOLDER.iterdir()}
    assert {name.rpartition(".")[0] for name in folders} == {f"triton-3.{minor}" for minor in (6, 7, 8, 9)}
    for path in (baseline.FOLDER / name / f"{arch}.json" for name in folders for arch in ARCHS):
        kernels = baseline.load(path)
        assert kernels is not None and set(kernels) == set(CALLS), path
        for call, figures in kernels.items():
            allowed = contracts()[CALLS[call].contract].own.spills
            limit = allowed.get("sm_90a" if path.stem == "sm_90" else path.stem, 0)
            assert all(one["spills"] <= limit for one in figures), f"{path}: {call}"


POLL = Defect("a poll from a cache", "device/targets/amd.py", "$0, $0, $2 sc0 sc1", "$0, $0, $2")
WAIT = Defect(
    "a write-back that is not awaited", "device/targets/amd.py", r"\ns_waitcnt vmcnt(0) lgkmcnt(0)", "",
)  # fmt: skip


@pytest.mark.slow
def test_a_planted_poll_from_a_cache_is_found_without_a_gpu(tmp_path: Path):
    plant(POLL, tmp_path)
    command = [sys.executable, "-m", "command_line", "isa", "check", "--implementation", NAME, "--arch", "gfx942"]
    command += ["--only", "device_barrier", "--output", str(tmp_path / "out")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}
    done = python.run(command, cwd=ROOT, env=environment, timeout=300)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "device_barrier: barrier_kernel (gfx942): the poll 'global_load_dword" in done.stdout
    assert "does not read at scope sys: missing sc0 sc1" in done.stdout
    assert "device/targets/amd.py:" in done.stdout
    assert list((tmp_path / "out" / "gfx942").glob("device_barrier-*.s"))


@pytest.mark.nightly
@pytest.mark.parametrize("defect", [POLL, WAIT], ids=lambda defect: defect.name)
def test_a_planted_fault_turns_the_requirement_red(tmp_path: Path, defect: Defect):
    plant(defect, tmp_path)
    done = run_suite(tmp_path, "conformance/isa/test_contract.py", "--ranks", "2", "--level", "ci", "--deadline", "120")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "ISA-CONTRACT-001[ranks=2]: fail" in done.stdout
    wanted = {"a poll from a cache": "missing sc0 sc1"}.get(defect.name, "missing s_waitcnt vmcnt(0)")
    assert wanted in done.stdout, done.stdout
    assert "device/targets/amd.py:" in done.stdout or "kernels/move.py:" in done.stdout


@pytest.mark.nightly
def test_all_contracts_are_kept_on_all_targets_and_the_code_is_that_of_the_baseline(tmp_path: Path):
    known = all(baseline.path_of(baseline.FOLDER, arch).exists() for arch in ARCHS)
    done = python.run(
        [sys.executable, "-m", "command_line", "isa", "diff" if known else "check", "--output", str(tmp_path)],
        cwd=ROOT,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert f"{len(ARCHS) * len(CALLS)} of {len(ARCHS) * len(CALLS)} calls judged, 0 findings" in done.stdout
