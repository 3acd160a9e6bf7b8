"""Inputs and expected outputs of each op, against independent calculations: no library, no ranks."""

import pytest
import torch

from command_line.bench import payload, plan
from command_line.bench.ops import MOST_CALLS, OPS, Turn, addend_bits
from harness.cases import dtypes

W, SIZE = 4, 1 << 17
MOVING = ("all_gather", "all_to_all", "broadcast")
REDUCTIONS = ("reduce_scatter", "all_reduce")


def tensors(op, backend, generation=1, dtype="fp16", calls=1, size=SIZE, ranks=W):
    """(input, output) of each rank; in place there is one tensor, and the input is empty but for the root."""
    layout = op.layout(size, ranks, plan.ITEM_SIZES[dtype])
    actual = []
    for rank in range(ranks):
        turn = Turn(rank, ranks, generation, backend, dtype, calls)
        output, source = (torch.zeros(shape, dtype=dtypes.of_name(dtype)) for shape in layout.shapes(turn.theirs))
        if op.in_place(turn.theirs):
            source = torch.zeros_like(output)
        op.reference(output, turn)
        op.fill(source, turn)
        actual.append((source, output))
    return actual


def words(tensor):
    return tensor.reshape(-1).view(torch.int32)


@pytest.mark.parametrize("backend", ["triton", "nccl"])
@pytest.mark.parametrize("dtype", ["int8", "fp16", "fp64"])
def test_what_must_come_out_is_what_goes_in(backend, dtype):
    actual = tensors(OPS["all_gather"], backend, dtype=dtype)
    for _, output in actual:
        assert torch.equal(words(output), words(torch.cat([source for source, _ in actual])))

    actual = tensors(OPS["all_to_all"], backend, dtype=dtype)
    across = 0 if backend == "nccl" else 1
    for rank, (_, output) in enumerate(actual):
        blocks = [source.chunk(W, dim=across)[rank] for source, _ in actual]
        assert torch.equal(words(output), words(torch.cat(blocks, dim=across)))

    actual = tensors(OPS["broadcast"], backend, dtype=dtype)
    for rank, (source, output) in enumerate(actual):
        assert torch.equal(words(output), words(actual[0][0]))
        assert rank == 0 or not words(source).any(), "the others' tensor stays as it was"


def test_blocks_are_the_same_bytes_on_both_sides():
    """all_to_all: what rank i has for rank j, whether it lies in columns or in rows."""
    ours, theirs = (tensors(OPS["all_to_all"], backend) for backend in ("gluon", "nccl"))
    for (mine, _), (other, _) in zip(ours, theirs, strict=True):
        for to in range(W):
            assert torch.equal(words(mine.chunk(W, dim=1)[to].contiguous()), words(other.chunk(W, dim=0)[to]))


@pytest.mark.parametrize("name", MOVING)
@pytest.mark.parametrize("dtype", ["int8", "fp16", "fp64"])
def test_moved_words_differ_everywhere(name, dtype):
    """Within an output no 32-bit word comes twice, and from one generation to the next every one changes."""
    first, second = (
        [words(output) for _, output in tensors(OPS[name], "triton", g, dtype, size=5000, ranks=5)] for g in (1, 2)
    )
    for one, other in zip(first, second, strict=True):
        assert len(one.unique()) == len(one)
        assert not (one == other).any()
    if name == "all_to_all":
        assert len(torch.cat(first).unique()) == sum(map(len, first)), "nor twice among all ranks"


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dtype", plan.ITEM_SIZES)
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_sums_are_exact_in_any_order(name, dtype, ranks):
    """Each partial sum is a number of the dtype, so that none is rounded or wraps."""
    kind = dtypes.of_name(dtype)
    actual = tensors(OPS[name], "triton", dtype=dtype, size=1 << 15, ranks=ranks)
    exact = torch.float64 if kind.is_floating_point else torch.int64
    for order in (range(ranks), reversed(range(ranks))):
        total, rounded = torch.zeros(actual[0][0].shape, dtype=exact), torch.zeros(actual[0][0].shape, dtype=kind)
        for rank in order:
            total += actual[rank][0].to(exact)
            rounded += actual[rank][0]
            assert torch.equal(rounded.to(exact), total)
        for _, output in actual:
            assert torch.equal(words(output), words(rounded))


