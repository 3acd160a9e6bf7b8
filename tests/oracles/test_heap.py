"""The whole-heap comparison rejects each kind of damage that it claims to see, and names it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from harness.errors import HarnessError
from harness.oracles import GUARD, HeapImage, first_difference
from harness.oracles.differences import difference
from harness.oracles.heap import place, starts

SIZE = 8192


@pytest.fixture
def image() -> HeapImage:
    return HeapImage(torch.zeros(SIZE, dtype=torch.uint8), rank=1)


@pytest.fixture
def prepared(image: HeapImage) -> HeapImage:
    """A filled source, and a destination whose even elements must be written; the content is as expected."""
    image.reset()
    source = image.claim("source", 1024, 8, torch.int32)
    image.fill(source, torch.arange(8, dtype=torch.int32))
    target = image.claim("target", 2048, 8, torch.int32)
    even = np.arange(8) % 2 == 0
    image.expect(target, torch.arange(100, 108, dtype=torch.int32), even)
    image.tensor(target)[::2] = torch.arange(100, 108, dtype=torch.int32)[::2]
    return image


def test_accepts_what_is_right(prepared: HeapImage) -> None:
    assert prepared.difference() is None, "nothing was damaged"


@pytest.mark.parametrize(
    ("byte", "name", "index"),
    [
        (1024 + 4 * 3, "source", 3),
        (2048 + 4 * 2, "target", 2),
        (2048 + 4 * 5 + 1, "target", 5),  # a lane that the mask switched off
        (2047, "guard before target (byte of the arena)", 2047),
        (2048 + 32, "guard after target (byte of the arena)", 2080),
        (0, "untouched memory (byte of the arena)", 0),
        (SIZE - 1, "untouched memory (byte of the arena)", SIZE - 1),
        (5000, "untouched memory (byte of the arena)", 5000),
    ],
)
def test_sees_one_changed_byte_anywhere(prepared: HeapImage, byte: int, name: str, index: int) -> None:
    prepared.arena[byte] ^= 1
    difference = prepared.difference()
    assert difference is not None, f"byte {byte} was changed"
    assert (difference["what"], difference["rank"], difference["index"]) == (name, 1, index), difference


def test_names_got_and_wanted_in_the_dtype(prepared: HeapImage) -> None:
    prepared.arena[2048 + 16 : 2048 + 20].view(torch.int32)[0] = -5
    difference = prepared.difference()
    assert difference is not None and (difference["got"], difference["wanted"]) == (-5, 104), difference


def test_says_that_an_element_was_never_written(image: HeapImage) -> None:
    image.reset()
    target = image.claim("target", 2048, 4, torch.float16)
    image.expect(target, torch.ones(4, dtype=torch.float16))
    difference = image.difference()
    assert difference is not None and "never written" in difference["more"], difference


def test_tells_of_everything_that_is_wrong(prepared: HeapImage) -> None:
    prepared.arena[2048] ^= 1
    prepared.arena[5000] ^= 1
    difference = prepared.difference()
    assert difference is not None and difference["what"] == "target" and "untouched memory" in difference["more"], (
        difference
    )


def test_names_nothing_else_if_one_region_is_wrong(prepared: HeapImage) -> None:
    prepared.arena[2048] ^= 1
    difference = prepared.difference()
    assert difference is not None and difference["more"] == "1 of 8 elements are wrong", difference


def test_names_each_further_wrong_part_once(prepared: HeapImage) -> None:
    for byte in (1024 + 4, 2048 + 8, 5000, 5001):
        prepared.arena[byte] ^= 1
    difference = prepared.difference()
    assert difference is not None and difference["more"] == (
        "1 of 8 elements are wrong; also wrong: target (1 of 8 elements are wrong), "
        "untouched memory (byte of the arena) (2 bytes that nothing may write have changed)"
    ), difference


def test_a_changed_byte_is_reported_with_both_values(prepared: HeapImage) -> None:
    wanted = int(prepared.arena[5000])
    prepared.arena[5000] ^= 1
    difference = prepared.difference()
    assert difference is not None and (difference["got"], difference["wanted"]) == (wanted ^ 1, wanted), difference


@pytest.mark.parametrize("byte", [1024 - GUARD - 1, 1024 - GUARD, 1024 + 32 + GUARD - 1, 1024 + 32 + GUARD])
def test_a_guard_ends_where_another_region_may_begin(prepared: HeapImage, byte: int) -> None:
    prepared.arena[byte] ^= 1
    difference = prepared.difference()
    guarded = 1024 - GUARD <= byte < 1024 + 32 + GUARD
    assert difference is not None and difference["what"].startswith("guard") == guarded, difference


def test_every_wrong_element_counts_once_however_many_of_its_bytes_are_wrong(prepared: HeapImage) -> None:
    prepared.arena[1024 + 4 : 1024 + 12] ^= 255
    prepared.arena[1024 + 31] ^= 1
    difference = prepared.difference()
    assert difference is not None and difference["more"].startswith("3 of 8 elements are wrong"), difference
    assert difference["index"] == 1 and difference["detail"]["runs"] == [[1, 3], [7, 8]], difference


def test_what_a_region_may_hold_before_and_after_the_case(image: HeapImage) -> None:
    image.reset()
    region = image.claim("target", 1024, 4, torch.int32)
    assert torch.equal(image.unwritten(region), image.tensor(region)), "poison"
    assert torch.equal(image.expected(region), image.tensor(region)), "nothing else is expected yet"
    image.expected(region)[2] = 7
    difference = image.difference()
    assert difference is not None and (difference["index"], difference["wanted"]) == (2, 7), difference
    image.tensor(region)[2] = 7
    assert image.difference() is None


def test_lanes_that_a_mask_switched_off_are_named_until_the_next_case(image: HeapImage) -> None:
    values = torch.arange(1, 9, dtype=torch.int32)
    for where, place_ in ((np.arange(8) < 3, "masked"), (np.arange(5) < 3, "inside"), (None, "inside")):
        image.reset()
        target = image.claim("target", 2048, 8, torch.int32)
        if where is not None and len(where) == 8:
            image.expect(target, values, where)
            image.tensor(target)[:3] = values[:3]
        else:
            image.fill(target, values)
        image.arena[2048 + 4 * 5] ^= 1
        difference = image.difference()
        assert difference is not None and difference["index"] == 5, difference
        assert difference["detail"]["place"] == place_, difference


def test_a_region_without_elements_expects_nothing(image: HeapImage) -> None:
    image.reset()
    empty = image.claim("empty", 1024, 0, torch.int32)
    assert empty.stop == 1024 and image.regions == (empty,)
    assert image.difference() is None
    image.arena[1024] ^= 1
    difference = image.difference()
    assert difference is not None and difference["detail"]["place"] == "after", "no lane is there to be switched off"


def test_the_comparison_of_a_gpus_heap_reads_a_new_copy_each_time(image: HeapImage) -> None:
    image.reset()
    image._here = torch.empty_like(image.arena)  # as for an arena that is not on the CPU
    assert image.difference() is None
    image.arena[5000] ^= 1
    difference = image.difference()
    assert difference is not None and difference["index"] == 5000


def test_a_heap_on_the_cpu_is_compared_without_a_copy(image: HeapImage) -> None:
    assert image._here is image.arena, "each case would copy the whole heap"


@pytest.mark.parametrize(
    "arena",
    [
        torch.zeros(SIZE, dtype=torch.int8),
        torch.zeros(2, SIZE, dtype=torch.uint8),
        torch.zeros(SIZE * 2, dtype=torch.uint8)[::2],
    ],
    ids=["type", "dimensions", "strides"],
)
def test_an_arena_is_flat_bytes(arena: torch.Tensor) -> None:
    with pytest.raises(HarnessError, match="flat uint8"):
        HeapImage(arena, rank=0)


def test_a_region_cannot_do_without_guards(image: HeapImage) -> None:
    image.reset()
    image.claim("first", 1024, 16, torch.uint8)
    for start in (0, GUARD - 1, SIZE - GUARD - 3, 1024, 1024 + 16 + GUARD - 1, 1024 - GUARD - 3):
        with pytest.raises(HarnessError):
            image.claim("second", start, 4, torch.uint8)
    for start in (1024 + 16 + GUARD, 1024 - GUARD - 4, SIZE - GUARD - 4):
        image.claim("another", start, 4, torch.uint8)


def test_poison_differs_between_ranks_and_places() -> None:
    images = [HeapImage(torch.zeros(SIZE, dtype=torch.uint8), rank) for rank in range(2)]
    for image in images:
        image.reset()
    assert not torch.equal(images[0].arena, images[1].arena), "what came from another rank's heap must show"
    for shift in (1, 2, 4, 8, 1024):
        assert not torch.equal(images[0].arena[shift:], images[0].arena[:-shift]), f"a shift by {shift} must show"


def test_reset_forgets(prepared: HeapImage) -> None:
    prepared.arena[5000] ^= 1
    prepared.reset()
    assert prepared.difference() is None, "the heap was poisoned anew"


def test_starts_leave_guards(image: HeapImage) -> None:
    image.reset()
    for i, start in enumerate(starts(0, [100, 1, 0, 300], align=64)):
        image.claim(f"region {i}", start, [100, 1, 0, 300][i], torch.uint8)
    assert starts(100, [1000, 1]) == [1024, 3072], "aligned to 1024 bytes, where nothing else is requested"


@pytest.mark.parametrize(
    ("got", "index"),
    [
        (torch.tensor([1.0, 2.0, -0.0]), 2),
        (torch.tensor([1.0, 2.5, 0.0]), 1),
        (torch.tensor([1.0, 2.0]), None),
        (torch.tensor([1.0, 2.0, 0.0], dtype=torch.float64), None),
    ],
)
def test_tensors_are_compared_by_bits_shape_and_dtype(got: torch.Tensor, index: int | None) -> None:
    difference = first_difference("tensor", got, torch.tensor([1.0, 2.0, 0.0]), rank=0)
    assert difference is not None and difference["index"] == index, difference


@pytest.mark.parametrize("sparse", [(True, False), (False, True), (True, True)])
def test_only_strided_tensors_can_be_compared(sparse: tuple[bool, bool]) -> None:
    one, other = (torch.eye(2).to_sparse() if each else torch.eye(2) for each in sparse)
    with pytest.raises(HarnessError, match="output: expected strided tensors, got torch"):
        first_difference("output", one, other, rank=0)


@pytest.mark.parametrize(
    ("dtype", "got", "wanted", "clause"),
    [
        (torch.bool, [2], [1], "; the bytes are 02, wanted 01"),
        (torch.float32, [1, 0, 0xC0, 0x7F], [0, 0, 0xC0, 0x7F], "; the bytes are 01 00 c0 7f, wanted 00 00 c0 7f"),
        (torch.float32, [0, 0, 0x80, 0x3F], [0, 0, 0, 0x40], ""),  # 1.0 and 2.0
    ],
    ids=["bool", "nan", "numbers"],
)
def test_bytes_are_shown_where_values_print_alike(
    image: HeapImage, dtype: torch.dtype, got: list[int], wanted: list[int], clause: str
) -> None:
    one, other = (torch.tensor(each, dtype=torch.uint8).view(dtype) for each in (got, wanted))
    different = first_difference("output", one, other, rank=0)
    assert different is not None and different["more"] == f"1 of 1 elements are wrong{clause}", different
    image.reset()
    region = image.claim("target", 2048, 1, dtype)
    image.expect(region, other, np.ones(1, bool))
    image.tensor(region).view(torch.uint8).copy_(one.view(torch.uint8))
    different = image.difference()
    assert different is not None and different["more"] == f"1 of 1 elements are wrong{clause}", different


@pytest.mark.parametrize(
    ("value", "plain"),
    [(None, None), (np.int64(3), 3), (np.float32(0.5), 0.5), (True, True), ("x", "x"), ((1, 2), "(1, 2)")],
)
def test_a_difference_is_plain_data(value: object, plain: object) -> None:
    entry = difference("tensor", got=value, wanted=value)
    assert (entry["got"], entry["wanted"]) == (plain, plain) and type(entry["got"]) is type(plain)
    assert "detail" not in entry


def test_equal_nans_are_equal() -> None:
    nan = torch.tensor([float("nan")])
    assert first_difference("tensor", nan, nan.clone(), rank=0) is None, "the same bits"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int8, torch.bool])
@pytest.mark.parametrize("chosen", [1, 3])
def test_masked_values_keep_their_bits(dtype: torch.dtype, chosen: int) -> None:
    """A signalling NaN in each float type: exponent all ones, lowest bit set."""
    bits = {
        torch.float16: 0x7C01, torch.bfloat16: 0x7F81, torch.float32: 0x7F800001, torch.float64: 0x7FF0000000000001,
    }.get(dtype, 1)  # fmt: skip
    value = torch.tensor([bits], dtype=torch.int64).view(torch.uint8)[: dtype.itemsize].view(dtype)
    where = np.arange(5) < chosen
    target = torch.zeros(5, dtype=dtype)
    place(target, value.repeat(5), where)
    expected = torch.cat([value.repeat(chosen), torch.zeros(5 - chosen, dtype=dtype)])
    assert torch.equal(target.view(torch.uint8), expected.view(torch.uint8))
