"""Tiles: every transfer in every form accepts two-dimensional pointers and masks, as matrix kernels use them.

A tile has 8 rows of 16 elements; its mask has an entry for each element, for each row or for each column: blocks of
8 x 16, 8 x 1 and 1 x 16, of which the last two are broadcast. In Triton the hint has two dimensions too: it states that
the columns of a row are contiguous, and nothing about rows. A tile whose mask has an entry for each element is turned
there: its columns lie one after another, and the hint states that the rows of a column are contiguous.

A kernel has all ops. Every op has every kind of mask in every form.
"""

from conformance.rma.cases import TransferCase
from conformance.rma.operations import TRANSFERS
from conformance.rma.several import COLUMNS, ROWS, launch_tile
from conformance.rma.transfer import run_transfers
from conformance.support.forms import FORMS, neighbours
from fixtures.requirement import requirement

KINDS = (("holes", 100), ("rows", ROWS * COLUMNS), ("columns", ROWS * COLUMNS))
"""Patterns, and the elements of a tile: a mask of rows or columns leaves out whole ones."""


def run(env, case, op):
    return run_transfers(env, TRANSFERS[op], case, launch_tile)


def cases(ranks, op):
    return [
        TransferCase(
            dtype=("fp16", "int32")[(kind + place) % 2], targets=neighbours(ranks, form, kind), form=form,
            mask=mask, n=n,
        )
        for place, form in enumerate(FORMS)
        for kind, (mask, n) in enumerate(KINDS)
    ]  # fmt: skip


@requirement("RMA-TILE-001", cases=cases, op=tuple(TRANSFERS))
def test_tiles(check, case, op):
    check(run, case, op=op)
