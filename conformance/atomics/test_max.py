"""atomic_max(pointer, val, to_rank, mask, sem, scope): stores the larger of a peer's cell and a value there, and
returns the old value.

Comparison is signed. The cell never decreases, and each old value is one that the cell held.
Scalars and blocks, duplicate lanes and ranks on one cell, any sem and scope.

001  in Gluon, with ``IrisDeviceCtx``.
002  in Triton, with ``DeviceContext``.
003  in Triton, with the function.
"""

from functools import partial

from conformance.atomics.history import drawn, moves, run
from conformance.atomics.operations import ATOMICS
from fixtures.requirement import requirement

OP = ATOMICS["max"]
cases = partial(drawn, op="max")


@requirement("ATOMIC-MAX-001", moves=moves, cases=cases, weight=4.0, dtype=OP.dtypes)
def test_max(check, case):
    check(run, case)


@requirement("ATOMIC-MAX-002", moves=moves, cases=partial(cases, form="context"), weight=2.0, dtype=OP.some)
def test_max_by_context(check, case):
    check(run, case)


@requirement("ATOMIC-MAX-003", moves=moves, cases=partial(cases, form="function"), weight=3.0, dtype=OP.some)
def test_max_by_function(check, case):
    check(run, case)
