"""atomic_xchg(pointer, val, to_rank, mask, sem, scope): stores a value in a peer's cell and returns the old value.

No value may be lost or returned twice: the old values and the final value form a chain.
Scalars and blocks, duplicate lanes and ranks on one cell, any sem and scope.

001  in Gluon, with ``IrisDeviceCtx``.
002  in Triton, with ``DeviceContext``.
003  in Triton, with the function.
"""

from functools import partial

from conformance.atomics.history import drawn, moves, run
from conformance.atomics.operations import ATOMICS
from fixtures.requirement import requirement

OP = ATOMICS["xchg"]
cases = partial(drawn, op="xchg")


@requirement("ATOMIC-XCHG-001", moves=moves, cases=cases, weight=4.0, dtype=OP.dtypes)
def test_xchg(check, case):
    check(run, case)


@requirement("ATOMIC-XCHG-002", moves=moves, cases=partial(cases, form="context"), weight=2.0, dtype=OP.some)
def test_xchg_by_context(check, case):
    check(run, case)


@requirement("ATOMIC-XCHG-003", moves=moves, cases=partial(cases, form="function"), weight=3.0, dtype=OP.some)
def test_xchg_by_function(check, case):
    check(run, case)
