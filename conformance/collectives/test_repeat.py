"""The same floats give the same bits, however often they are reduced, where the operation promises it.

Values with full significands, whose sum depends on the order in which they are added: a second call gives the bits of
the first one, every member of an all_reduce has the same, and each is as close to the sum as rounding leaves it. Of a
reduce_scatter that holds for the elements that the member owns.
"""

from dataclasses import replace

import torch

from conformance.collectives import shares
from conformance.collectives.calls import fill, perform, prepare
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import CollectiveCase, low_latency, rough
from harness.oracles import bool_all, gathered, sum_error

TIMES = 3


def run(env, case):
    found = Findings(env.rank)
    calls = prepare(env, case)
    count = case.m * case.n
    mine = rough(case.dtype, count, member=env.rank).view(case.m, case.n)
    zeros = None if case.op != "reduce_scatter" else torch.zeros_like(mine)
    calls = [replace(call, given=mine, before=zeros) for call in calls]
    everybody = gathered(mine.unsqueeze(0))
    fill(calls[0])
    env.settle()
    outputs = perform(env, case, calls)
    env.settle()
    if not bool_all(env.fault is None):
        return None
    first = outputs[0]
    for again, output in enumerate(outputs[1:]):
        found.same(f"output of call {again + 1}, with the input of call 0", output, first.cpu())
    if case.op == "all_reduce":
        for rank, output in enumerate(gathered(first.unsqueeze(0))):
            found.same(f"output, beside that of rank {rank}", first.cpu(), output)
    if calls[0].wanted is not None:
        mine, party = first.cpu(), calls[0].party
        if case.op == "reduce_scatter":
            owned = shares.owned(case, party.place, party.size)
            mine, everybody = mine[owned], everybody[:, owned]
        worst = sum_error(mine, everybody)
        found.true(f"errors within the rounding of {env.world_size} additions, not {worst:.2f} times that", worst <= 1)
    return found.first


def cases(ranks, op):
    shape = {"dtype": "bf16", "m": 7, "n": 120, "calls": TIMES, "reuse": True, "comm_sms": 3}
    variants = ("one_shot", "two_shot", "two_shot_push", "ring") if op == "all_reduce" else ("",)
    found = [
        CollectiveCase(op=op, **{**shape, "dtype": dtype}, variant=variant, root=1, gluon=dtype == "fp32")
        for dtype in ("bf16", "fp32")
        for variant in (variants if dtype == "bf16" else variants[:2])
    ]
    return found + [replace(found[0], protocol="ll")] * (low_latency(op, ranks))


@requirement("CCL-REPEAT-001", cases=cases, ranks=2, op=("all_reduce", "reduce", "reduce_scatter"))
def test_repeat(check, case):
    check(run, case)
