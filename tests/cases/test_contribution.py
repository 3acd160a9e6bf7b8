"""Contributions to reductions: known answers, their ranges, and what the memory of a case has of them."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest
import torch

from harness.cases import contribution, reduce_ops, rough
from harness.cases.contribution import REDUCTIONS, Reduction, _mixed

KNOWN = {
    ("int32", "sum", False): "5f1ee013175b", ("int32", "band", False): "f43ddb22d22f",
    ("int32", "bor", False): "debeeb9cdadf", ("bool", "sum", False): "d6430d54c92b",
    ("bool", "product", False): "99e47a28bc61", ("bool", "bxor", False): "b9d45c27e176",
    ("fp16", "sum", False): "d17c9849f301", ("fp16", "product", False): "3e68e793c306",
    ("fp16", "max", False): "252364bced89", ("fp16", "rough", False): "b3f9b4a460a7",
    ("fp64", "sum", False): "022c3b7f210a", ("fp64", "product", False): "c3bcbfac2b8c",
    ("fp64", "max", False): "a37c6eb0d831", ("fp64", "rough", False): "ae1e57cf6f17",
    ("fp16", "sum", True): "2f0fff31b767", ("fp16", "product", True): "a3074aa0f800",
    ("bf16", "sum", True): "b8d3c0d0104b", ("bf16", "product", True): "e9dee2bb6c8c",
}  # fmt: skip
"""Digests of four members' contributions to two calls. A recorded case is repeated from its seed, also by a later
version, so its inputs must stay the same."""


@pytest.mark.parametrize(("dtype", "op", "wide"), KNOWN)
def test_a_case_that_was_recorded_has_the_same_inputs_in_each_version(dtype: str, op: str, wide: bool) -> None:
    digest = hashlib.sha256()
    for call in range(2):
        for members in (2, 4):
            for member in range(members):
                values = (
                    contribution(op, dtype, 64, member=member, members=members, repetition=call, wide=wide)
                    if op != "rough"
                    else rough(dtype, 64, member=member)
                )
                digest.update(values.view(torch.uint8).numpy().tobytes())
    assert digest.hexdigest()[:12] == KNOWN[dtype, op, wide]


def test_the_generator_is_splitmix64() -> None:
    """Its first outputs for seed 0, as they are published; each seed, and each place, has a sequence of its own."""
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F, 0xF88BB8A8724C81EC]
    assert _mixed(np.arange(4, dtype=np.uint64), 0).tolist() == published
    high = np.uint64(1 << 63)
    assert _mixed(np.array([0, 1 << 63], np.uint64), 0).tolist()[1] != published[0]
    assert _mixed(np.zeros(1, np.uint64), high).tolist() != published[:1]


def test_the_first_call_is_the_default_and_a_case_remembers_its_reductions() -> None:
    REDUCTIONS.clear()
    first = contribution("sum", "fp32", 9, member=1, members=3)
    assert REDUCTIONS.latest_first() == (Reduction("sum", "fp32", 9, 3, 0, wide=False),)
    assert torch.equal(first, contribution("sum", "fp32", 9, member=1, members=3, repetition=0))
    assert torch.equal(first, REDUCTIONS.latest_first()[0].of_member(1))


@pytest.mark.parametrize("op", reduce_ops("bool"))
def test_booleans_have_both_values_and_the_result_too(op: str) -> None:
    """Sum and max of booleans are "or", product and min "and"."""
    parts = [contribution(op, "bool", 400, member=member, members=3) for member in range(3)]
    assert all(part.dtype == torch.bool for part in parts)
    if op == "bxor":
        result = parts[0] ^ parts[1] ^ parts[2]
    elif op in ("bor", "sum", "max"):
        result = parts[0] | parts[1] | parts[2]
    else:
        result = parts[0] & parts[1] & parts[2]
    for values in (*parts, result):
        assert 0.05 < values.double().mean() < 0.95, f"{op} has almost one value only"


@pytest.mark.parametrize(("op", "share"), [("band", 7 / 8), ("bor", 1 / 8), ("bxor", 1 / 2), ("sum", 1 / 2)])
def test_the_share_of_bits_that_are_set(op: str, share: float) -> None:
    bits = np.unpackbits(contribution(op, "int64", 500, member=0, members=2).numpy().view(np.uint8))
    assert abs(bits.mean() - share) < 0.01, "one of the three parts is missing"


@pytest.mark.parametrize("members", [1, 2, 3, 8])
def test_addends_reach_the_limit_that_keeps_their_sum_exact(members: int) -> None:
    limit = 2**8 // members * 2**3  # of bf16's significand, with the largest unit
    values = contribution("sum", "bf16", 4000, member=0, members=members).double()
    assert 0.9 * limit < values.max() <= limit and -limit <= values.min() < -0.9 * limit
    smallest = min(abs(value) for value in values.tolist() if value)
    assert smallest == 2**-4, "the smallest unit"


@pytest.mark.parametrize(("dtype", "op"), [("fp32", "sum"), ("fp64", "product"), ("int16", "sum"), ("bf16", "max")])
def test_only_sums_and_products_of_16_bit_floats_can_be_wide(dtype: str, op: str) -> None:
    plain, wide = (contribution(op, dtype, 64, member=1, members=3, wide=wide) for wide in (False, True))
    assert torch.equal(plain, wide)


def test_compared_values_have_all_signs_and_exponents() -> None:
    values = contribution("max", "fp32", 4000, member=0, members=2).double()
    exponents = torch.frexp(values)[1] - 1
    assert (exponents.min(), exponents.max()) == (-6, 6)
    assert 0.45 < (values > 0).double().mean() < 0.55
    significands = values.abs() / 2.0**exponents
    assert significands.min() < 1.01 and significands.max() > 1.99


def test_rough_values_fill_their_range() -> None:
    values = rough("fp64", 4000, member=0)
    assert -2 <= values.min() < -1.99 and 1.99 < values.max() < 2
