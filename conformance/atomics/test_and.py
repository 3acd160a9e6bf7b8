"""atomic_and(pointer, val, to_rank, mask, sem, scope): clears bits of a peer's cell and returns the old value.

Each operation clears a different bit, so that every intermediate value identifies the operations before it.
Scalars and blocks, duplicate lanes and ranks on one cell, any sem and scope.

001  in Gluon, with ``IrisDeviceCtx``.
002  in Triton, with ``DeviceContext``.
003  in Triton, with the function.
"""

from functools import partial

from conformance.atomics.history import drawn, moves, run
from conformance.atomics.operations import ATOMICS
from fixtures.requirement import requirement

OP = ATOMICS["and"]
cases = partial(drawn, op="and")


@requirement("ATOMIC-AND-001", moves=moves, cases=cases, weight=4.0, dtype=OP.dtypes)
def test_and(check, case):
    check(run, case)


@requirement("ATOMIC-AND-002", moves=moves, cases=partial(cases, form="context"), weight=2.0, dtype=OP.some)
def test_and_by_context(check, case):
    check(run, case)


@requirement("ATOMIC-AND-003", moves=moves, cases=partial(cases, form="function"), weight=3.0, dtype=OP.some)
def test_and_by_function(check, case):
    check(run, case)
