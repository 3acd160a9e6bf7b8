"""Origins of wrong elements: payloads of any rank, element and type, memory that was never written, zeros."""

import functools

import numpy as np
import pytest
import torch

from harness.cases import ALL, contribution, of_name, payload, reduce_ops
from harness.cases.contribution import REDUCTIONS
from harness.cases.payload import SCHEMES
from harness.oracles import HeapImage, first_difference
from harness.oracles.origin import of_reduction, origin, poison

RANKS, COUNT = 4, 48


@pytest.fixture(autouse=True)
def sent():
    SCHEMES.clear()
    yield
    SCHEMES.clear()


def send(dtype, round_=0):
    return [payload(dtype, COUNT, rank=rank, ranks=RANKS, round_=round_).clone() for rank in range(RANKS)]


@pytest.mark.parametrize("dtype", ALL)
def test_an_element_is_traced_back_to_its_rank_and_place(dtype):
    of_rank = send(dtype)[2]
    assert origin(of_rank[5:], rank=0, near=5) | {"candidates": 1} == {
        "kind": "payload", "rank": 2, "element": 5, "candidates": 1,
    }  # fmt: skip


def test_one_narrow_element_is_traced_to_the_expected_place_only():
    values = send("int8")[1]
    alone = torch.cat([values[7:8], values[:1]])
    assert origin(alone, rank=0, near=7) == {"kind": "payload", "rank": 1, "element": 7}
    assert origin(alone, rank=0, near=8) == {"kind": "ambiguous"}


def test_memory_that_was_never_written_and_zeros_are_recognized():
    send("int32")
    pristine = torch.from_numpy(poison(3, 256)[64:96].copy()).view(torch.int32)
    assert origin(pristine, rank=0) == {"kind": "unwritten", "rank": 3, "byte": 64}
    assert origin(torch.zeros(4, dtype=torch.int32), rank=0) == {"kind": "zero"}
    assert origin(torch.tensor([123456789, 7, 8, 9], dtype=torch.int32), rank=0) == {"kind": "unknown"}


def test_a_round_is_named():
    values = send("int8", round_=1)[1]
    assert origin(values[5:], rank=0, near=5)["round"] == 1


def test_the_schemes_of_earlier_cases_are_forgotten():
    send("int32")
    assert len(SCHEMES.latest_first()) == 1
    SCHEMES.clear()
    assert origin(payload("int32", 4, rank=0, ranks=1).clone() + 1, rank=0)["kind"] != "payload"


def image_of(dtype, lanes=0):
    image = HeapImage(torch.zeros(4096, dtype=torch.uint8), 1)
    image.reset()
    return image, image.claim("slot", 1024, COUNT, of_name(dtype), lanes)


def test_a_difference_of_the_heap_has_both_origins_and_the_place():
    values = send("int32")
    image, slot = image_of("int32")
    image.expect(slot, values[0])
    image.tensor(slot).copy_(values[0])
    image.tensor(slot)[3:5] = values[2][3:5]
    detail = image.difference()["detail"]
    assert detail["got"] == {"kind": "payload", "rank": 2, "element": 3}
    assert detail["wanted"] == {"kind": "payload", "rank": 0, "element": 3}
    assert (detail["place"], detail["element"], detail["runs"], detail["byte"]) == ("inside", 3, [[3, 5]], 1024 + 12)


def test_an_element_that_the_mask_switches_off_is_named_as_such():
    values = send("int32")
    image, slot = image_of("int32")
    image.expect(slot, values[0], np.arange(COUNT) % 2 == 0)
    image.tensor(slot).copy_(values[0])
    detail = image.difference()["detail"]
    assert (detail["place"], detail["element"], detail["wanted"]["kind"]) == ("masked", 1, "unwritten")
    image.reset()
    slot = image.claim("slot", 1024, COUNT, torch.int32)
    image.expect(slot, values[0], np.arange(COUNT) % 2 == 0)
    detail = image.difference()["detail"]
    assert (detail["place"], detail["element"], detail["got"]["kind"]) == ("inside", 0, "unwritten")


