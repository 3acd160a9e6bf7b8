"""all_reduce(output (M, N), input (M, N), op, group, async_op, config, workspace): the reduction of all inputs, on
every member.

001  one_shot, two_shot and the library's own choice give what torch.distributed's all_reduce gives, and change nothing
     else, in place too. All seven reductions, on values whose result is exact in any order.
002  So do ring, atomic and spinlock: the atomic ones with what GPUs have atomics for.
003  A workspace serves call after call; one that is too small is refused, and one for another variant replaced.
"""

from dataclasses import replace

from conformance.collectives.calls import config, fill, judge, prepare, run
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import ALL, CollectiveCase


def cases(ranks, dtype):
    from harness.cases.collective_strategies import collectives

    return collectives(ranks, "all_reduce", dtype)


def accumulating_cases(ranks, variant):
    from harness.cases.collective_strategies import accumulations

    return accumulations(ranks, variant)


@requirement("CCL-ALLREDUCE-001", cases=cases, weight=0.5, dtype=("bf16", *(name for name in ALL if name != "bf16")))
def test_all_reduce(check, case):
    check(run, case)


@requirement("CCL-ALLREDUCE-002", cases=accumulating_cases, variant=("ring", "atomic", "spinlock"))
def test_accumulating_variants(check, case):
    check(run, case)


def run_workspace(env, case):
    """One workspace for all calls, with changing data and nothing in between; then what it is too small for."""
    found, ccl = Findings(env.rank), env.iris.ccl
    calls = prepare(env, case)
    first = calls[0]
    settings = config(env, case, env.world_size)
    finer = config(env, replace(case, block_m=8), env.world_size)
    other = config(env, replace(case, variant="two_shot"), env.world_size)
    env.settle()
    outputs = []
    with env.acting():
        workspace = ccl.all_reduce_preamble(first.output, first.input, config=settings)
        found.equal("variant of the workspace", workspace.variant, case.variant)
        found.equal("prepared, behind the preamble", workspace.prepared, True)
        again = ccl.all_reduce_preamble(first.output, first.input, config=settings, workspace=workspace)
        found.true("a second preamble returns the same workspace", again is workspace)
        for k, call in enumerate(calls):
            if k:
                fill(call)
            used = ccl.all_reduce(call.output, call.input, async_op=case.async_op, config=settings, workspace=workspace)
            found.true(f"call {k} returns the workspace that it was given", used is workspace)
            outputs.append(call.output.clone())
            used.wait()
        workspace.synchronize()
        found.equal("is_completed() behind synchronize()", workspace.is_completed(), True)
        found.equal("prepared, behind the calls", workspace.prepared, True)
        found.raises(
            "a call with more tiles than the workspace was prepared for",
            ValueError,
            lambda: ccl.all_reduce(first.output, first.input, config=finer, workspace=workspace),
            says="array too small",
        )
        replaced = ccl.all_reduce(first.output, first.input, config=other, workspace=workspace)
        found.equal("variant of what replaces the workspace of another variant", replaced.variant, "two_shot")
    env.settle()
    return judge(env, case, calls, outputs, found)


def workspace_cases(ranks, variant):
    shape = {"dtype": "int32", "m": 40, "n": 272, "block_m": 32, "comm_sms": 5, "calls": 3, "reuse": True}
    return [
        CollectiveCase(op="all_reduce", **shape, variant=variant, async_op=asynchronous)
        for asynchronous in (True, False)
    ]


@requirement("CCL-ALLREDUCE-003", cases=workspace_cases, ranks=2, variant=("spinlock", "ring", "two_shot_push"))
def test_workspace(check, case):
    check(run_workspace, case)
