"""The collectives on GPUs: what an emulated device cannot show. Beyond 2^31, device graphs, streams, equal bits."""

from __future__ import annotations

import pytest

from harness import devices
from harness.devices import inventory
from harness.ranks import RankGroup
from tests.gpu import collective_targets, rig

REASON = rig.reason(gpus=1)
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))

TARGETS = "tests.gpu.collective_targets"
HEAP = 6 << 30
COLD = 240


@pytest.fixture(scope="module")
def group():
    """Four ranks, or two on two GPUs; on a single GPU they share it."""
    gpus = inventory.visible(rig.device())
    ranks = 2 if 2 <= len(gpus) < 4 else 4
    shared = inventory.gpus_for(ranks, len(gpus))
    options = {
        "backend": devices.known(rig.device(), ranks_per_gpu=shared).backend,
        "ranks_per_gpu": shared,
        "device": rig.device(),
        "arch": gpus[0].arch,
        "heap_size": HEAP,
    }
    with RankGroup(ranks, setup=f"{TARGETS}:setup", options=options) as ranks:
        yield ranks


@pytest.mark.parametrize("use_gluon", [False, True], ids=["triton", "gluon"])
def test_more_than_2_to_the_31_elements_and_bytes(group, use_gluon):
    for reported in group.call(f"{TARGETS}:large", (use_gluon, 0), deadline=COLD):
        assert reported == dict.fromkeys(("all_gather", "all_to_all", "all_reduce one_shot", "all_reduce two_shot"), 0)


def test_a_wrong_large_result_is_seen(group):
    """Every element is looked at: all differ from what they are not."""
    for reported in group.call(f"{TARGETS}:large", (False, 1), deadline=COLD):
        assert min(reported.values()) > 1 << 31


@pytest.mark.parametrize("use_gluon", [False, True], ids=["triton", "gluon"])
def test_a_captured_graph_is_replayed_with_changing_data(group, use_gluon):
    names = list(collective_targets.OPS)
    assert group.call(f"{TARGETS}:graphs", (names, use_gluon, 0), deadline=COLD) == [{}] * group.world_size


def test_a_wrong_replay_is_seen(group):
    for reported in group.call(f"{TARGETS}:graphs", (["all_gather"], False, 1), deadline=COLD):
        assert "replay 3" in reported["all_gather"]


def test_two_groups_at_the_same_time_on_two_streams(group):
    if group.world_size < 4:
        pytest.skip("needs 4 GPUs, or one that is shared")
    reported = group.call(f"{TARGETS}:two_groups", deadline=COLD)
    assert reported == [(True, True)] * group.world_size


def test_overlapping_groups(group):
    if group.world_size < 4:
        pytest.skip("needs 4 GPUs, or one that is shared")
    assert all(all(reported) for reported in group.call(f"{TARGETS}:overlapping_groups", deadline=COLD))


@pytest.mark.parametrize("use_gluon", [False, True], ids=["triton", "gluon"])
def test_reductions_that_round_give_the_same_bits(group, use_gluon):
    reported = group.call(f"{TARGETS}:equal_bits", (use_gluon, 3), deadline=COLD)
    for name, (hashes, ordered) in reported[0].items():
        everywhere = {each for rank in reported for each in rank[name][0]}
        assert len(everywhere) == 1, f"{name}: {len(hashes)} results on rank 0, {len(everywhere)} on all"
        if "ring" not in name:
            assert ordered, f"{name}: not the sum in the members' order"


def test_a_handle_says_when_its_op_is_complete(group):
    world = group.world_size
    assert group.call(f"{TARGETS}:handles", True, deadline=COLD) == [(False, True, list(range(world)))] * world
    # A stream that does not wait for the handle reads too early.
    assert any(-1 in seen for _, _, seen in group.call(f"{TARGETS}:handles", False, deadline=COLD))


def test_the_guide(group):
    group.call(f"{TARGETS}:guide", deadline=COLD)
