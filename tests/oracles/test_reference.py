"""Results of torch.distributed on real ranks, and the check that none returns before all ranks have entered."""

from __future__ import annotations

import contextlib
import inspect
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from harness.cases import payload
from harness.errors import HarnessError
from harness.oracles import barrier, bool_all, broadcast, exchange, gathered, reduced, reference, scattered, swapped
from harness.ranks import RankGroup

RANKS = 3


def exchanges(env: dict, pairs: list[tuple[int, int]]) -> dict[int, list[int]]:
    mine = payload("int32", 5, rank=env["rank"], ranks=RANKS)
    received = exchange(mine, {tuple(pair) for pair in pairs}, rank=env["rank"], ranks=RANKS)
    return {sender: values.tolist() for sender, values in received.items()}


def several(env: dict, _: None) -> dict[int, list[int]]:
    """Send a different payload to each receiver."""
    rank = env["rank"]
    pairs = {(0, 1), (0, 2), (2, 0)}
    sent = [torch.full((2,), 10 * rank + to) for to in range(RANKS) if (rank, to) in pairs]
    received = exchange(sent or [torch.zeros(2, dtype=torch.int64)], pairs, rank=rank, ranks=RANKS)
    return {sender: values.tolist() for sender, values in received.items()}


def ordered(env: dict, kind: str) -> float:
    """Seconds that torch.distributed took on this rank while rank 0 was late."""
    if env["rank"] == 0:
        time.sleep(0.3)
    started = time.monotonic()
    value = torch.ones(1, dtype=torch.int32)
    if kind == "exchange":
        exchange(value, set(), rank=env["rank"], ranks=RANKS)
    elif kind == "reduced":
        reduced(value, "sum")
    elif kind == "swapped":
        swapped(value.repeat(RANKS).view(1, RANKS))
    else:
        barrier() if kind == "barrier" else gathered(value)
    return time.monotonic() - started


def waits(env: dict, kind: str) -> int:
    """Number of waits for the GPU's current stream, on ranks with GPUs that use gloo."""
    waited: list[None] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "is_initialized", lambda: True)
        patch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(synchronize=lambda: waited.append(None)))
        ordered(env, kind)
    return len(waited)


def in_a_group(env: dict, _: None) -> dict[str, list]:
    """Call each function over ranks 2 and 0, in that order if torch can; rank 1 takes no part."""
    if "handle" not in env:
        ordered = {"sort_ranks": False} if "sort_ranks" in inspect.signature(dist.new_group).parameters else {}
        env["handle"] = dist.new_group([2, 0], **ordered)
    handle, rank = env["handle"], env["rank"]
    if rank == 1:
        return {}
    members = dist.get_process_group_ranks(handle)
    mine = torch.tensor([[10 * rank + 1, 10 * rank + 2], [10 * rank + 3, 10 * rank + 4]], dtype=torch.int16)
    wide = torch.arange(100 * rank, 100 * rank + 8, dtype=torch.int16).view(2, 4)
    return {
        "members": members,
        "wide blocks": swapped(wide, handle).tolist(),
        "gathered": gathered(mine, handle).tolist(),
        "swapped": swapped(mine, handle).tolist(),
        "broadcast": broadcast(mine, 2, handle).tolist(),
        "scattered": scattered(wide, 0, handle).tolist(),
        **{op: reduced(mine[:1], op, handle).tolist() for op in ("sum", "product", "min", "band", "bxor")},
        "wide": reduced(mine[:1].float(), "product", handle).tolist(),
    }


def many(env: dict, count: int) -> bool:
    """Return whether ``gathered`` has the bytes of each rank at its place."""
    rank, ranks = env["rank"], range(RANKS)
    got = gathered(torch.arange(count).add(rank).to(torch.uint8))
    return torch.equal(got, torch.cat([torch.arange(count).add(other).to(torch.uint8) for other in ranks]))


def kept(env: dict, dtype: str) -> tuple[list, list, bool, bool]:
    """Return this rank's values after their reduction, the result, and whether all ranks agree on two conditions."""
    values = torch.full((3,), env["rank"] + 1, dtype=getattr(torch, dtype))
    total = reduced(values, "sum")
    return values.tolist(), total.tolist(), bool_all(True), bool_all(env["rank"] != 1)


@pytest.fixture(scope="module")
def group() -> Iterator[RankGroup]:
    with RankGroup(RANKS) as group:
        yield group


@pytest.mark.parametrize(
    "pairs", [[(0, 1)], [(0, 0), (1, 1)], [(0, 1), (1, 2), (2, 0)], [(0, 2), (1, 2)], [(1, 0), (1, 1), (1, 2)], []]
)
def test_exchange_moves_payloads_and_nothing_else(group: RankGroup, pairs: list[tuple[int, int]]) -> None:
    got = group.call(f"{__name__}:exchanges", pairs)
    wanted = [
        {by: payload("int32", 5, rank=by, ranks=RANKS).tolist() for by, to in sorted(pairs) if to == me}
        for me in range(RANKS)
    ]
    assert got == wanted, f"transfers {pairs}"


def test_exchange_takes_a_payload_per_receiver(group: RankGroup) -> None:
    assert group.call(f"{__name__}:several") == [{2: [20, 20]}, {0: [1, 1]}, {0: [2, 2]}], "each receiver its own"


