"""Options of the command line, and those that are refused before anything starts."""

import pytest

from command_line.bench import plan
from command_line.bench.ops import OPS, op_named
from command_line.bench.plan import CellKey, parse_cus, parse_sizes, size_text
from command_line.commands.bench import check_memory
from harness.cases import dtypes
from harness.errors import UsageError
from iris_under_test.ccl import Config
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
    ("text", "cus"),
    [
        ("4:128", [4, 8, 16, 32, 64, 128]), ("8,24", [8, 24]), ("1:64:x8", [1, 8, 64]), ("132", [132]),
        ("auto", [None]), ("8, auto,4", [None, 4, 8]),
    ],
)  # fmt: skip
def test_cus(text, cus):
    assert parse_cus(text) == tuple(cus)


@pytest.mark.parametrize("text", ["", "0", "4KiB", "four", "8:4", "4,4", "1025", "4:8:2", "-4", "auto,", "auto:8"])
def test_bad_cus(text):
    with pytest.raises(UsageError, match="CU count"):
        parse_cus(text)


def test_auto_once():
    with pytest.raises(UsageError, match="auto at most once"):
        parse_cus("auto,4,auto")


@pytest.mark.parametrize(
    ("changes", "case"),
    [
        ({"backends": ("nccl", "mpi")}, "'mpi'"),
        ({"backends": ("nccl", "nccl")}, "at most once"),
        ({"backends": ()}, "at most once"),
        ({"dtype": "fp8"}, "'fp8'"),
        ({"repeat": 0}, "--repeat: expected 1 to 10000 rounds, got 0"),
        (
            {"op": "all_shuffle"},
            "OP: expected all_gather, reduce_scatter, all_to_all, all_reduce, broadcast or all, got 'all_shuffle'",
        ),
        ({"backends": ("nccl-ctas",), "device": "emulated", "sizes": (4096,)}, "the emulated device does not use"),
        ({"backends": ("nccl-ctas",), "cus": (None,)}, "also needs --cus"),
        ({"backends": ("nccl-ctas",), "tune": True}, "also needs --cus"),
        ({"sizes": (64,)}, "8 ranks need 128"),
        ({"sizes": (128, 200)}, "128 B and 200 B are both 128 B once rounded down for all_gather on 8 ranks"),
        (
            {"op": "reduce_scatter", "sizes": (2048, 3000)},
            "2 KiB and 3,000 B are both 2 KiB once rounded down for reduce_scatter",
        ),
        ({"tune": True, "backends": ("nccl",)}, "--tune applies to gluon and triton only: name one"),
        ({"backends": ("nccl",)}, "--cus applies to nccl-ctas, gluon and triton only: name one"),
        ({"device": "emulated", "sizes": (512 * MIB,)}, "far too long"),
    ],
)
def test_bad_requests(changes, case):
    with pytest.raises(UsageError, match=case):
        request(**changes)


def test_cells_are_those_of_the_backends():
    requested = request(backends=("nccl", "gluon", "triton", "nccl-ctas"), cus=(None, 4))
    cells = requested.cells(MIB)
    assert cells == (
        CellKey("nccl"), CellKey("nccl queued"), CellKey("gluon"), CellKey("gluon", 4), CellKey("triton"),
        CellKey("triton", 4), CellKey("nccl-ctas", 4),
    )  # fmt: skip
    assert list(map(str, cells[1:4])) == ["nccl queued", "gluon", "gluon with 4 CUs"]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("size", [8 * KIB, MIB, 512 * MIB])
@pytest.mark.parametrize("dtype", ["fp16", "int8", "fp64"])
def test_candidates_are_few_different_and_possible(op, size, dtype):
    """A tile has work for every lane of 32 or 64, in Gluon too; more than 1024 programs cannot signal."""
    requested = request(op=op, sizes=(size,), tune=True, backends=("nccl", "gluon"), dtype=dtype)
    cells = [cell for cell in requested.cells(size) if cell.backend == "gluon"]
    assert 2 <= len(cells) <= 12
    assert len(set(cells)) == len(cells)
    for cell in cells:
        fields = dict(cell.fields)
        assert 16 <= cell.cus <= 1024, "fewer would be another kernel, since chunk_size follows from it"
        flagged = fields.get("protocol") == "ll"
        assert not flagged or (size <= 4 * MIB and dtype != "fp64")
        if op == "reduce_scatter":
            assert set(fields) == {"num_warps", "protocol"} if flagged else {"num_warps"}, (
                "the tile decides which rank owns which elements"
            )
        else:
            elements = fields["block_size_m"] * fields["block_size_n"]
            assert elements % (32 * fields["num_warps"]) == 0
        assert ("all_reduce_variant" in fields) == (op == "all_reduce")
        Config(comm_sms=cell.cus, use_gluon=True, **fields)


