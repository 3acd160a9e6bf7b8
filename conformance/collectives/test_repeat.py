"""Repeated reductions of the same floats give the same bits, for the operations that promise it.

The values have full significands, so that their sum depends on the order of addition. A second call gives the same bits
as the first one, every member of an all_reduce has the same bits, and each result is as close to the sum as rounding
allows. For a reduce_scatter this holds for the elements that the member owns.
"""

from dataclasses import replace

import torch

from conformance.collectives.calls import fill, perform, prepare
from conformance.collectives.operations import COLLECTIVES, names, published
from fixtures import judged
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import rough
from harness.oracles import bool_all, gathered, sum_error

TIMES = 3


def run(env, case):
    findings = Findings(env.rank)
    calls = prepare(env, case)
    count = case.m * case.n
    mine = rough(case.dtype, count, member=env.rank).view(case.m, case.n)
    op = COLLECTIVES[case.op]
    zeros = None if op.owned is None else torch.zeros_like(mine)
    calls = [replace(call, given=mine, before=zeros) for call in calls]
    all_inputs = gathered(mine.unsqueeze(0))
    fill(calls[0])
    env.settle()
    outputs = perform(env, case, calls)
    env.settle()
    if not bool_all(env.fault is None):
        return None
    first = outputs[0]
    for again, output in enumerate(outputs[1:]):
        findings.same(f"output of call {again + 1}, with the input of call 0", output, first.cpu())
    if op.results_at == "all" and op.owned is None:
        for rank, output in enumerate(gathered(first.unsqueeze(0))):
            findings.same(f"output, compared with that of rank {rank}", first.cpu(), output)
    if calls[0].wanted is not None:
        mine, party = first.cpu(), calls[0].party
        if op.owned is not None:
            owned = op.owned(case, party.place, party.size)
            mine, all_inputs = mine[owned], all_inputs[:, owned]
        worst = sum_error(mine, all_inputs)
        findings.true(
            f"errors within the rounding of {env.world_size} additions, not {worst:.2f} times that", worst <= 1
        )
    return findings.first


def cases(ranks, op):
    op = COLLECTIVES[op]
    shape = {"m": 7, "n": 120, "calls": TIMES, "reuse": True, "comm_sms": 3, "root": 1}
    variants = [variant.name for variant in op.variants if variant.same_bits]
    narrow = [op.case(**shape, dtype="bf16", variant=variant) for variant in variants]
    wide = [op.case(**shape, dtype="fp32", variant=variant) for variant in variants]
    if judged.extended():
        return [*narrow, *wide, *op.also_fast(narrow[0], ranks), *op.also_fast(wide[0], ranks)]
    # All calls have the same input, so that it does not matter which of them a peer reads.
    return list(dict.fromkeys(replace(published(case), calls=TIMES, reuse=True) for case in narrow))


@requirement("CCL-REPEAT-001", cases=cases, ranks=2, op=names(lambda op: op.reduces))
def test_repeat(check, case):
    check(run, case)