@pytest.mark.parametrize("dtype", ["int32", "int16", "float32", "float16"])
def test_references_leave_their_arguments_as_they_are(group: RankGroup, dtype: str) -> None:
    for rank, (values, total, always, not_on_one) in enumerate(group.call(f"{__name__}:kept", dtype)):
        assert values == [rank + 1] * 3, "the input of the library under test"
        assert total == [6] * 3
        assert (always, not_on_one) == (True, False)


@pytest.mark.parametrize("count", [0, 1, reference._FEW, reference._FEW + 1])
def test_bytes_are_gathered_however_many_they_are(group: RankGroup, count: int) -> None:
    assert group.call(f"{__name__}:many", count) == [True] * RANKS


def test_references_of_a_group(group: RankGroup) -> None:
    first, outside, last = group.call(f"{__name__}:in_a_group")
    assert outside == {}
    order = first["members"]
    rows = {0: [[1, 2], [3, 4]], 2: [[21, 22], [23, 24]]}
    for rank, got in ((0, first), (2, last)):
        place = order.index(rank)
        assert got["members"] == order
        assert got["gathered"] == [row for member in order for row in rows[member]]
        assert got["swapped"] == [[rows[member][row][place] for member in order] for row in range(2)]
        starts = [[100 * member + 4 * row + 2 * place for member in order] for row in range(2)]
        assert got["wide blocks"] == [[value for start in row for value in (start, start + 1)] for row in starts]
        assert got["broadcast"] == rows[2]
        assert got["scattered"] == [[4 * place, 4 * place + 1, 4 * place + 2, 4 * place + 3]], "rows of rank 0"
        assert (got["sum"], got["product"], got["min"]) == ([[22, 24]], [[21, 44]], [[1, 2]])
        assert (got["band"], got["bxor"], got["wide"]) == ([[1 & 21, 2 & 22]], [[1 ^ 21, 2 ^ 22]], [[21.0, 44.0]])


def test_a_gpu_backend_computes_on_the_current_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
    for config, device in (
        ("cpu:gloo,cuda:nccl", torch.device("cuda", 3)),
        ("cpu:gloo,cuda:gloo", torch.device("cpu")),
        ("cpu:gloo", torch.device("cpu")),
        ("cpu:gloo,absent:gloo", torch.device("cpu")),  # a kind of device without a module in torch
    ):
        monkeypatch.setattr(dist, "get_backend_config", lambda config=config: config)
        assert reference._device() == device, config


@pytest.mark.parametrize(
    ("device", "dtype", "op", "collectives"),
    [
        ("meta", torch.int32, "band", ["all_gather_into_tensor"]),  # nccl has no bitwise reductions
        ("meta", torch.int32, "sum", ["all_reduce"]),
        ("cpu", torch.int32, "band", ["all_reduce"]),
        ("cpu", torch.int32, "sum", ["all_reduce"]),
        ("cpu", torch.int16, "sum", ["gather", "broadcast"]),  # gloo has no 16-bit integers
    ],
)
def test_values_are_gathered_only_where_the_backend_lacks_the_reduction(
    monkeypatch: pytest.MonkeyPatch, device: str, dtype: torch.dtype, op: str, collectives: list[str]
) -> None:
    """Elsewhere the oracle is torch's own reduction. A meta tensor stands for one on a GPU, and has no values."""
    called = []
    for name in ("all_reduce", "all_gather_into_tensor", "gather", "broadcast"):
        monkeypatch.setattr(dist, name, lambda *_, name=name, **__: called.append(name))
    monkeypatch.setattr(dist, "get_world_size", lambda group: 2)
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    monkeypatch.setattr(reference, "_device", lambda: torch.device(device))
    with contextlib.nullcontext() if device == "cpu" else pytest.raises(NotImplementedError, match="meta tensor"):
        reduced(torch.ones(3, dtype=dtype), op)
    assert called == collectives


def test_data_of_another_rank_is_an_error_of_the_harness(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted fault: all_to_all_single returns the blocks of ranks 0 and 1 in the wrong order."""

    def swap_blocks(arriving: torch.Tensor, *_: object) -> None:
        arriving.copy_(torch.tensor([1] * 8 + [0] * 8))

    monkeypatch.setattr(dist, "all_to_all_single", swap_blocks)
    monkeypatch.setattr(reference, "_device", lambda: torch.device("cpu"))
    with pytest.raises(HarnessError, match="returned data of rank 1 in place of data of rank 0"):
        exchange(torch.zeros(2), set(), rank=0, ranks=2)


def test_a_barrier_waits_for_the_processes(group: RankGroup) -> None:
    seconds = group.call(f"{__name__}:ordered", "barrier")
    assert min(seconds[1:]) > 0.15, f"it returned before rank 0 had entered: {seconds}"


@pytest.mark.parametrize("kind", ["exchange", "reduced", "gathered", "swapped"])
def test_references_order_the_ranks(group: RankGroup, kind: str) -> None:
    seconds = group.call(f"{__name__}:ordered", kind)
    assert min(seconds[1:]) > 0.15, f"{kind} returned before rank 0 had entered: {seconds}"
    assert group.call(f"{__name__}:waits", kind) == [1] * RANKS, "what is enqueued on a GPU has ended"
