"""copy(src_ptr, dst_ptr, from_rank, to_rank, mask, other, load_cache_modifier, store_cache_modifier): rank to rank.

One of the two ranks is the caller. Both pointers are into the caller's heap, and both are translated. The mask applies
to both sides. Each side keeps its own element type: values are converted to the target's type. No other memory changes
on any rank.

001  in Gluon, with ``IrisDeviceCtx``.
002  in Triton, with ``DeviceContext``.
003  in Triton, with the function.
"""

from functools import partial

from conformance.rma.transfer import drawn, moves, run
from fixtures.requirement import requirement
from harness.cases import ALL, SOME

cases = partial(drawn, op="copy")


@requirement("RMA-COPY-001", moves=moves, cases=cases, weight=4.0, dtype=ALL)
def test_copy(check, case):
    check(run, case, op="copy")


@requirement("RMA-COPY-002", moves=moves, cases=partial(cases, form="context"), weight=2.0, dtype=SOME)
def test_copy_by_context(check, case):
    check(run, case, op="copy")


@requirement("RMA-COPY-003", moves=moves, cases=partial(cases, form="function"), weight=3.0, dtype=SOME)
def test_copy_by_function(check, case):
    check(run, case, op="copy")
