"""Booleans: every transfer moves them unchanged, although Triton treats them as 1-bit elements and each takes a byte.

The test covers Gluon, ``DeviceContext``, and the functions. Payloads of two values distinguish few elements in one
transfer, but all rounds together distinguish every element from every other.
"""

from conformance.rma.cases import TransferCase
from conformance.rma.operations import TRANSFERS
from conformance.rma.transfer import run
from conformance.support.forms import FORMS, neighbours
from fixtures.requirement import requirement


def cases(ranks, op):
    number = list(TRANSFERS).index(op)
    return [
        TransferCase(
            dtype="bool", n=100, targets=neighbours(ranks, form, number), spt=4, mask="holes", src_offset=3,
            dst_offset=1, form=form,
        )
        for form in FORMS
    ]  # fmt: skip


@requirement("RMA-BOOL-001", cases=cases, op=tuple(TRANSFERS))
def test_bool(check, case, op):
    check(run, case, op=op)