def test_torchs_share_is_its_part_of_the_sum(monkeypatch):
    monkeypatch.setattr(payload, "PERIOD", 1009)
    ours, theirs = (tensors(OPS["reduce_scatter"], backend) for backend in ("triton", "nccl"))
    whole = ours[0][1]
    assert torch.equal(whole, torch.cat([output for _, output in theirs]))
    assert torch.equal(whole.to(torch.float64), sum(source.to(torch.float64) for source, _ in ours))
    flat = whole.view(-1)
    assert torch.equal(flat[:1009], flat[1009:2018])
    assert not torch.equal(flat[:1024], flat[1024:2048]), "no share or tile is the next one's equal"


@pytest.mark.parametrize("dtype", plan.ITEM_SIZES)
@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 8, 64])
def test_sums_of_sums_are_exact_for_as_many_calls_as_there_may_be(dtype, ranks):
    """torch.distributed's all_reduce works in place: call after call adds up what is there, in the dtype itself."""
    op = OPS["all_reduce"]
    calls = op.most_calls(ranks, dtype)
    assert 1 <= calls <= MOST_CALLS
    actual = tensors(op, "nccl", dtype=dtype, calls=calls, size=1 << 13, ranks=ranks)
    held = [source for source, _ in actual]
    for _ in range(calls):
        total = held[0].clone()
        for other in held[1:]:
            total += other
        held = [total] * ranks
    assert torch.isfinite(held[0].to(torch.float64)).all()
    assert len(held[0].unique()) > 1
    for _, output in actual:
        assert torch.equal(words(output), words(held[0]))


def test_enough_calls_for_a_timing():
    calls = {
        (ranks, name): OPS["all_reduce"].most_calls(ranks, name) for ranks in (2, 4, 8) for name in ("fp16", "bf16")
    }
    assert calls == {
        (2, "fp16"): 20, (4, "fp16"): 13, (8, "fp16"): 8, (2, "bf16"): 20, (4, "bf16"): 20, (8, "bf16"): 20,
    }  # fmt: skip
    assert OPS["all_gather"].most_calls(8, "fp16") == MOST_CALLS


@pytest.mark.parametrize("dtype", ["bf16", "int8", "fp32"])
def test_addends_tell_places_ranks_and_generations_apart(dtype):
    made = {}
    for rank in range(W):
        for generation in (1, 2):
            made[rank, generation] = torch.zeros(64, 256, dtype=dtypes.of_name(dtype))
            payload.addends(made[rank, generation], addend_bits(W, dtype), rank, generation)
    same = 2.0 ** -addend_bits(W, dtype)
    for key, one in made.items():
        for other, two in made.items():
            assert key == other or (one == two).float().mean() < 1.2 * same
        assert (one[:-1] == one[1:]).float().mean() < 1.2 * same, "rows"
        assert (one[:, :128] == one[:, 128:]).float().mean() < 1.2 * same, "tiles"


@pytest.mark.parametrize(
    ("ranks", "size"), [(4, 1 << 12), (4, 1 << 13), (4, 1 << 15), (4, 1 << 20), (8, 1 << 13), (3, 50_000), (8, 1 << 24)]
)
@pytest.mark.parametrize("backend", ["triton", "gluon"])
def test_the_rows_that_a_rank_of_a_reduce_scatter_writes(ranks, size, backend):
    """Against the tiles, counted in the grouped order of the library."""
    op = OPS["reduce_scatter"]
    layout = op.layout(size, ranks, 2)
    rows, columns = layout.output
    height, width = op.TILES[backend]
    tiles_m, tiles_n = -(-rows // height), -(-columns // width)
    order = []
    for first in range(0, tiles_m, op.GROUP):
        group = range(first, min(first + op.GROUP, tiles_m))
        order += [(row, column) for column in range(tiles_n) for row in group]
    share = -(-len(order) // ranks)
    for rank in range(ranks):
        owned = torch.zeros(rows, columns, dtype=torch.bool)
        for row, column in order[rank * share : (rank + 1) * share]:
            owned[row * height : (row + 1) * height, column * width : (column + 1) * width] = True
        written = op.written(rows, Turn(rank, ranks, 1, backend, "fp16", 1))
        expected = torch.zeros_like(owned)
        expected[written] = True
        assert torch.equal(owned, expected), rank
        assert op.written(rows // ranks, Turn(rank, ranks, 1, "nccl", "fp16", 1)) == slice(0, rows // ranks)
