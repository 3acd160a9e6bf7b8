"""Booleans, which Triton takes for 1-bit elements though each has a byte: every transfer moves them as they are.

In Gluon, with ``DeviceContext``, and with the functions. A payload of two values tells little in one transfer; the
rounds together tell every element from every other.
"""

from conformance.rma import test_copy, test_get, test_load, test_put, test_store
from fixtures.requirement import requirement
from harness.cases import FORMS, TransferCase

TESTS = {"put": test_put, "store": test_store, "get": test_get, "load": test_load, "copy": test_copy}


def cases(ranks, op):
    targets = tuple(((rank + 1) % ranks,) for rank in range(ranks))
    return [
        TransferCase(dtype="bool", n=100, targets=targets, spt=4, mask="holes", src_offset=3, dst_offset=1, form=form)
        for form in FORMS
    ]


@requirement("RMA-BOOL-001", cases=cases, op=tuple(TESTS))
def test_bool(check, case, op):
    check(TESTS[op].run, case)
