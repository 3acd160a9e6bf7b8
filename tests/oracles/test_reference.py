"""The references on real ranks: what they give, and that none returns before all have entered."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import torch

from harness.cases import payload
from harness.oracles import exchange, gathered, reduced
from harness.ranks import RankGroup

RANKS = 3


def exchanges(env: dict, pairs: list[tuple[int, int]]) -> dict[int, list[int]]:
    mine = payload("int32", 5, rank=env["rank"], ranks=RANKS)
    found = exchange(mine, {tuple(pair) for pair in pairs}, rank=env["rank"], ranks=RANKS)
    return {sender: values.tolist() for sender, values in found.items()}


def several(env: dict, _: None) -> dict[int, list[int]]:
    """A payload of its own for each receiver."""
    rank = env["rank"]
    pairs = {(0, 1), (0, 2), (2, 0)}
    sent = [torch.full((2,), 10 * rank + to) for to in range(RANKS) if (rank, to) in pairs]
    found = exchange(sent or [torch.zeros(2, dtype=torch.int64)], pairs, rank=rank, ranks=RANKS)
    return {sender: values.tolist() for sender, values in found.items()}


def ordered(env: dict, kind: str) -> float:
    """Seconds that the reference took on this rank while rank 0 came late."""
    if env["rank"] == 0:
        time.sleep(0.3)
    started = time.monotonic()
    value = torch.ones(1, dtype=torch.int32)
    if kind == "exchange":
        exchange(value, set(), rank=env["rank"], ranks=RANKS)
    elif kind == "reduced":
        reduced(value, "sum")
    else:
        gathered(value)
    return time.monotonic() - started


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


@pytest.mark.parametrize("kind", ["exchange", "reduced", "gathered"])
def test_references_order_the_ranks(group: RankGroup, kind: str) -> None:
    seconds = group.call(f"{__name__}:ordered", kind)
    assert min(seconds[1:]) > 0.15, f"{kind} returned before rank 0 had entered: {seconds}"
