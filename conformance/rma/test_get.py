"""get(from_ptr, to_ptr, from_rank, mask, other, load_cache_modifier, store_cache_modifier): a peer's memory to local
memory.

Both pointers are into the caller's heap; only ``from_ptr`` is translated. The mask applies to both sides, so that
``other`` is never stored. No other memory changes on any rank, including the rank that is read.

001  in Gluon, with ``IrisDeviceCtx``.
002  in Triton, with ``DeviceContext``.
003  in Triton, with the function.
"""

from functools import partial

from conformance.rma.transfer import drawn, moves, run
from fixtures.requirement import requirement
from harness.cases import ALL, SOME

cases = partial(drawn, op="get")


@requirement("RMA-GET-001", moves=moves, cases=cases, weight=4.0, dtype=ALL)
def test_get(check, case):
    check(run, case, op="get")


@requirement("RMA-GET-002", moves=moves, cases=partial(cases, form="context"), weight=2.0, dtype=SOME)
def test_get_by_context(check, case):
    check(run, case, op="get")


@requirement("RMA-GET-003", moves=moves, cases=partial(cases, form="function"), weight=3.0, dtype=SOME)
def test_get_by_function(check, case):
    check(run, case, op="get")