def test_a_candidate_is_named_with_its_fields():
    key = CellKey("triton", 16, (("num_warps", 8), ("all_reduce_variant", "one_shot")))
    assert str(key) == "triton with 16 CUs, num_warps 8, all_reduce_variant one_shot"


def test_a_size_is_the_larger_of_input_and_output():
    shapes = {
        "all_gather": ((128, 1024), (1024, 1024), (128, 1024), (1024, 1024)),
        "reduce_scatter": ((1024, 1024), (1024, 1024), (1024, 1024), (128, 1024)),
        "all_to_all": ((128, 8192), (128, 8192), (8, 131072), (8, 131072)),
        "all_reduce": ((1024, 1024), (1024, 1024), (0, 0), (1024, 1024)),
        "broadcast": ((0, 0), (1024, 1024), (0, 0), (1024, 1024)),
    }
    assert set(shapes) == set(OPS)
    for op, expected in shapes.items():
        [layout] = request(op=op, sizes=(2 * MIB,), dtype="fp16").layouts()
        assert layout.size == 2 * MIB
        assert (layout.input, layout.output, layout.their_input, layout.their_output) == expected
        assert 2 * max(layout.elements()) == layout.size


@pytest.mark.parametrize("op", OPS.values(), ids=OPS)
@pytest.mark.parametrize(("ranks", "size"), [(3, 1000), (6, 2 * MIB), (7, 999_999), (1, 16), (64, 1024), (5, 5 * 48)])
@pytest.mark.parametrize("dtype", plan.ITEM_SIZES)
def test_sizes_are_rounded_down(op, ranks, size, dtype):
    """Sizes are rounded to 16 bytes per rank; reduce_scatter's to a row of 64 elements."""
    itemsize = plan.ITEM_SIZES[dtype]
    step = ranks * (64 * itemsize if op.name == "reduce_scatter" else 16)
    if size < step:
        with pytest.raises(UsageError, match=f"too small for {op.name}: {ranks} ranks need {step} or more"):
            op.layout(size, ranks, itemsize)
        return
    layout = op.layout(size, ranks, itemsize)
    assert size - step < layout.size <= size
    assert layout.size % step == 0
    assert max(layout.elements()) * itemsize == layout.size
    for rows, columns in (layout.input, layout.output, layout.their_input, layout.their_output):
        assert rows * columns * itemsize in (0, layout.size, layout.size // ranks)
        assert columns * itemsize % 4 == 0


def test_bus_bandwidth_counts_what_travels():
    """nccl-tests, PERFORMANCE.md."""
    factors = {"all_gather": 7 / 8, "reduce_scatter": 7 / 8, "all_to_all": 7 / 8, "all_reduce": 14 / 8, "broadcast": 1}
    assert {name: op.bus_factor(8) for name, op in OPS.items()} == factors
    assert op_named("all_gather").bus_factor(1) == 0


def test_dtypes_are_those_of_the_cases():
    assert {name: dtypes.size_of(name) for name in dtypes.ALL} == plan.ITEM_SIZES


def test_memory_is_known_before_anything_starts():
    requested = request(sizes=(8 * GIB,))
    heap = 8 * GIB + GIB + plan.HEAP_SLACK
    assert requested.heap_bytes() == heap
    assert requested.memory_bytes() > 2 * heap + 8 * GIB
    check_memory([requested], 141 * GIB)
    with pytest.raises(UsageError, match=r"8 GiB needs .* per rank \(heap 9 GiB.*the GPU's memory is 24 GiB") as caught:
        check_memory([request(), requested], 24 * GIB)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("size", "text"), [(2 * MIB, "2 MiB"), (1536, "1,536 B"), (3 * KIB, "3 KiB"), (GIB, "1 GiB"), (16, "16 B")]
)
def test_size_text(size, text):
    assert size_text(size) == text
