"""``Config.threads_per_warp``: the default fits every device; another lane count than the device's is refused."""

from __future__ import annotations

import pytest
import torch

from iris_under_test.ccl import Config, plans
from iris_under_test.ccl.config import ALL_GATHER_VARIANTS, ALL_REDUCE_VARIANTS
from tests.iris.ranks import run_checks

SIZE = (8, 64)


@pytest.mark.parametrize(("lanes", "accepted", "refused"), [(64, (64,), (32, 16)), (32, (64, 32), (16, 128))])
def test_the_default_stands_for_the_lane_count_of_the_device(lanes, accepted, refused, monkeypatch):
    monkeypatch.setattr(plans, "warp_size", lambda: lanes)
    config = Config()
    plans.check_lanes(config)
    for value in accepted:
        config.threads_per_warp = value
        plans.check_lanes(config)
    for value in refused:
        config.threads_per_warp = value  # fields may be assigned after construction
        with pytest.raises(ValueError, match=f"threads_per_warp must be {lanes}, .* got {value}$"):
            plans.check_lanes(config)


def calls(ctx, rank, num_ranks):
    """Return every collective by name, as a function of its ``config``."""
    whole, part = ctx.zeros(SIZE), ctx.zeros((SIZE[0] // num_ranks, SIZE[1]))
    other = ctx.zeros(SIZE)
    ccl, peer = ctx.ccl, (rank + 1) % num_ranks
    return {
        "all_gather": lambda config: ccl.all_gather(whole, part, config=config),
        "all_to_all": lambda config: ccl.all_to_all(whole, other, config=config),
        "all_reduce": lambda config: ccl.all_reduce(whole, other, config=config),
        "all_reduce_preamble": lambda config: ccl.all_reduce_preamble(whole, other, config=config),
        "reduce_scatter": lambda config: ccl.reduce_scatter(whole, other, config=config),
        "broadcast": lambda config: ccl.broadcast(whole, 0, config=config),
        "reduce": lambda config: ccl.reduce(whole, other, 0, config=config),
        "scatter": lambda config: ccl.scatter(part, whole, 0, config=config),
        "gather": lambda config: ccl.gather(whole, part, 0, config=config),
        "send": lambda config: (
            ccl.send(part, peer, config=config) if rank == 0 else ccl.recv(part, peer, config=config)
        ),
        "sendrecv": lambda config: ccl.sendrecv(whole, other, peer, peer, config=config),
    }


def every_collective_refuses_it(ctx, rank, num_ranks):
    for name, call in calls(ctx, rank, num_ranks).items():
        variants = {
            "all_gather": [{"all_gather_variant": variant} for variant in ALL_GATHER_VARIANTS],
            "all_reduce": [{"all_reduce_variant": variant} for variant in ALL_REDUCE_VARIANTS],
            # The preamble of one_shot and two_shot prepares nothing, so it checks nothing.
            "all_reduce_preamble": [{"all_reduce_variant": variant} for variant in ("ring", "spinlock")],
        }.get(name, [{}])
        for fields in variants:
            config = Config(threads_per_warp=32, comm_sms=4, **fields)
            with pytest.raises(ValueError, match=r"threads_per_warp must be 64, .* got 32$"):
                call(config)


def the_default_is_accepted(ctx, rank, num_ranks):
    source, gathered = ctx.full(SIZE, float(rank)), ctx.zeros((num_ranks * SIZE[0], SIZE[1]))
    for use_gluon in (False, True):
        ctx.ccl.all_gather(gathered, source, config=Config(use_gluon=use_gluon, comm_sms=4))
        assert torch.equal(gathered[-1].cpu(), torch.full((SIZE[1],), num_ranks - 1.0))


CHECKS = [every_collective_refuses_it, the_default_is_accepted]


@pytest.fixture(scope="module")
def outcome():
    return run_checks(CHECKS, num_ranks=2, heap_size=1 << 20, emulated=True)


@pytest.mark.nightly
@pytest.mark.parametrize("check", [check.__name__ for check in CHECKS])
def test_on_two_emulated_ranks(outcome, check):
    assert outcome[check] == ""
