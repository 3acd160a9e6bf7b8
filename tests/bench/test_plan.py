"""What the command line's words mean, and what is refused before anything starts."""

import pytest

from harness.bench import ops, plan
from harness.bench.ops import OPS, op_named
from harness.bench.plan import CellKey, parse_cus, parse_sizes, size_text
from harness.cases import dtypes
from harness.commands.bench import check_memory
from harness.errors import UsageError
from tests.bench.planted import request

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("2MiB:16MiB", [2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB]),
        ("2MiB:512MiB:x16", [2 * MIB, 32 * MIB, 512 * MIB]),
        ("3KiB:20KiB", [3 * KIB, 6 * KIB, 12 * KIB]),
        ("1MiB,64KiB", [64 * KIB, MIB]),
        ("64KiB,1MiB:4MiB", [64 * KIB, MIB, 2 * MIB, 4 * MIB]),
        ("4096", [4096]),
        ("100B, 1 KiB", [100, 1024]),
        ("8GiB:8GiB", [8 * GIB]),
    ],
)
def test_sizes(text, sizes):
    assert parse_sizes(text) == tuple(sizes)


@pytest.mark.parametrize(
    "text",
    ["", "2MB", "2 mib", "0", "-1", "1.5MiB", "MiB", "4MiB:2MiB", "1KiB:", ":1KiB", "1KiB:2KiB:3", "1KiB:2KiB:x1",
     "1KiB:2KiB:x2:x2", "1KiB,1KiB", "1KiB,,2KiB", "2048GiB", "x", "1KiB:2KiB:x", "٣KiB"],
)  # fmt: skip
def test_bad_sizes(text):
    with pytest.raises(UsageError, match="size") as caught:
        parse_sizes(text)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "cus"), [("4:128", [4, 8, 16, 32, 64, 128]), ("8,24", [8, 24]), ("1:64:x8", [1, 8, 64]), ("132", [132])]
)
def test_cus(text, cus):
    assert parse_cus(text) == tuple(cus)


@pytest.mark.parametrize("text", ["", "0", "4KiB", "four", "8:4", "4,4", "1025", "4:8:2", "-4"])
def test_bad_cus(text):
    with pytest.raises(UsageError, match="CU count"):
        parse_cus(text)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"backends": ("nccl", "mpi")}, "'mpi'"),
        ({"backends": ("nccl", "nccl")}, "at most once"),
        ({"backends": ()}, "at most once"),
        ({"dtype": "fp8"}, "'fp8'"),
        ({"repeat": 0}, "--repeat 0"),
        ({"op": "all_reduce"}, "choose one of all_gather"),
        ({"sizes": (64,)}, "8 ranks need 128"),
        ({"sizes": (128, 200)}, "the same once rounded"),
        ({"device": "emulated", "sizes": (512 * MIB,)}, "far too long"),
    ],
)
def test_bad_requests(changes, what):
    with pytest.raises(UsageError, match=what):
        request(**changes)


def test_cells_are_those_of_the_backends():
    asked = request(backends=("nccl", "gluon", "triton"), cus=(4, 8))
    assert asked.cells() == (
        CellKey("nccl"), CellKey("nccl queued"),
        CellKey("gluon", 4), CellKey("gluon", 8), CellKey("triton", 4), CellKey("triton", 8),
    )  # fmt: skip
    assert list(map(str, asked.cells()[1:3])) == ["nccl queued", "gluon with 4 CUs"]


def test_a_size_is_the_output_of_one_rank():
    [layout] = request(sizes=(2 * MIB,), dtype="fp16").layouts()
    assert layout.size == 2 * MIB
    assert layout.input == (128, 1024)
    assert layout.output == (1024, 1024)
    assert layout.input_bytes == 256 * KIB


@pytest.mark.parametrize(("ranks", "size"), [(3, 1000), (6, 2 * MIB), (7, 999_999), (1, 16), (64, 1024), (5, 5 * 48)])
@pytest.mark.parametrize("dtype", plan.ITEM_SIZES)
def test_sizes_are_rounded_down_to_16_bytes_per_rank(ranks, size, dtype):
    layout = op_named("all_gather").layout(size, ranks, plan.ITEM_SIZES[dtype])
    assert size - 16 * ranks < layout.size <= size
    assert layout.size % (16 * ranks) == 0
    for shape, bytes_ in ((layout.input, layout.input_bytes), (layout.output, layout.size)):
        assert shape[0] * shape[1] * plan.ITEM_SIZES[dtype] == bytes_
    assert layout.output == (layout.input[0] * ranks, layout.input[1])
    assert layout.size == layout.input_bytes * ranks


def test_bus_bandwidth_counts_what_travels():
    assert op_named("all_gather").bus_factor(8) == 7 / 8
    assert op_named("all_gather").bus_factor(1) == 0


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
@pytest.mark.parametrize("dtype", ["int8", "fp16", "fp64"])
def test_inputs_differ_everywhere(op, dtype, monkeypatch):
    """Within an output no 32-bit word comes twice, and from one generation to the next every one changes."""
    import torch

    monkeypatch.setattr(ops, "_PIECE", 100)
    layout = op.layout(5 * 1000, 5, plan.ITEM_SIZES[dtype])
    expected = []
    for generation in (1, 2, 3):
        output = torch.zeros(layout.output, dtype=dtypes.of_name(dtype))
        op.reference(output, 5, generation)
        words = output.view(-1).view(torch.int32)
        assert len(words.unique()) == len(words)
        expected.append(words)
        for rank in range(5):
            source = torch.zeros(layout.input, dtype=dtypes.of_name(dtype))
            op.fill(source, rank, 5, generation)
            share = words[rank * len(words) // 5 : (rank + 1) * len(words) // 5]
            assert torch.equal(source.view(-1).view(torch.int32), share)
    assert not (expected[0] == expected[1]).any()
    assert not (expected[1] == expected[2]).any()


def test_dtypes_are_those_of_the_cases():
    assert {name: dtypes.size_of(name) for name in dtypes.ALL} == plan.ITEM_SIZES


def test_memory_is_known_before_anything_starts():
    asked = request(sizes=(8 * GIB,))
    heap = 8 * GIB + GIB + MIB
    assert asked.heap_bytes() == heap
    assert asked.memory_bytes() > 2 * heap + 8 * GIB
    check_memory(asked, 141 * GIB)
    with pytest.raises(UsageError, match=r"8 GiB needs .* per rank \(heap 9 GiB.*the GPU's memory is 24 GiB") as caught:
        check_memory(asked, 24 * GIB)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("size", "text"), [(2 * MIB, "2 MiB"), (1536, "1,536 B"), (3 * KIB, "3 KiB"), (GIB, "1 GiB"), (16, "16 B")]
)
def test_size_text(size, text):
    assert size_text(size) == text