@pytest.mark.parametrize(
    ("lanes", "offset", "place", "element"),
    [
        (COUNT + 4, 4 * COUNT, "masked", COUNT),
        (COUNT + 1, 4 * COUNT, "masked", COUNT),
        (COUNT + 1, 4 * COUNT + 4, "after", COUNT + 1),
        (0, 4 * COUNT, "after", COUNT),
        (0, -4, "before", -1),
        (COUNT + 4, -4, "before", -1),
    ],
)
def test_a_write_next_to_a_region_is_attributed_to_it(lanes, offset, place, element):
    send("int32")
    image, slot = image_of("int32", lanes)
    image.fill(slot, send("int32")[0])
    image.arena[1024 + offset : 1028 + offset] = send("int32")[2][9:10].view(torch.uint8)
    detail = image.difference()["detail"]
    assert (detail["place"], detail["region"], detail["element"]) == (place, "slot", element)
    assert detail["got"]["element"] == 9


def test_a_write_outside_of_every_region_has_no_region():
    image, slot = image_of("int32")
    image.fill(slot, send("int32")[0])
    image.arena[3000:3004] = 0
    detail = image.difference()["detail"]
    assert (detail["place"], detail["region"], detail["byte"]) == ("outside", "", 3000)
    assert (detail["wrong"], detail["of"], detail["bytes"]) == (4, 4096, True)
    assert (detail["got"], detail["wanted"]) == ({"kind": "zero"}, {"kind": "unwritten", "rank": 1, "byte": 3000})


def test_a_write_outside_is_traced_to_its_payload_by_the_type_of_the_last_region():
    image, slot = image_of("int32")
    image.claim("bytes", 512, 4, torch.int64)
    image.claim("last", 2048, 4, torch.int32)
    image.fill(slot, send("int32")[0])
    image.arena[3000:3016] = send("int32")[2][9:13].view(torch.uint8)
    got = image.difference()["detail"]["got"]
    assert (got["rank"], got["element"]) == (2, 9)


def test_a_write_before_any_region_is_claimed_has_no_known_origin():
    image = HeapImage(torch.zeros(4096, dtype=torch.uint8), 1)
    image.reset()
    image.arena[3000] ^= 1
    assert image.difference()["detail"]["got"] == {"kind": "unknown"}


def test_a_tensor_that_kept_its_content_was_never_written():
    values = send("fp16")[0]
    before = torch.full_like(values, 7.0)
    got = values.clone()
    got[11] = 7.0
    detail = first_difference("output", got, values, rank=0, before=before)["detail"]
    assert detail["got"] == {"kind": "unwritten", "rank": 0}
    got[11] = 0.0
    detail = first_difference("output", got, values, rank=0, before=before)["detail"]
    assert detail["got"] == {"kind": "zero"}, "another value than before was written"


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32", "fp64", "int16", "int32", "int64"])
@pytest.mark.parametrize("op", ["sum", "product", "min", "bxor"])
def test_a_reduction_without_a_part_names_the_member(op, dtype):
    if op not in reduce_ops(dtype):
        return
    REDUCTIONS.clear()
    wide = dtype in ("fp16", "bf16")
    parts = [contribution(op, dtype, COUNT, member=member, members=RANKS, wide=wide) for member in range(RANKS)]
    fold = {"sum": torch.add, "product": torch.mul, "min": torch.minimum, "bxor": torch.bitwise_xor}[op]
    widened = [part.float() if wide and op in ("sum", "product") else part for part in parts]
    whole = functools.reduce(fold, widened).to(parts[0].dtype)
    lacking = functools.reduce(fold, [widened[0], *widened[2:]]).to(parts[0].dtype)
    wrong = torch.nonzero(whole != lacking).flatten()[0]
    got, wanted = of_reduction(lacking[wrong].reshape(1), whole[wrong].reshape(1))
    assert (got, wanted) == ({"kind": "reduction", "without": 1}, {"kind": "reduction"})
    REDUCTIONS.clear()


def test_a_reduction_without_a_part_is_named_in_a_tensor_and_on_the_heap():
    REDUCTIONS.clear()
    parts = [contribution("sum", "int32", COUNT, member=member, members=RANKS) for member in range(RANKS)]
    whole = functools.reduce(torch.add, parts)
    got = whole.clone()
    got[3] -= parts[1][3]
    wanted = {"kind": "reduction", "without": 1}, {"kind": "reduction"}
    detail = first_difference("output", got, whole, rank=0)["detail"]
    assert (detail["got"], detail["wanted"]) == wanted
    image, slot = image_of("int32")
    image.expect(slot, whole)
    image.tensor(slot).copy_(got)
    detail = image.difference()["detail"]
    assert (detail["got"], detail["wanted"], detail["element"]) == (*wanted, 3)
    REDUCTIONS.clear()
