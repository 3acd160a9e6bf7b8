"""all_gather(output (W*M, N), input (M, N), group, async_op, config): everybody's rows, stacked by group rank, on
everybody.

001  Every shape, stride, block size, kernel, variant, group and number of calls gives what torch.distributed's
     all_gather gives; padding between rows and all other memory stay as they were. Calls may follow each other without
     anything in between.
002  With async_op=False no rank returns before everybody's rows have arrived, also when one comes late; nor, with a
     group, before every rank of the world has called.
003  Wrong shapes and configurations are refused; where one rank alone is wrong, the others are told and do not wait.
"""

import torch

from conformance.collectives.gather import expect, fill, prepare
from conformance.rma.test_load import read_word
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import ALL, GatherCase, HostCase, members_of, payload, rounds_needed
from harness.oracles import gathered

MARK = 600 * 1024


def run(env, case):
    found = None
    for round_ in range(rounds_needed(case.dtype, case.calls * env.world_size * case.m * case.n)):
        found = _round(env, case, round_) or found
    return found


def _round(env, case, round_):
    calls, group = prepare(env, case, round_)
    env.settle()
    found = None
    with env.acting():
        for k, call in enumerate(calls):
            env.late(case.skewed, case.skew_ms)
            env.iris.ccl.all_gather(
                call.output, call.input, group=group, async_op=case.async_op, config=_config(env, case)
            )
            if case.reuse:
                # The caller's own synchronisation: inputs and outputs are about to be written again.
                env.settle()
                expect(env, call, case)
                found = found or env.image.difference()
                env.settle()
                if k + 1 < case.calls:
                    fill(env, calls[k + 1], _rows_of(env, case, round_, k + 1), case)
                    env.settle()
    env.settle()
    for call in calls if not case.reuse else calls[-1:]:
        expect(env, call, case)
    return found or env.image.difference()


def _rows_of(env, case, round_, k):
    return payload(case.dtype, case.m * case.n, rank=env.rank, ranks=env.world_size, round_=round_, repetition=k).view(
        case.m, case.n
    )


def _config(env, case):
    if case.default:
        return None
    served = len(members_of(case.group, env.rank, env.world_size)) if case.variant == "partitioned" else 1
    return env.under_test.config(
        block_size_m=case.block_m, block_size_n=case.block_n, swizzle_size=case.swizzle,
        comm_sms=case.comm_sms * served, num_warps=env.warps(case.warps), use_gluon=case.gluon,
        all_gather_variant=case.variant, threads_per_warp=env.device.lanes,
    )  # fmt: skip


def cases(ranks, dtype):
    from harness.cases import strategies

    return strategies.gathers(ranks, dtype)


@requirement("CCL-ALLGATHER-001", cases=cases, dtype=("fp16", *(name for name in ALL if name != "fp16")))
def test_all_gather(check, case):
    check(run, case)


def run_late(env, case):
    """Who is not late looks at its output as soon as the call returns, and at the marks that all ranks set before."""
    (call,), group = prepare(env, case, 0)
    mark = env.image.claim("mark", MARK, 1, torch.int32)
    env.image.fill(mark, torch.zeros(1, dtype=torch.int32))
    env.settle()
    seen, marks = None, []
    with env.acting():
        env.late(case.skewed, case.skew_ms)
        env.image.fill(mark, torch.ones(1, dtype=torch.int32))
        env.iris.ccl.all_gather(call.output, call.input, group=group, config=_config(env, case))
        seen = call.output.clone()
        marks = [read_word(env, rank, MARK) for rank in range(env.world_size)]
    env.settle()
    expect(env, call, case)
    found = Findings(env.rank)
    found.same("the output when all_gather returned", seen, call.wanted)
    found.equal("ranks of the world that had called when all_gather returned", marks, [1] * env.world_size)
    return found.first or env.image.difference()


def late_cases(ranks):
    shape = {"dtype": "int32", "m": 5, "n": 70, "warps": 1, "skew_ms": 60}
    return [
        GatherCase(**shape, skewed=late, group=group) for late in range(min(ranks, 3)) for group in ("world", "stride")
    ]


@requirement("CCL-ALLGATHER-002", cases=late_cases, ranks=2)
def test_all_gather_waits(check, case):
    check(run_late, case)


def run_refused(env, case):
    """Each call is refused on every rank before it moves anything."""
    config, found, iris = env.under_test.config, Findings(env.rank), env.iris
    env.image.reset()
    env.settle()
    members = len(members_of("world", env.rank, env.world_size))
    source = env.image.arena[4096:].view(torch.int32)[: 8 * 64].view(8, 64)
    target = env.image.arena[65536:].view(torch.int32)[: members * 8 * 64].view(members * 8, 64)
    found.raises("rows short of one", ValueError, lambda: iris.ccl.all_gather(target[:-1], source))
    found.raises("columns short of one", ValueError, lambda: iris.ccl.all_gather(target[:, :-1], source))
    for what, output, given in (
        ("another dtype", target.view(torch.float32), source),
        ("one dimension", target.view(-1), source.view(-1)),
        ("an output off the heap", torch.empty(target.shape, dtype=target.dtype, device=target.device), source),
    ):
        found.raises(what, ValueError, lambda output=output, given=given: iris.ccl.all_gather(output, given))
    small, odd = (
        config(block_size_m=1, block_size_n=64, use_gluon=True),
        config(block_size_m=3, block_size_n=64, use_gluon=True),
    )
    found.raises(
        "a tile smaller than the work-group", ValueError, lambda: iris.ccl.all_gather(target, source, config=small)
    )
    found.raises(
        "a tile that is no multiple of the work-group",
        ValueError,
        lambda: iris.ccl.all_gather(target, source, config=odd),
    )
    parted = config(use_gluon=True, all_gather_variant="partitioned", comm_sms=env.world_size * 4)
    found.raises("partitioned in Gluon", ValueError, lambda: iris.ccl.all_gather(target, source, config=parted))
    if env.world_size > 1:
        uneven = config(all_gather_variant="partitioned", comm_sms=env.world_size * 4 + 1)
        found.raises(
            "programs that are no multiple of the group",
            ValueError,
            lambda: iris.ccl.all_gather(target, source, config=uneven),
        )
    changed = config()
    changed.all_gather_variant = "ring"
    found.raises(
        "a variant that was assigned later", ValueError, lambda: iris.ccl.all_gather(target, source, config=changed)
    )
    env.settle()
    return found.first or env.image.difference()


def run_alone(env, case):
    """The last rank is wrong, the others are right. Behind it a right call of all."""
    found = Findings(env.rank)
    iris = env.under_test.iris(heap_size=1 << 16)
    source = iris.full((8, 64), env.rank + 1, dtype=torch.int32)
    target = iris.zeros(8 * env.world_size, 64, dtype=torch.int32)
    if env.rank == env.world_size - 1:
        found.raises("rows short of one, here alone", ValueError, lambda: iris.ccl.all_gather(target[:-1], source))
    else:
        found.raises("the right call beside it", RuntimeError, lambda: iris.ccl.all_gather(target, source))
    with env.acting():
        iris.ccl.all_gather(target, source)
    found.same("the output of the next call", target, gathered(source))
    env.settle()
    iris.close()
    return found.first


def refused_cases(ranks):
    return [HostCase("refused"), *([HostCase("alone")] if ranks > 1 else [])]


@requirement("CCL-ALLGATHER-003", cases=refused_cases)
def test_all_gather_refuses(check, case):
    check({"refused": run_refused, "alone": run_alone}[case.what], case)
