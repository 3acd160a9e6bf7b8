"""Libraries that cheat pass a run that judges in their own process, and fail one that judges apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness import evidence
from harness.evidence import Verdict
from mutants.listed import DEFECTS
from mutants.planting import original, with_defect, write_copy
from tests.cheats.catalogue import CHEATS, Cheat
from tests.planted import run_suite, without_promises

IN_CI = ("patched oracle", "recorded replies", "skipped launches")
BY_NAME = {defect.name: defect for defect in DEFECTS}


def run(cheat: Cheat, folder: Path, judge: str, *device: str) -> tuple[int, str]:
    """Run the cheat's tests on a library that cheats; return the exit status and the output. ``device``: options that
    choose another one than the emulated."""
    changed = {"__init__.py": original("__init__.py") + cheat.code}
    if cheat.defect:
        defect = BY_NAME[cheat.defect]
        changed[defect.file] = with_defect(defect)
    write_copy(folder, changed)
    if not cheat.promises:
        without_promises(folder)
    done = run_suite(
        folder,
        cheat.tests,
        "-k",
        cheat.chosen,
        "--ranks",
        "2",
        "--level",
        "ci",
        "--judge",
        judge,
        *cheat.options,
        *device,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize(
    "cheat",
    [
        pytest.param(cheat, id=cheat.name, marks=pytest.mark.slow if cheat.name in IN_CI else pytest.mark.nightly)
        for cheat in CHEATS
    ],
)
def test_a_cheat_is_found_by_a_judge_apart(cheat: Cheat, tmp_path: Path) -> None:
    status, output = run(cheat, tmp_path, evidence.APART)
    assert status == 1, output
    assert cheat.line in output, output
    recorded = evidence.read(tmp_path / "evidence.jsonl")
    verdicts = {group.verdict for groups in recorded.groups.values() for group in groups}
    assert recorded.problems == [] and Verdict.FAIL in verdicts, output


@pytest.mark.slow
def test_the_same_cheat_passes_in_the_librarys_own_process(tmp_path: Path) -> None:
    """This is why certificates are judged apart."""
    status, output = run(CHEATS[0], tmp_path, evidence.ONE_PROCESS)
    assert status == 0, output
