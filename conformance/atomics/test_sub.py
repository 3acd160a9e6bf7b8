"""atomic_sub(pointer, val, to_rank, mask, sem, scope): subtracts from a peer's cell and returns the old value.

The operand is subtracted from the cell; integers wrap, and the smallest integer is its own negative.
Where old values are unused, the operands of integer blocks are narrower and unsigned: they are converted to the cell's
type before they are negated.
Scalars and blocks, duplicate lanes and ranks on one cell, any sem and scope.

001  in Gluon, with ``IrisDeviceCtx``.
002  in Triton, with ``DeviceContext``.
003  in Triton, with the function.
"""

from functools import partial

from conformance.atomics.history import drawn, moves, run
from conformance.atomics.operations import ATOMICS
from fixtures.requirement import requirement

OP = ATOMICS["sub"]
cases = partial(drawn, op="sub")


@requirement("ATOMIC-SUB-001", moves=moves, cases=cases, weight=4.0, dtype=OP.dtypes)
def test_sub(check, case):
    check(run, case)


@requirement("ATOMIC-SUB-002", moves=moves, cases=partial(cases, form="context"), weight=2.0, dtype=OP.some)
def test_sub_by_context(check, case):
    check(run, case)


@requirement("ATOMIC-SUB-003", moves=moves, cases=partial(cases, form="function"), weight=3.0, dtype=OP.some)
def test_sub_by_function(check, case):
    check(run, case)
