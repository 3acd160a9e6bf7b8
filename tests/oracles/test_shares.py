"""What conformance/collectives/shares.py accepts of a reduce_scatter, and each way in which it may go wrong."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from conformance.collectives import shares
from fixtures.findings import Findings
from harness.cases import CollectiveCase

CASE = CollectiveCase(op="reduce_scatter", dtype="int8", m=4, n=6, block_m=2, block_n=4)
"""Tiles of 2 x 4 on 4 x 6: two of them are narrow."""
WANTED = torch.arange(1, 25, dtype=torch.int8).view(4, 6)
BEFORE = ~WANTED


def right() -> list[torch.Tensor]:
    """The outputs of two members that share by tile columns."""
    outputs = [BEFORE.clone(), BEFORE.clone()]
    outputs[0][:, :4], outputs[1][:, 4:] = WANTED[:, :4], WANTED[:, 4:]
    return outputs


def judged(outputs: list[torch.Tensor], case: CollectiveCase = CASE, before: torch.Tensor = BEFORE) -> dict | None:
    """What member 0 finds where the members hold ``outputs``."""
    found = Findings(0)
    marks = torch.stack([_marks(output, before) for output in outputs])
    party = SimpleNamespace(handle=None, size=len(outputs))
    original = shares.gathered
    try:
        shares.gathered = lambda *_: marks
        shares.check(found, "output", outputs[0], WANTED, before, party, case)
    finally:
        shares.gathered = original
    return found.first


def _marks(output: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    return shares.UNTOUCHED * shares._same(output, before) + shares.WRITTEN * shares._same(output, WANTED)


def test_shares_of_whole_tiles_are_right() -> None:
    assert judged(right()) is None
    swapped = right()[::-1]
    assert judged(swapped) is None, "which member has which share is no matter of this"


def test_what_was_there_before_may_be_what_is_wanted() -> None:
    before = BEFORE.clone()
    before[0] = WANTED[0]
    outputs = [torch.where(output == BEFORE, before, output) for output in right()]
    assert judged(outputs, before=before) is None, "the first row may be either's"


def _nothing(outputs: list[torch.Tensor]) -> None:
    outputs[0].copy_(BEFORE)


def _everything(outputs: list[torch.Tensor]) -> None:
    outputs[1].copy_(WANTED)


def _wrong(outputs: list[torch.Tensor]) -> None:
    outputs[0][3, 2] += 1


def _hole(outputs: list[torch.Tensor]) -> None:
    outputs[0][3, 2], outputs[1][3, 2] = BEFORE[3, 2], WANTED[3, 2]


def _unfair(outputs: list[torch.Tensor]) -> None:
    outputs[0][:2, 4:], outputs[1][:2, 4:] = WANTED[:2, 4:], BEFORE[:2, 4:]


@pytest.mark.parametrize(
    ("break_", "says", "got"),
    [
        (_nothing, "who wrote element (0, 0)", "nobody"),
        (_everything, "who wrote element (0, 0)", "several members"),
        (_wrong, "element (3, 2)", 22),
        (_hole, "tile at (2, 0) of member 0", "partly written"),
        (_unfair, "tiles of each member", "[3, 1]"),
    ],
)
def test_what_is_wrong_is_found(break_, says, got) -> None:  # type: ignore[no-untyped-def]
    outputs = right()
    break_(outputs)
    found = judged(outputs)
    assert found is not None and says in found["what"] and found["got"] == got, found
