"""Hangs on real GPUs: caught at the deadline and reported, at the cost of one case."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest

from fixtures.outcome import of_failure
from harness.evidence import Verdict
from harness.ranks import RankGroup, RankHang
from mutants.listed.general import CONTEXT
from mutants.planting import Defect, plant
from tests.gpu import rig
from tests.planted import run_suite

REASON = rig.reason()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))

REPORTED = 60.0
"""Seconds after the deadline within which the hang is reported and the group is gone; it takes a few."""


@pytest.fixture(scope="module", params=rig.STARTS)
def group(request: pytest.FixtureRequest) -> Iterator[RankGroup]:
    with rig.group_of_two(request.param) as group:
        yield group


def _state(hang: RankHang, rank: int) -> str:
    return hang.stacks[rank].partition("[state]")[2].partition("[py-spy]")[0]


def _caught(group: RankGroup, function: str) -> RankHang:
    started = time.monotonic()
    with pytest.raises(RankHang) as caught:
        rig.run(group, function)
    seconds = time.monotonic() - started
    print(f"reported after {seconds - rig.WARM:.1f} s beyond the deadline\n{caught.value}")
    assert rig.WARM <= seconds < rig.WARM + REPORTED
    assert of_failure(caught.value).verdict is Verdict.FAIL
    return caught.value


def test_a_kernel_that_spins_is_told_with_its_flag_and_its_name(group: RankGroup) -> None:
    with rig.costs_one_generation(group):
        hang = _caught(group, "spins")
    assert hang.waiting == (0, 1)
    for rank in (0, 1):
        assert re.search(r"hang_targets\.py\", line \d+ in spins", hang.stacks[rank]), "the Python stack"
        assert f"flags, 4 int32 at byte 2048: [{100 + rank}, 0, 0, 0], should end as [1, 0, 0, 0]" in _state(hang, rank)
        launches = re.findall(r"^  launch \d+: (\w+)\[", _state(hang, rank), re.MULTILINE)
        assert launches[-3:] == ["add_one", "wait_for_flag", "never_reached"], "what was enqueued, the last one last"
        assert "no NCCL collective is pending" in _state(hang, rank)


def test_a_collective_that_a_rank_does_not_enter_is_told(group: RankGroup) -> None:
    with rig.costs_one_generation(group):
        hang = _caught(group, "collective_without_rank_1")
    waits, sleeps = _state(hang, 0), _state(hang, 1)
    assert re.search(r"nccl:all_reduce number \d+ of group .*Float\[4\].*not ended", waits), waits
    assert "called in collective_without_rank_1" in waits
    assert "no NCCL collective is pending; the last one was\n  nccl:all_reduce" in sleeps, sleeps
    assert "flags, 4 int32 at byte 2048: [100, 0, 0, 0]" in waits, "the heap is read in addition to the collective"
    assert re.search(r"hang_targets\.py\", line \d+ in collective_without_rank_1", hang.stacks[1])


def test_a_device_barrier_that_a_rank_does_not_enter_is_told(group: RankGroup) -> None:
    with rig.costs_one_generation(group):
        hang = _caught(group, "device_barrier_without_rank_1")
    for rank in (0, 1):
        assert "barrier words of the world: [2, 1]" in _state(hang, rank), "rank 0 has entered twice, rank 1 once"
    launches = re.findall(r"^  launch \d+: (\w+)\[", _state(hang, 0), re.MULTILINE)
    assert launches[-2:] == ["barrier_kernel", "barrier_kernel"]


def test_in_the_suite_a_hang_costs_one_group(tmp_path) -> None:
    """A put that spins before it stores, as a user would see it."""
    stored = "gl.store(remote, value, mask=mask, cache_modifier=store_cache_modifier)"
    spin = "while gl.load(self.heap_bases, volatile=True) != 77:\n            pass\n        "
    plant(Defect("put spins", CONTEXT, stored, spin + stored, "def put("), tmp_path)
    files = ("conformance/rma/test_put.py", "conformance/rma/test_get.py", "-k", "int32")
    done = run_suite(tmp_path, *files, *rig.chosen(), "--level", "ci", "--deadline", "8", timeout=500)
    printed = done.stdout + done.stderr
    assert done.returncode == 1 and "1 failed, 1 passed" in done.stdout, printed
    assert "RMA-PUT-001[ranks=2,dtype=int32]: fail" in done.stdout, printed
    assert "did not end within" in done.stdout and "after 1 executed" in done.stdout, printed
    assert "rank 0 was at:" in done.stdout and "rank 1 was at:" in done.stdout, printed
    assert re.search(r"launch \d+: transfer_by_gluon", done.stdout), printed
    assert re.search(r"source, \d+ int32 at byte \d+:", done.stdout), printed
