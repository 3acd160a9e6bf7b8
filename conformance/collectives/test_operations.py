"""Each collective gives what torch.distributed gives for the same inputs, and changes nothing else.

``operations.py`` describes each op, and there is one test for each. Cases draw the shape, stride, tile, kernel,
variant, group and number of calls. Padding between rows and all other memory stay unchanged. Calls follow each other
without synchronization, on the same tensors or on different ones. All seven reductions are tested, also in place, on
values whose result is exact in any order. For ops that only move data, any element type represents all types of its
size.
"""

from conformance.collectives.calls import moves, run
from conformance.collectives.operations import COLLECTIVES
from fixtures.requirement import requirement


def _test_of(op):
    """Return the test of one op."""

    def cases(ranks, dtype=None, width=None):
        from conformance.collectives.strategies import drawn

        return drawn(ranks, op.name, dtype if op.reduces else width)

    def test(check, case):
        check(run, case)

    test.__name__ = test.__qualname__ = f"test_{op.name}"
    return requirement(op.requirement, cases=cases, moves=moves, weight=op.weight, **op.parameters)(test)


globals().update({f"test_{op.name}": _test_of(op) for op in COLLECTIVES.values()})
