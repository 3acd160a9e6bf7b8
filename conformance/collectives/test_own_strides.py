"""Members' own tensors may have strides of their own: those that no other member reads or writes.

Members must do the same number of things at the same time nevertheless; so these are shapes that take another number of
tiles when they lie in one run of memory.
"""

from dataclasses import replace

from conformance.collectives.calls import judge, perform, prepare
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import ROOTED, CollectiveCase, low_latency

OWN = {
    "all_gather": "in_pad", "all_to_all": "in_pad", "scatter": "in_pad",
    "gather": "out_pad", "all_reduce": "out_pad", "reduce_scatter": "out_pad",
}  # fmt: skip
"""Which tensor of an op is a member's own: the one that it alone reads, or that it alone writes."""


def run(env, case):
    """Every second rank's rows are apart."""
    if env.rank % 2:
        case = replace(case, in_pad=0, out_pad=0)
    calls = prepare(env, case)
    env.settle()
    outputs = perform(env, case, calls)
    env.settle()
    return judge(env, case, calls, outputs, Findings(env.rank))


def cases(ranks, op):
    shape = {"dtype": "int32", "m": 16, "n": 70, "comm_sms": 5, OWN[op]: 8}
    variant = "one_shot" if op == "all_reduce" else ""
    roots = (0, 1) if op in ROOTED else (0,)
    protocols = ("", "ll") if low_latency(op, ranks) else ("",)
    return [
        CollectiveCase(op=op, **shape, variant=variant, root=root, protocol=protocol)
        for root in roots
        for protocol in protocols
    ]


@requirement("CCL-STRIDES-001", cases=cases, ranks=2, op=tuple(OWN))
def test_own_strides(check, case):
    check(run, case)
