"""load(pointer, from_rank, mask, other, cache_modifier, volatile): returns a block of a peer's memory.

``pointer`` is into the caller's heap and is translated to the rank that is read. Masked-off lanes are not read and have
the value ``other``; without ``other`` they are undefined, so that the kernel stores them only if ``other`` is passed.

001  in Gluon, with ``IrisDeviceCtx``.
002  in Triton, with ``DeviceContext``.
003  in Triton, with the function.
"""

from functools import partial

from conformance.rma.transfer import drawn, moves, run
from fixtures.requirement import requirement
from harness.cases import ALL, SOME

cases = partial(drawn, op="load")


@requirement("RMA-LOAD-001", moves=moves, cases=cases, weight=4.0, dtype=ALL)
def test_load(check, case):
    check(run, case, op="load")


@requirement("RMA-LOAD-002", moves=moves, cases=partial(cases, form="context"), weight=2.0, dtype=SOME)
def test_load_by_context(check, case):
    check(run, case, op="load")


@requirement("RMA-LOAD-003", moves=moves, cases=partial(cases, form="function"), weight=3.0, dtype=SOME)
def test_load_by_function(check, case):
    check(run, case, op="load")
