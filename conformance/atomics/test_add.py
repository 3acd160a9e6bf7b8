"""atomic_add(pointer, val, to_rank, mask, sem, scope): adds to a peer's cell and returns the old value.

Integers wrap; floating-point operands are small whole numbers, so that every order of additions gives the same bits.
Scalars and blocks, duplicate lanes and ranks on one cell, any sem and scope.

001  in Gluon, with ``IrisDeviceCtx``.
002  in Triton, with ``DeviceContext``.
003  in Triton, with the function.
"""

from functools import partial

from conformance.atomics.history import drawn, moves, run
from conformance.atomics.operations import ATOMICS
from fixtures.requirement import requirement

OP = ATOMICS["add"]
cases = partial(drawn, op="add")


@requirement("ATOMIC-ADD-001", moves=moves, cases=cases, weight=4.0, dtype=OP.dtypes)
def test_add(check, case):
    check(run, case)


@requirement("ATOMIC-ADD-002", moves=moves, cases=partial(cases, form="context"), weight=2.0, dtype=OP.some)
def test_add_by_context(check, case):
    check(run, case)


@requirement("ATOMIC-ADD-003", moves=moves, cases=partial(cases, form="function"), weight=3.0, dtype=OP.some)
def test_add_by_function(check, case):
    check(run, case)
