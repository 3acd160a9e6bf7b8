"""Faults of kernels on real GPUs: reported for the rank that caused them, at the cost of one case."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from fixtures.outcome import of_failure
from harness.evidence import JUDGES, Verdict
from harness.ranks import CaseFailed, RankCrash, RankFailure, RankGroup
from mutants.listed.general import CONTEXT
from mutants.planting import Defect, plant
from tests.gpu import rig
from tests.gpu.hang_targets import FarCase
from tests.planted import run_suite

REASON = rig.reason()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))

FAR = FarCase(distance=1 << 44)
"""16 TiB away, where nothing is mapped."""


@pytest.fixture(scope="module", params=rig.STARTS)
def group(request: pytest.FixtureRequest) -> Iterator[RankGroup]:
    with rig.group_of_two(request.param) as group:
        yield group


def _caught(group: RankGroup, function: str) -> CaseFailed:
    started = time.monotonic()
    with pytest.raises(CaseFailed) as caught:
        rig.run(group, function, FAR, deadline=120)
    print(f"reported after {time.monotonic() - started:.1f} s\n{caught.value}")
    assert time.monotonic() - started < 60, "other ranks that wait for the lost one have their grace and no more"
    return caught.value


@pytest.mark.parametrize("function", ["writes_far", "writes_far_beside_a_collective", "writes_far_unguarded"])
def test_an_illegal_address_is_the_verdict(group: RankGroup, function: str) -> None:
    with rig.costs_one_generation(group):
        failure = _caught(group, function)
    outcome = of_failure(failure)
    assert (outcome.verdict, outcome.fatal) == (Verdict.FAIL, True)
    assert outcome.fault
    if rig.device() == "rocm":  # ROCm's runtime ends the process
        assert isinstance(failure, RankCrash) and 1 in failure.exits
        return
    assert isinstance(failure, RankFailure)
    assert failure.poisoned == (1,)
    assert "illegal memory access" in failure.errors[1].message + failure.errors[1].traceback
    assert "rank 1 raised" in outcome.message
    if function == "writes_far":
        assert failure.errors[1].type == "harness.errors.KernelFault"


@pytest.mark.parametrize("judge", JUDGES)
def test_in_the_suite_a_fault_costs_one_group(judge: str, tmp_path) -> None:
    """A put far outside its target, as a user would see it."""
    near = "gl.store(remote, value, mask=mask, cache_modifier=store_cache_modifier)"
    far = "(remote.to(gl.int64, bitcast=True) + 17592186044416).to(remote.dtype, bitcast=True)"
    plant(Defect("put far away", CONTEXT, near, near.replace("remote", far), "def put("), tmp_path)
    files = ("conformance/rma/test_put.py", "conformance/rma/test_get.py", "-k", "int32")
    done = run_suite(
        tmp_path, *files, *rig.chosen(), "--level", "ci", "--deadline", "20", "--judge", judge, timeout=500
    )
    printed = done.stdout + done.stderr
    assert done.returncode == 1 and "1 failed, 1 passed" in done.stdout, printed
    assert "RMA-PUT-001[ranks=2,dtype=int32]: fail" in done.stdout, printed
    assert "did not end within" not in done.stdout and "after 1 executed" in done.stdout, printed
    if rig.device() == "rocm":
        assert "a rank process ended" in done.stdout and "Memory access fault" in done.stdout, printed
    else:
        assert "KernelFault" in done.stdout and "illegal memory access" in done.stdout, printed
