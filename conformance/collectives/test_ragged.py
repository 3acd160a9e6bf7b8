"""Each kernel of a collective at the ragged ends of its tensors.

The first shape has three tiles in each dimension, of which the last one is ragged, so that the number of tiles is no
multiple of the two programs. In the others the last tile ends at each other row, and at columns of other lanes and of
other elements of a lane: the code has limits of its own for each of these. Where rows or columns are a multiple of 16,
or one, as the kernel was compiled for, that dimension is as near to it as possible.

A library with the extended API accesses no memory beyond its tensors, not even to read what it masks away later: a
tensor may be the last one of its mapping. So on the emulated device any such access is a fault. Of another library only
the results and the memory around the tensors are judged: it may count on memory that it has after each tensor.
"""

import contextlib

from conformance.collectives.calls import judge, passed, perform, prepare
from conformance.collectives.operations import COLLECTIVES
from fixtures import judged
from fixtures.findings import Findings
from fixtures.requirement import requirement


def run(env, case, confined):
    calls = prepare(env, case)
    env.settle()
    with env.confined(passed(env, case, calls)) if confined else contextlib.nullcontext():
        outputs = perform(env, case, calls)
    env.settle()
    return judge(env, case, calls, outputs, Findings(env.rank))


def cases(ranks, op):
    from conformance.collectives.strategies import ragged

    return ragged(ranks, op)


@requirement(
    "CCL-RAGGED-001",
    cases=cases,
    ranks=2,
    weak=False,
    one_process="the emulated device confines the kernels of its own process",
    sampled=True,
    op=COLLECTIVES,
)
def test_ragged(check, case):
    check(run, case, confined=judged.extended())
