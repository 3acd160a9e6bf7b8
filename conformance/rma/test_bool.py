"""Booleans: every transfer moves them unchanged, although Triton treats them as 1-bit elements and each takes a byte.

The test covers Gluon, ``DeviceContext``, and the functions. Payloads of two values distinguish few elements in one
transfer, but all rounds together distinguish every element from every other. A kernel has all ops.
"""

from conformance.rma.cases import TransferCase
from conformance.rma.operations import TRANSFERS
from conformance.rma.several import COLUMNS, ROWS, launch_block
from conformance.rma.transfer import run_transfers
from conformance.support.forms import FORMS, neighbours
from conformance.support.masks import LANES
from fixtures.requirement import requirement


def run(env, case, op):
    return run_transfers(env, TRANSFERS[op], case, launch_block)


def cases(ranks, op):
    return [
        TransferCase(
            dtype="bool", n=100, targets=neighbours(ranks, form), spt=ROWS * COLUMNS // LANES, mask="holes",
            src_offset=3, dst_offset=1, form=form,
        )
        for form in FORMS
    ]  # fmt: skip


@requirement("RMA-BOOL-001", cases=cases, op=tuple(TRANSFERS))
def test_bool(check, case, op):
    check(run, case, op=op)
