"""The bound on rounded sums: no order of additions exceeds it, and other errors do."""

from __future__ import annotations

import itertools

import pytest
import torch

from harness.cases import of_name, rough
from harness.oracles import sum_error

DTYPES = ("fp16", "bf16", "fp32", "fp64")


def parts_of(dtype, members):
    return torch.stack([rough(dtype, 500, member=member) for member in range(members)])


def added(parts, order):
    """Add one after the other in that order, as kernels do: 16 bits in float32, and rounded at the end."""
    wide = parts.float() if parts.dtype.itemsize == 2 else parts
    total = wide[order[0]]
    for place in order[1:]:
        total = total + wide[place]
    return total.to(parts.dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_order_is_within(dtype):
    parts = parts_of(dtype, 4)
    assert all(sum_error(added(parts, order), parts) <= 1 for order in itertools.permutations(range(4)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("members", [2, 8])
def test_what_is_no_rounding_is_not(dtype, members):
    parts, eps = parts_of(dtype, members), torch.finfo(of_name(dtype)).eps
    right = added(parts, range(members))
    assert sum_error(added(parts, range(members - 1)), parts) > 1, "a part is missing"
    assert sum_error(right + parts[0], parts) > 1, "a part is there twice"
    off = right.clone()
    off[77] += 8 * members * eps
    assert sum_error(off, parts) > 1, "one element is some units off"
    off[77] = torch.nan
    assert not sum_error(off, parts) <= 1


def test_sums_of_16_bits_that_are_kept_in_16_bits_are_not_within():
    parts = parts_of("bf16", 8)
    narrow = parts[0]
    for part in parts[1:]:
        narrow = narrow + part
    assert sum_error(narrow, parts) > 1


def test_exact_zeros_and_nothing_at_all():
    assert sum_error(torch.zeros(3), torch.zeros(2, 3)) == 0
    assert sum_error(torch.zeros(0), torch.zeros(2, 0)) == 0
    assert sum_error(torch.tensor([1e-30]), torch.zeros(2, 1)) == torch.inf


def test_the_example():
    parts = torch.tensor([[1.0], [2.0**-24]])
    for right in (1.0, 1.0 + 2.0**-23):
        assert sum_error(torch.tensor([right]), parts) <= 1
    assert sum_error(torch.tensor([1.0 + 2.0**-21]), parts) > 1


@pytest.mark.parametrize(("dtype", "digits"), [(torch.float32, 24), (torch.float64, 53)])
def test_the_error_is_a_multiple_of_what_rounding_allows(dtype, digits):
    """Two additions, and half a unit of the exact sum: 3 times 2^-24 for the sum of 1 and 1, in float32."""
    parts = torch.ones(2, 1, dtype=dtype)
    got = torch.tensor([2.0 + 2.0 ** (2 - digits)], dtype=dtype)
    assert sum_error(got, parts) == pytest.approx(4 / (2 * 2 + 2), rel=1e-9)


def test_sums_of_16_bits_are_added_in_float32_and_rounded_once():
    parts = torch.ones(2, 1, dtype=torch.float16)
    got = torch.tensor([2.0 + 2.0**-9], dtype=torch.float16)
    assert sum_error(got, parts) == pytest.approx(2.0**-9 / (2 * 2 * 2.0**-24 + 2 * 2.0**-11), rel=1e-9)
