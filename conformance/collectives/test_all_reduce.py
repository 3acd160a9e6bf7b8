"""Properties of all_reduce only. CCL-ALLREDUCE-001 is in ``test_operations.py``.

002  ring, atomic and spinlock give the same results; atomic only for reductions that have an atomic operation. Directly
     before and after the calls of a case comes one with elements of another size, which divides the group's memory
     otherwise: a member that ends a call too early then uses memory that another one still reads.
003  One workspace can be used for many calls. A workspace that is too small is refused, and one for another variant is
     replaced. Members need not pass the same one.
"""

from dataclasses import replace

from conformance.collectives.calls import config, expect, fill, judge, party_of, perform, prepare, prepare_further
from conformance.collectives.cases import CollectiveCase
from conformance.collectives.code import check_code
from fixtures.findings import Findings
from fixtures.requirement import requirement


def accumulating_cases(ranks, variant):
    from conformance.collectives.strategies import accumulations

    return accumulations(ranks, variant)


def run_between(env, case, around):
    """Run the calls of a case between two others, with no synchronization. ``around``: fields of the others' case with
    their values, where they differ from ``case``."""
    findings, other = Findings(env.rank), replace(case, **dict(around))
    calls, others = prepare(env, case), prepare_further(env, other, case)
    env.settle()
    before = perform(env, other, others[:1])
    outputs = perform(env, case, calls, findings=findings)
    after = perform(env, other, others[1:])
    env.settle()
    for call, output in zip(others, [*before, *after], strict=env.fault is None):
        findings.same("output of the call before or after", output, call.wanted)
        expect(env, other, call)
    mismatch, party = judge(env, case, calls, outputs, findings), party_of(env, case)
    return mismatch or (check_code(env, case, party.place, party.size) if env.fault is None else None)


@requirement("CCL-ALLREDUCE-002", cases=accumulating_cases, weight=2.0, variant=("ring", "atomic", "spinlock"))
def test_accumulating_variants(check, case):
    from conformance.collectives.strategies import neighbour

    other = vars(neighbour(check.ranks, case))
    check(run_between, case, around=tuple((k, v) for k, v in other.items() if v != getattr(case, k)))


FEW_ROWS = 7
"""Rows of a part of the matrices, which needs less memory."""


def run_workspace(env, case):
    """Use one workspace for all calls, with changing data and no synchronization; then for calls it does not fit.

    In a call before these, one member passes a workspace that was prepared before the group's memory grew, and the
    others pass none.
    """
    findings, ccl = Findings(env.rank), env.iris.ccl
    calls = prepare(env, case)
    first = calls[0]
    settings = config(env, case, env.world_size)
    finer = config(env, replace(case, block_m=4), env.world_size)
    other = config(env, replace(case, variant="two_shot"), env.world_size)
    env.settle()
    outputs = []
    with env.acting():
        part = first.output[:FEW_ROWS], first.input[:FEW_ROWS]
        early = ccl.all_reduce_preamble(*part, config=settings)
        workspace = ccl.all_reduce_preamble(first.output, first.input, config=settings)
        own = early if env.rank == env.world_size - 1 else None
        ccl.all_reduce(*part, async_op=case.async_op, config=settings, workspace=own).wait()
        name = "output of a call in which one member passes an earlier workspace, and the others none"
        findings.same(name, part[0].clone(), first.wanted[:FEW_ROWS])
        findings.equal("variant of the workspace", workspace.variant, case.variant)
        findings.equal("workspace.prepared after the preamble", workspace.prepared, True)
        again = ccl.all_reduce_preamble(first.output, first.input, config=settings, workspace=workspace)
        findings.true("a second preamble returns the same workspace", again is workspace)
        for k, call in enumerate(calls):
            if k:
                fill(call)
            used = ccl.all_reduce(call.output, call.input, async_op=case.async_op, config=settings, workspace=workspace)
            findings.true(f"call {k} returns the workspace that was passed", used is workspace)
            outputs.append(call.output.clone())
            used.wait()
        workspace.synchronize()
        findings.equal("is_completed() after synchronize()", workspace.is_completed(), True)
        findings.equal("workspace.prepared after the calls", workspace.prepared, True)
        findings.raises(
            "a call with more tiles than the workspace was prepared for",
            ValueError,
            lambda: ccl.all_reduce(first.output, first.input, config=finer, workspace=workspace),
            says="array too small",
        )
        replaced = ccl.all_reduce(first.output, first.input, config=other, workspace=workspace)
        findings.equal("variant of the workspace that replaces one of another variant", replaced.variant, "two_shot")
    env.settle()
    return judge(env, case, calls, outputs, findings) or check_code(env, case, env.rank, env.world_size)


def workspace_cases(ranks, variant):
    # Ragged tiles in both dimensions, of kernels that other requirements have too.
    shape = {"dtype": "fp32", "m": 39, "n": 262, "warps": 2, "comm_sms": 16, "calls": 3, "reuse": True}
    return [
        CollectiveCase(op="all_reduce", **shape, variant=variant, async_op=asynchronous)
        for asynchronous in (True, False)
    ]


@requirement("CCL-ALLREDUCE-003", cases=workspace_cases, ranks=2, variant=("spinlock", "ring", "two_shot_push"))
def test_workspace(check, case):
    check(run_workspace, case)
