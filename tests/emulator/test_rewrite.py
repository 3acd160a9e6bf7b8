"""Changed machine code: it is what runs, and what the launch's record has."""

import pytest
import torch
import triton
import triton.language as tl

from harness import emulator


@triton.jit
def doubled(source, target, N: tl.constexpr):
    offsets = tl.arange(0, N)
    tl.store(target + offsets, tl.load(source + offsets) * 2)


@pytest.fixture
def driver():
    yield emulator.activate("gfx942")
    emulator.deactivate()


def test_a_launch_is_recorded_with_the_code_that_ran(driver):
    source, target = torch.ones(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    driver.rewrite = lambda name, listing: listing.replace("\tglobal_store_dword ", "\ts_nop 3 ;").replace(
        "\tbuffer_store_dword ", "\ts_nop 3 ;"
    )
    doubled[(1,)](source, target, 64)
    [launch] = driver.drain_launches()
    assert target.eq(0).all() and "s_nop 3" in launch.listing
    driver.rewrite = None
    doubled[(1,)](source, target, 64)
    [launch] = driver.drain_launches()
    assert target.eq(2).all() and "s_nop 3" not in launch.listing
