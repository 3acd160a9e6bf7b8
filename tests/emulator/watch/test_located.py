"""The allocation of an access, as the modes ``weak`` and ``race`` look it up."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from harness.emulator.native.located import find

STARTS = np.array([0x1000, 0x3000], np.uint64)
ENDS = np.array([0x2000, 0x4000], np.uint64)


@njit
def _find(starts, ends, count, address, size):
    return find(starts, ends, count, address, size)


@pytest.mark.parametrize(
    ("address", "size", "wanted"),
    [
        (0x1000, 16, 0),
        (0x1FF0, 16, 0),
        (0x3FFF, 1, 1),
        (0x0FFF, 1, -1),
        (0x1FF1, 16, -1),
        (0x2000, 1, -1),
        (0x4000, 1, -1),
        (-4, 8, -1),
        (-4, 4, -1),
        (-0x8000000000000000, 1, -1),
    ],
)
def test_an_access_lies_in_one_allocation_or_in_none(address, size, wanted):
    """The address is a bit pattern: -4 is 2**64 - 4, from where 8 bytes pass the end of the address space."""
    assert _find(STARTS.ctypes.data, ENDS.ctypes.data, len(STARTS), address, size) == wanted
