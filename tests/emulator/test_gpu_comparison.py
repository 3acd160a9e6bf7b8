"""The emulated device returns the bits that a recorded GPU returned; planted differences are reported."""

import itertools
import json

import pytest
import torch

from harness import emulator
from tests.gpu import compare

RECORD = json.loads(compare.RECORDED.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["gfx942", pytest.param("gfx950", marks=pytest.mark.nightly)])
def test_every_kernel_returns_what_the_gpu_returned(arch):
    """Integers, conversions, IEEE arithmetic, reductions, scans, atomics, movements and exact products."""
    mine = compare.emulated(arch)
    assert len(mine["kernels"]) > 190
    assert compare.differences(mine, RECORD) == []


def some(count):
    """Return the record of the first kernels on a device whose machine code was changed."""
    names = dict(itertools.islice(((n, compare.digests(r)) for n, r in compare.results("cpu")), count))
    return {"device": "emulated", "kernels": names}


def test_a_planted_fault_of_the_device_is_reported():
    driver = emulator.activate("gfx942")
    wanted = {**RECORD, "kernels": dict(itertools.islice(RECORD["kernels"].items(), 5))}
    try:
        assert compare.differences(some(5), wanted) == []
        driver.rewrite = lambda kernel, listing: listing.replace("v_or_b32", "v_xor_b32")
        lines = compare.differences(some(5), wanted)
    finally:
        emulator.deactivate()
    assert any(line.startswith("integers int8 or: ") and line.endswith("blocks differ") for line in lines), lines


def test_differences_of_records():
    one = {"device": "one", "kernels": {"a": ["0", "1"], "b": ["2"]}}
    assert compare.differences(one, one) == []
    other = {"device": "other", "kernels": {"a": ["0", "9"], "c": ["2"]}}
    assert compare.differences(one, other) == [
        "a: 1 of 2 blocks differ", "b: not in the record of other", "c: not in the record of one",
    ]  # fmt: skip


def test_digests_see_every_bit_but_those_of_nan():
    values = torch.arange(130, dtype=torch.float32)
    other = values.clone()
    other[129] = torch.nextafter(other[129], torch.tensor(0.0))
    assert [a == b for a, b in zip(compare.digests(values), compare.digests(other), strict=True)] == [True, True, False]
    one, two = (torch.tensor([bits], dtype=torch.int32).view(torch.float32) for bits in (0x7FC00000, -1))
    assert compare.digests(one) == compare.digests(two)
    assert compare.digests(torch.tensor([0.0])) != compare.digests(torch.tensor([-0.0]))
