"""Payloads: known answers, those for conversions, and what the memory of a case has of them."""

from __future__ import annotations

import hashlib

import pytest
import torch

from harness.cases import payload, rounds_needed
from harness.cases.payload import SCHEMES, Scheme

KNOWN = {
    ("int32", False): "e2f39c0de43b", ("fp16", False): "ea4fcaf90d94", ("bf16", False): "5db687732beb",
    ("fp32", False): "d2bcc87e6146", ("int8", False): "e659812a1ee5", ("fp64", False): "272fc46163de",
    ("int16", False): "8d00837fcf78", ("int64", False): "c45f25045012", ("bool", False): "cace21ebeaf5",
    ("fp16", True): "995d63e540b6", ("bf16", True): "a8ee57aa3d5c", ("fp32", True): "97c0d91ce631",
    ("fp64", True): "a1a5cf80b408",
}  # fmt: skip
"""Digests of all 16-bit floats and of parts of the other payloads. A recorded case is repeated from its seed, also by a
later version, so its inputs must stay the same."""


@pytest.mark.parametrize(("dtype", "converted"), KNOWN)
def test_a_case_that_was_recorded_has_the_same_inputs_in_each_version(dtype: str, converted: bool) -> None:
    count = 1 << 15 if dtype in ("fp16", "bf16") else 500
    digest = hashlib.sha256()
    for round_, repetition in ((0, 0), (0, 70_000), (1, 3)):
        for rank in range(2):
            values = payload(
                dtype, count, rank=rank, ranks=2, round_=round_, repetition=repetition, converted=converted
            )
            digest.update(values.view(torch.uint8).numpy().tobytes())
    assert digest.hexdigest()[:12] == KNOWN[dtype, converted]


@pytest.mark.parametrize("dtype", ["bool", "int8", "int64"])
def test_only_floats_are_changed_for_a_conversion(dtype: str) -> None:
    plain, converted = (payload(dtype, 40, rank=1, ranks=2, converted=each) for each in (False, True))
    assert torch.equal(plain, converted)


def test_a_case_remembers_its_payloads() -> None:
    SCHEMES.clear()
    first = payload("fp32", 9, rank=1, ranks=3)
    assert SCHEMES.latest_first() == (Scheme("fp32", 9, 3, 0, 0, converted=False),)
    again = SCHEMES.latest_first()[0].of_rank(1)
    assert torch.equal(first.view(torch.int32), again.view(torch.int32)), "it has NaNs"


@pytest.mark.parametrize(
    ("dtype", "codes", "rounds"),
    [("bool", 0, 1), ("bool", 2, 1), ("bool", 3, 2), ("bool", 8, 3), ("bool", 9, 4), ("fp16", 1 << 32, 2)],
)
def test_the_rounds_that_tell_codes_apart(dtype: str, codes: int, rounds: int) -> None:
    assert rounds_needed(dtype, codes) == rounds
