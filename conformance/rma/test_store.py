"""store(pointer, value, to_rank, mask, cache_modifier): a block of values to a peer's memory.

``pointer`` is into the caller's heap and is translated to the target rank. Masked-off lanes are not written. No other
memory changes on any rank.

001  in Gluon, with ``IrisDeviceCtx``.
002  in Triton, with ``DeviceContext``.
003  in Triton, with the function.
"""

from functools import partial

from conformance.rma.transfer import drawn, moves, run
from fixtures.requirement import requirement
from harness.cases import ALL, SOME

cases = partial(drawn, op="store")


@requirement("RMA-STORE-001", moves=moves, cases=cases, weight=4.0, dtype=ALL)
def test_store(check, case):
    check(run, case, op="store")


@requirement("RMA-STORE-002", moves=moves, cases=partial(cases, form="context"), weight=2.0, dtype=SOME)
def test_store_by_context(check, case):
    check(run, case, op="store")


@requirement("RMA-STORE-003", moves=moves, cases=partial(cases, form="function"), weight=3.0, dtype=SOME)
def test_store_by_function(check, case):
    check(run, case, op="store")
