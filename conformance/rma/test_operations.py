"""Tests of each transfer of ``operations.py`` without its own test file, in the three forms.

001  in Gluon, with ``IrisDeviceCtx``. 002  in Triton, with ``DeviceContext``. 003  in Triton, with the function.
"""

from functools import partial

from conformance.rma.operations import TRANSFERS
from conformance.rma.transfer import drawn, run
from fixtures.requirement import requirement
from harness.cases import ALL, SOME

FORMS = (("gluon", "", 4.0, ALL), ("context", "_by_context", 2.0, SOME), ("function", "_by_function", 3.0, SOME))


def _tests_of(op):
    """Yield the name and the test function of each test of one op."""

    def test(check, case):
        check(run, case, op=op.name)

    for number, (form, ending, weight, dtypes) in enumerate(FORMS, start=1):
        cases = partial(drawn, op=op.name, form=form)
        decorate = requirement(f"{op.requirement}-{number:03}", cases=cases, weight=weight, dtype=dtypes)
        yield f"test_{op.name}{ending}", decorate(test)


globals().update(dict(pair for op in TRANSFERS.values() if op.requirement for pair in _tests_of(op)))
