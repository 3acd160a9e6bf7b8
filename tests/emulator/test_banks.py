"""Bank conflicts, counted by hand."""

import numpy as np
import pytest

from harness.emulator.native.banks import bank_conflicts

LANES = np.arange(64)
ALL = np.ones((1, 64), np.bool_)


def conflicts(addresses, size, arch="gfx942", mask=ALL, stores=False):
    return bank_conflicts(np.broadcast_to(addresses, mask.shape).astype(np.int64), mask, size, arch, stores)


@pytest.mark.parametrize("arch", ["gfx942", "gfx950"])
@pytest.mark.parametrize("stores", [False, True])
@pytest.mark.parametrize("size", [1, 2, 4, 8, 12, 16])
def test_lanes_side_by_side_do_not_conflict(size, stores, arch):
    # Reads of 12 bytes: lanes 20 to 22 begin at dword 60, and wrap around to the banks of lanes 0 to 2.
    assert conflicts(LANES * size, size, arch, stores=stores) == (8 if size == 12 and not stores else 0)
    assert conflicts(LANES * 0 + 16, size, arch, stores=stores) == 0  # all access the same


@pytest.mark.parametrize(
    ("stride", "gfx942", "gfx950"),
    [(8, 2, 0), (12, 0, 0), (16, 6, 2), (128, 62, 30), (256, 62, 62), (132, 0, 0)],
)
def test_dwords_with_a_stride(stride, gfx942, gfx950):
    """32 lanes per pass, two passes. Stride 8 in 32 banks: lanes 0 and 16 share bank 0, one more cycle per pass."""
    assert conflicts(LANES * stride, 4) == gfx942
    assert conflicts(LANES * stride, 4, "gfx950") == gfx950
    assert conflicts(LANES * stride, 4, "gfx950", stores=True) == gfx942


def test_wide_reads_go_by_groups_of_four_lanes():
    """In the second group of four, lanes 20 to 23, one address is moved into the banks of lane 0."""
    addresses = LANES * 16
    addresses[20] = 4096
    assert conflicts(addresses, 16) == 1
    assert conflicts(addresses, 16, stores=True) == 1  # there lane 20 shares its pass with 16 to 23: bank 0 of lane 16
    addresses[20] = 20 * 16
    addresses[7] = 4096  # with lanes 4 to 6 and 16 to 19: lane 16 has banks 0 to 3
    assert conflicts(addresses, 16) == 1
    addresses[16] = 4 * 16  # no longer: lane 16 shares lane 4's dwords
    assert conflicts(addresses, 16) == 0


def test_gfx950_reads_16_lanes_of_16_bytes_from_64_banks():
    first = np.where(LANES < 4, LANES * 16, 4096 + LANES * 16)
    assert conflicts(first, 16, "gfx950") == 0
    addresses = LANES * 16
    addresses[12] = 4096  # with lanes 0 to 3: all of them use banks 0 to 3 of lane 0
    assert conflicts(addresses, 16, "gfx950") == 1
    assert conflicts(addresses, 16) == 1  # on gfx942 with lane 24, which shares its pass there
    addresses = LANES * 16
    addresses[5] = 4096  # lanes 4 to 11, 16 to 19, 28 to 31: banks 0 to 3 are lane 16's
    assert conflicts(addresses, 16, "gfx950") == 1


def test_pairs_of_dwords():
    assert conflicts(LANES * 16, 8) == 4  # 16 lanes over 64 dwords: every second bank pair twice
    assert conflicts(LANES * 16, 8, "gfx950") == 2
    assert conflicts(LANES * 16, 8, "gfx950", stores=True) == 4


def test_inactive_lanes_want_nothing():
    mask = ALL.copy()
    mask[0, 1:] = False
    assert conflicts(LANES * 128, 4, mask=mask) == 0
    mask[0, 33] = True  # in another pass
    assert conflicts(LANES * 128, 4, mask=mask) == 0
    mask[0, 1] = True
    assert conflicts(LANES * 128, 4, mask=mask) == 1
    two = np.concatenate([mask, mask])
    assert conflicts(LANES * 128, 4, mask=two) == 2
