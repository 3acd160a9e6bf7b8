"""The host side with nccl as the only backend, and on streams of the caller's."""

from __future__ import annotations

import pytest

from harness.ranks import RankGroup
from tests.gpu import rig

REASON = rig.absent("cuda") or rig.reason()
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))


TARGETS = "tests.gpu.nccl_targets"


@pytest.fixture(scope="module")
def group():
    options = {"backend": "nccl", "device": "cuda", "arch": "sm_90"}
    with RankGroup(2, setup=f"{TARGETS}:setup", options=options) as ranks:
        yield ranks


def test_host_side(group):
    reported = group.call(f"{TARGETS}:host_side", deadline=120)
    for rank, (backend, values, sent, number, error, device) in enumerate(reported):
        assert "gloo" not in backend
        assert values == [rank] * 4
        assert sent == {"from": 1}
        assert number == 2.5
        assert error == "MemoryError"
        assert device == f"cuda:{rank}"


def test_the_library_works_on_the_stream_it_is_called_on(group):
    assert group.call(f"{TARGETS}:side_stream", True, deadline=120) == [[7, 8], [7, 8]]
    # Zeros: gathered before the inputs were there.
    assert group.call(f"{TARGETS}:side_stream", False, deadline=120) == [[0], [0]]


def test_barrier_waits_for_the_stream_it_is_given(group):
    assert group.call(f"{TARGETS}:waits_for_one_stream", deadline=120) == [True, True]
