"""put(from_ptr, to_ptr, to_rank, mask, other, load_cache_modifier, store_cache_modifier): local memory to a peer's.

Both pointers are into the caller's heap; only ``to_ptr`` is translated. Masked-off lanes are neither read nor written.
No other memory changes on any rank.

001  in Gluon, with ``IrisDeviceCtx``.
002  in Triton, with ``DeviceContext``.
003  in Triton, with the function.
"""

from functools import partial

from conformance.rma.transfer import drawn, moves, run
from fixtures.requirement import requirement
from harness.cases import ALL, SOME

cases = partial(drawn, op="put")


@requirement("RMA-PUT-001", moves=moves, cases=cases, weight=4.0, dtype=ALL)
def test_put(check, case):
    check(run, case, op="put")


@requirement("RMA-PUT-002", moves=moves, cases=partial(cases, form="context"), weight=2.0, dtype=SOME)
def test_put_by_context(check, case):
    check(run, case, op="put")


@requirement("RMA-PUT-003", moves=moves, cases=partial(cases, form="function"), weight=3.0, dtype=SOME)
def test_put_by_function(check, case):
    check(run, case, op="put")
