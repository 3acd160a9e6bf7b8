"""atomic_cas(pointer, cmp, val, to_rank, sem, scope): stores a value in a peer's cell if the cell holds the compare
value, and returns the old value.

Of several operations with the same compare value exactly one succeeds, and the others get the value that it stored.
There is no mask argument.
Scalars and blocks, duplicate lanes and ranks on one cell, any sem and scope.

001  in Gluon, with ``IrisDeviceCtx``.
002  in Triton, with ``DeviceContext``.
003  in Triton, with the function.
"""

from functools import partial

from conformance.atomics.history import drawn, moves, run
from conformance.atomics.operations import ATOMICS
from fixtures.requirement import requirement

OP = ATOMICS["cas"]
cases = partial(drawn, op="cas")


@requirement("ATOMIC-CAS-001", moves=moves, cases=cases, weight=4.0, dtype=OP.dtypes)
def test_cas(check, case):
    check(run, case)


@requirement("ATOMIC-CAS-002", moves=moves, cases=partial(cases, form="context"), weight=2.0, dtype=OP.some)
def test_cas_by_context(check, case):
    check(run, case)


@requirement("ATOMIC-CAS-003", moves=moves, cases=partial(cases, form="function"), weight=3.0, dtype=OP.some)
def test_cas_by_function(check, case):
    check(run, case)
