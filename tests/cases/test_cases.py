"""Cases survive JSON, payloads are injective, and strategies stay within what the heap holds."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import find, given, settings
from hypothesis import strategies as st

from conformance.atomics.strategies import atomics, contributions_per_cell
from conformance.host.cases import TensorCase
from conformance.host.strategies import tensors
from conformance.host.test_drawn_tensors import FACTORIES, HEAP
from conformance.host.test_drawn_tensors import wanted as torch_s_tensor
from conformance.memory.cases import HeapCase
from conformance.ordering.strategies import messages
from conformance.rma.cases import REGION, TransferCase
from conformance.rma.operations import TRANSFERS
from conformance.rma.strategies import transfers
from conformance.rma.transfer import SLOT_STRIDE
from conformance.support.cases import HostCase
from conformance.support.masks import kept_lanes
from harness.cases import ALL, FLOATS, from_json, of_name, payload, rounds_needed, size_of, to_json
from harness.cases.strategies import rank_patterns
from harness.errors import HarnessError, UsageError
from tests.ranks.hostile import PlainCase

SETTINGS = settings(max_examples=60, deadline=None, database=None, derandomize=True)


@SETTINGS
@given(
    st.one_of(
        *transfers(4, "load", "fp16"),
        *transfers(4, "copy", "fp16", "context"),
        *atomics(4, "add", "int32"),
        *messages("int32", "ring"),
        tensors("arange"),
        tensors("empty"),
    )
)
def test_json_round_trip(case: object) -> None:
    assert from_json(json.loads(json.dumps(to_json(case)))) == case, "the JSON form loses part of the case"


@pytest.mark.parametrize(
    "plain",
    [
        {},
        {"type": "NoSuchCase", "fields": {}},
        {"type": TransferCase.__name__, "fields": {"colour": 1}},
        {"type": PlainCase.__name__, "fields": {}},
    ],
)
def test_bad_json_is_a_usage_error(plain: dict) -> None:
    with pytest.raises(UsageError):
        from_json(plain)


@pytest.mark.parametrize(
    ("kind", "fields", "reason"),
    [
        (TransferCase, {"n": "x"}, "'n' of a TransferCase must be a whole number of 64 bits, not 'x'"),
        (TransferCase, {"n": True}, "'n' .* not True"),
        (TransferCase, {"n": 2**63}, "'n' .* 64 bits"),
        (TransferCase, {"n": 1.0}, "'n' .* not 1.0"),
        (TransferCase, {"other": 1}, "'other' .* true or false, not 1"),
        (TransferCase, {"dtype": "int33"}, "'dtype' .* one of .*'int32'.* not 'int33'"),
        (TransferCase, {"dtype": None}, "'dtype' .* not None"),
        (TransferCase, {"mask": "odder"}, "'mask' .* one of 'none', 'range'"),
        (TransferCase, {"targets": [1]}, r"'targets' .* a list of \(a list of"),
        (TransferCase, {"targets": [["1"]]}, "'targets'"),
        (TransferCase, {"targets": "1"}, "'targets'"),
        (TransferCase, {"load_modifier": 1}, "'load_modifier' .* text or null, not 1"),
        (HeapCase, {"steps": [["free", 1, 2]]}, r"'steps' .*a list \[text, a whole number of 64 bits\]"),
        (HeapCase, {"steps": [[1, "free"]]}, "'steps'"),
        (TensorCase, {"values": [1e999]}, "'values' .* a finite number"),
        (HostCase, {"arguments": []}, "needs a field 'what'"),
    ],
)
def test_a_value_of_another_type_is_named(kind: type, fields: dict, reason: str) -> None:
    with pytest.raises(UsageError, match=reason) as caught:
        from_json({"type": kind.__name__, "fields": fields})
    assert "\n" not in str(caught.value)


def test_what_json_cannot_tell_apart_is_accepted() -> None:
    assert from_json({"type": "TensorCase", "fields": {"values": [1, 0.5, True], "dtype": None}}).values == (
        1,
        0.5,
        True,
    )


def test_only_registered_cases_have_json() -> None:
    with pytest.raises(HarnessError):
        to_json("text")


@pytest.mark.parametrize("dtype", [*ALL, "bool"])
@pytest.mark.parametrize(("count", "repetitions"), [(1, 1), (50, 3), (3000, 2)])
def test_payloads_are_injective_over_their_rounds(dtype: str, count: int, repetitions: int) -> None:
    ranks = 4
    rounds = rounds_needed(dtype, ranks * count * repetitions)
    words = []
    for repetition in range(repetitions):
        for rank in range(ranks):
            digits = [
                payload(dtype, count, rank=rank, ranks=ranks, round_=k, repetition=repetition) for k in range(rounds)
            ]
            words.append(
                np.concatenate([digit.view(torch.uint8).numpy().reshape(count, -1) for digit in digits], axis=1)
            )
    table = np.concatenate(words)
    assert len(np.unique(table, axis=0)) == ranks * count * repetitions, f"{dtype} over {rounds} rounds"


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_payloads_have_every_kind_of_number(dtype: str) -> None:
    values = payload(dtype, 4096, rank=1, ranks=4).double()
    few = payload(dtype, 16, rank=1, ranks=4).double()
    tiny = torch.finfo(of_name(dtype)).tiny
    for kind in (few < 0, few > 0, few.isnan(), few.abs() < tiny, (few.abs() > 1) & few.isfinite(), few.abs() < 1):
        assert kind.any(), f"16 neighbours lack one kind of number: {few}"
    normal = values[values.isfinite() & (values.abs() >= tiny)]
    exponents = normal.abs().log2().floor().unique()
    assert len(exponents) >= {"fp16": 30, "bf16": 250, "fp32": 250, "fp64": 1000}[dtype]
    first = payload(dtype, 16, rank=0, ranks=4).double()
    assert first[first == 0].signbit().tolist() == [False, True], "zeros of both signs"
    assert sorted(first[first.isinf()].tolist()) == [-float("inf"), float("inf")]


def test_narrow_payloads_need_more_rounds() -> None:
    assert [rounds_needed("int8", codes) for codes in (256, 257, 65536, 65537)] == [1, 2, 2, 3], "digits in base 256"


@pytest.mark.parametrize("dtype", ALL)
def test_transfers_fit_the_heap(dtype: str) -> None:
    @SETTINGS
    @given(st.one_of([strategy for op in TRANSFERS for strategy in transfers(8, op, dtype)]))
    def fits(case: TransferCase) -> None:
        moved = (case.dst_offset + case.grid * case.block) * size_of(dtype)
        assert moved <= SLOT_STRIDE - 64 and (case.src_offset + case.n) * size_of(dtype) <= REGION + 1024, (
            f"{case} needs {moved}"
        )
        if case.mask == "none":
            assert case.n == case.grid * case.block, "without a mask only whole blocks"
        if case.aligned:
            offsets = (case.src_offset * size_of(dtype), case.dst_offset * size_of(dtype))
            assert all(offset % 16 == 0 for offset in offsets) and case.n % 16 == 0, f"{case} is not aligned"

    fits()


@pytest.mark.parametrize("factory", FACTORIES)
def test_torch_makes_every_drawn_tensor(factory: str) -> None:
    """Each call is one that torch accepts, small enough for the heap; sizes of 0 and several dimensions occur."""
    seen = set()

    @SETTINGS
    @given(tensors(factory))
    def makes(case: TensorCase) -> None:
        tensor = torch_s_tensor(case, torch.device("cpu"))
        assert tensor.nbytes <= HEAP // 3, f"{case} needs {tensor.nbytes} bytes"
        assert not case.requires_grad or tensor.dtype.is_floating_point or tensor.dtype.is_complex, f"{case}"
        seen.update({"dimensions": tensor.dim() > 1, "zero": tensor.numel() == 0, "one": tensor.numel() == 1}.items())

    makes()
    wanted = {"one"} if factory == "arange" else {"zero", "one"} if factory == "linspace" else {"dimensions", "zero"}
    assert wanted <= {name for name, occurred in seen if occurred}, f"{factory}: drew only {seen}"


@pytest.mark.parametrize("op", ["add", "and", "cas", "xchg"])
def test_contention_stays_exact(op: str) -> None:
    @SETTINGS
    @given(st.one_of(atomics(8, op, "int32")))
    def exact(case) -> None:
        for target in range(8):
            actors = sum(target in targets for targets in case.targets)
            assert actors * -(-case.n // case.cells) <= contributions_per_cell(op, "int32"), (
                f"{case}: cells of rank {target}"
            )

    exact()


def test_patterns_cover_what_users_do() -> None:
    for name, wanted in {
        "itself": lambda t: all(peers == (rank,) for rank, peers in enumerate(t)),
        "all to one": lambda t: len(set(t)) == 1 and len(t[0]) == 1,
        "one to all": lambda t: sorted(map(len, t)) == [0, 0, 0, 4],
        "a permutation other than a rotation": lambda t: (
            sorted(p[0] for p in t if p) == [0, 1, 2, 3] and len({(p[0] - r) % 4 for r, p in enumerate(t)}) > 1
        ),
    }.items():
        assert find(rank_patterns(4), wanted, settings=settings(max_examples=2000, database=None, derandomize=True)), (
            name
        )


def test_the_simplest_case_is_one_element_from_rank_0_to_rank_1() -> None:
    kernels = transfers(4, "put", "int32")
    for kernel in kernels:
        simplest = find(kernel, lambda case: True, settings=settings(database=None, derandomize=True))
        assert (simplest.targets, simplest.src_offset, simplest.dst_offset) == (((1,), (), (), ()), 0, 0), simplest
        whole = simplest.block if simplest.mask == "none" else 16 if simplest.aligned else 1
        assert simplest.n == whole, simplest


def test_masks_differ_between_ranks() -> None:
    assert not np.array_equal(kept_lanes("holes", 64, 0), kept_lanes("holes", 64, 1)), (
        "a mask of another rank must show"
    )
    assert kept_lanes("holes", 64, 0).any() and not kept_lanes("holes", 64, 0).all(), "some lanes on, some off"


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "fp64"])
def test_exponents_of_payloads_for_conversions_are_from_minus_4_to_3(dtype: str) -> None:
    values = payload(dtype, 4096, rank=0, ranks=1, converted=True).double().abs()
    exponents = torch.frexp(values).exponent - 1  # of a significand from 1 on
    assert (int(exponents.min()), int(exponents.max())) == (-4, 3)
