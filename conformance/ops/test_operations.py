"""Each fused product gives what torch.matmul and torch.distributed give for the same inputs.

``operations.py`` describes each op, and there is one test for each. Cases draw the variant, shape, stride, bias, block
size and number of calls. Calls on one workspace follow each other with different data and without synchronization.
Memory other than the output stays unchanged.
"""

from conformance.ops.operations import DTYPES, PRODUCTS
from conformance.ops.products import moves, run
from fixtures.requirement import requirement


def _test_of(op):
    """Return the test of one op."""

    def cases(ranks, dtype):
        from conformance.ops.strategies import fused

        return fused(ranks, op.name, dtype)

    def test(check, case):
        check(run, case)

    test.__name__ = test.__qualname__ = f"test_{op.name}"
    return requirement(op.requirement, cases=cases, moves=moves, weight=op.weight, dtype=DTYPES)(test)


globals().update({f"test_{op.name}": _test_of(op) for op in PRODUCTS.values()})
