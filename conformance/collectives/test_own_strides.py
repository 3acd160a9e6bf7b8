"""A tensor that no other member reads or writes may have different strides on each member.

All members must still execute the same number of steps. So the shapes are such that a contiguous tensor would have
another number of tiles than a padded one.
"""

from dataclasses import replace

from conformance.collectives.calls import judge, perform, prepare
from conformance.collectives.operations import COLLECTIVES, names
from fixtures.findings import Findings
from fixtures.requirement import requirement


def run(env, case):
    """Run a case in which every second rank's rows are padded."""
    if env.rank % 2:
        case = replace(case, in_pad=0, out_pad=0)
    calls = prepare(env, case)
    env.settle()
    outputs = perform(env, case, calls)
    env.settle()
    return judge(env, case, calls, outputs, Findings(env.rank))


def cases(ranks, op):
    op = COLLECTIVES[op]
    variant, own = op.own_tensor()
    shape = {"dtype": "fp32", "m": 5, "n": 69, "comm_sms": 5, "in_pad" if own == "input" else "out_pad": 8}
    listed = [op.case(**shape, variant=variant, root=root) for root in ((0, 1) if op.root else (0,))]
    return [case for each in listed for case in (each, *op.also_fast(each, ranks))]


@requirement("CCL-STRIDES-001", cases=cases, ranks=2, op=names(lambda op: op.own_tensor()))
def test_own_strides(check, case):
    check(run, case)
