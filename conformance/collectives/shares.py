"""What members of a reduce_scatter must have between them: every element once, in whole tiles, in fair shares."""

import math
from typing import Any

import torch

from fixtures.findings import Findings
from harness.cases import CollectiveCase
from harness.oracles import gathered

UNTOUCHED, WRITTEN = 1, 2


def check(
    found: Findings,
    what: str,
    output: torch.Tensor,
    wanted: torch.Tensor,
    before: torch.Tensor,
    party: Any,
    case: CollectiveCase,
) -> None:
    """Collective over the group. Each element of the output is ``wanted`` or still ``before``; among all members
    exactly one has it wanted, and, where the tile is known, all of a tile is one member's and none has more than its
    part.

    An element for which both are the same counts as either.
    """
    if not output.numel():
        return
    marks = UNTOUCHED * _same(output, before) + WRITTEN * _same(output, wanted)
    if not marks.all():
        row, column = (int(at[0]) for at in torch.nonzero(marks == 0, as_tuple=True))
        found.note(f"{what}, element ({row}, {column})", output[row, column].item(), wanted[row, column].item())
    everybody = gathered(marks.unsqueeze(0), party.handle, party.size)
    owners, possible = (everybody == WRITTEN).sum(0), (everybody & WRITTEN != 0).sum(0)
    for problem, wrong in (("nobody", possible == 0), ("several members", owners > 1)):
        if wrong.any():
            row, column = (int(at[0]) for at in torch.nonzero(wrong, as_tuple=True))
            found.note(f"{what}: who wrote element ({row}, {column})", problem, "one member")
    if not case.default:
        _check_tiles(found, what, everybody, case)


def _check_tiles(found: Findings, what: str, everybody: torch.Tensor, case: CollectiveCase) -> None:
    members, rows, columns = everybody.shape
    tiles = [(row, column) for row in range(0, rows, case.block_m) for column in range(0, columns, case.block_n)]
    shares = [0] * members
    for row, column in tiles:
        tile = everybody[:, row : row + case.block_m, column : column + case.block_n].flatten(1)
        for member in range(members):
            has, has_not = (tile[member] == WRITTEN).any(), (tile[member] == UNTOUCHED).any()
            shares[member] += int(has)
            if has and has_not:
                found.note(f"{what}: tile at ({row}, {column}) of member {member}", "partly written", "all or nothing")
    most = math.ceil(len(tiles) / members)
    if max(shares) > most:
        found.note(f"{what}: tiles of each member", shares, f"at most {most}")


def _same(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Where two matrices have the same bits, as uint8."""
    rows, columns = one.shape

    def words(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.contiguous().flatten().view(torch.uint8).view(rows, columns, -1)

    return (words(one) == words(other)).all(-1).to(torch.uint8)
