"""Judges apart from the library on real GPUs: they map its heap, of each provider, and find libraries that cheat."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import evidence
from harness.evidence import Verdict
from tests.cheats.catalogue import CHEATS, Cheat
from tests.cheats.test_cheats import run
from tests.gpu import rig

REASON = rig.reason()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))

ROOT = Path(__file__).parents[2]
LIMIT = 600

HEAPS = (
    {"IRIS_HEAP_PROVIDER": "symmetric_memory"},
    {"IRIS_HEAP_PROVIDER": "ipc"},
    {"IRIS_ALLOCATOR": "vmem"},
)
"""The heaps of the bundled library: torch's symmetric memory, an allocation, and virtual memory."""

COUNTED = ("results of torch.distributed",)
"""Cheats that are found by counts of executed accesses, which a GPU does not have."""


def judged(folder: Path, *arguments: str, **variables: str) -> evidence.Evidence:
    """Return the evidence of a run of the suite that judges apart, and passes."""
    file = folder / "evidence.jsonl"
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *arguments, *rig.chosen()]
    done = subprocess.run(
        [*command, "--level", "ci", "--judge", "apart", "--evidence", str(file)],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr
    return evidence.read(file)


@pytest.mark.parametrize("variables", HEAPS, ids=lambda variables: next(iter(variables.values())))
def test_every_heap_is_mapped(variables: dict[str, str], tmp_path: Path) -> None:
    chosen = ("conformance/rma/test_put.py", "conformance/atomics/test_add.py", "-k", "int32")
    actual = judged(tmp_path, *chosen, **variables)
    assert {(case.judge, case.verdict) for case in actual.cases} == {(evidence.APART, Verdict.PASS)}
    assert actual.kernels and all(case.launches for case in actual.cases)


def test_calls_that_overlap_are_judged_together(tmp_path: Path) -> None:
    """A judge waits for each call, so that no two of them would be in flight."""
    actual = judged(tmp_path, "conformance/collectives/test_operations.py", "-k", "test_all_gather")
    asynchronous = {case.case["fields"]["async_op"]: case.judge for case in actual.cases}
    assert asynchronous == {True: evidence.ONE_PROCESS, False: evidence.APART}


@pytest.mark.parametrize("cheat", [one for one in CHEATS if one.name not in COUNTED], ids=lambda cheat: cheat.name)
def test_a_cheat_is_found(cheat: Cheat, tmp_path: Path) -> None:
    status, output = run(cheat, tmp_path, evidence.APART, *rig.chosen())
    assert status == 1, output
    assert cheat.line in output, output
    recorded = evidence.read(tmp_path / "evidence.jsonl")
    verdicts = {group.verdict for groups in recorded.groups.values() for group in groups}
    assert recorded.problems == [] and Verdict.FAIL in verdicts, output
