"""Messages on the emulated device: the kernel that only receives, which serves every tensor."""

from __future__ import annotations

import pytest
import torch
from triton.runtime import driver

from iris_under_test.ccl.config import Config
from tests.iris.ranks import run_checks


def one_kernel_in_each_language_receives_every_tensor(ctx, rank, num_ranks):
    """Rank 0 sends to rank 1: other types, layouts and sizes, with other tiles and wavefronts."""
    values = torch.arange(1, 19)
    targets = [
        ctx.zeros(3, 6, dtype=torch.float16),
        ctx.zeros(19, dtype=torch.float64)[1:],
        ctx.zeros(6, 3, dtype=torch.bool).t(),
        ctx.zeros(3, 8, dtype=torch.complex64)[:, :6],
        ctx.zeros(1, 18, dtype=torch.int8),
        ctx.zeros(0, 6, dtype=torch.int32),
    ]
    for use_gluon in (False, True):
        configs = [Config(block_size_m=8, block_size_n=64, num_warps=1), Config(block_size_m=32, block_size_n=128)]
        driver.active.drain_launches()
        for number, target in enumerate(targets):
            config = configs[number % 2]
            config.use_gluon = use_gluon
            expected = values[: target.numel()].view(target.shape).to(target.dtype)
            if rank == 0:
                ctx.ccl.send(expected, 1, config=config)
            else:
                target.zero_()
                ctx.ccl.recv(target, 0, config=config)
                assert torch.equal(target, expected), target.dtype
        launches = driver.active.drain_launches()
        if rank == 1:
            assert len({launch.hash for launch in launches}) == 1
            assert len(launches) == len(targets)
            assert {launch.grid for launch in launches} == {(1, 1, 1)}


CHECKS = [one_kernel_in_each_language_receives_every_tensor]


@pytest.fixture(scope="module")
def outcome():
    return run_checks(CHECKS, 2, 1 << 20, emulated=True)


@pytest.mark.slow
@pytest.mark.parametrize("check", [check.__name__ for check in CHECKS])
def test_on_ranks(outcome, check):
    assert outcome[check] == ""
