"""A collective's output is a payload: a third rank that acquires a member's flag sees the output on that member's heap.

Each member makes the call, sets a flag on its right neighbour with release at system scope, waits for that of its left
neighbour, and reads the left neighbour's output. Peers wrote parts of it: the call may not end on the member before
their writes are complete, and orders them before what the member does next, and so before the third rank's reads. Each
order of the flag occurs with each number of the reader's wavefronts, for outputs of nine elements to 64 KiB and more.
"""

from dataclasses import replace

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.collectives.calls import judge, moves, perform, prepare
from conformance.collectives.operations import COLLECTIVES, published
from fixtures import judged
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import of_name
from harness.oracles import gathered

READERS = {(5, 70): (False, 4), (3, 3): (True, 1), (5, 71): (True, 8), (63, 257): (False, 8), (5, 69): (False, 1),
           (3, 67): (True, 4)}  # fmt: skip
"""Whether the flag has acq_rel order, and the wavefronts of the kernel that announces and reads, by rows and columns of
the collective. The first three are for weak memory, the race detector, and weak memory again. Neither 16 divides a
size, nor is it 1: one kernel serves all."""
SPT = 1


@gluon.jit(do_not_specialize=["count", "left", "right", "stronger"])
def announcing_kernel(
    IrisDeviceCtx: gl.constexpr, context, output, flag, seen, count, left, right, stronger,
    SPT: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """Announce this rank's output to ``right``, wait for the announcement of ``left``, and copy ``count`` elements of
    that rank's output to ``seen``. The flag has acq_rel order if ``stronger`` is not 0, else release and acquire."""
    ctx = IrisDeviceCtx.initialize(context)
    if stronger:
        ctx.atomic_xchg(flag, 1, right, sem="acq_rel", scope="sys")
    else:
        ctx.atomic_xchg(flag, 1, right, sem="release", scope="sys")
    announced = 0  # with a poll before the loop, Triton 3.6 makes lanes of one wavefront pass the loop's barriers apart
    while announced == 0:
        if stronger:
            announced = ctx.atomic_add(flag, 0, ctx.cur_rank, sem="acq_rel", scope="sys")
        else:
            announced = ctx.atomic_add(flag, 0, ctx.cur_rank, sem="acquire", scope="sys")
    lane = gl.arange(0, SPT * LANES * WARPS, layout=gl.BlockedLayout([SPT], [LANES], [WARPS], [0]))
    for start in range(0, count, SPT * LANES * WARPS):
        mask = start + lane < count
        gl.store(seen + start + lane, ctx.load(output + start + lane, left, mask=mask), mask=mask)


def run(env, case):
    stronger, warps = READERS[case.m, case.n]
    me, ranks, here = env.rank, env.world_size, env.device.torch_device
    calls = prepare(env, case)
    [call] = calls
    free = max(region.stop for region in env.image.regions)
    flag = env.image.claim("flag of the left neighbour", -(-free // 1024) * 1024 + 1024, 1, torch.int32)
    env.image.fill(flag, torch.zeros(1, dtype=torch.int32))
    env.image.expected(flag).fill_(1)
    output = env.image.tensor(call.target)
    dtype = of_name(case.dtype)
    seen = torch.zeros(call.target.count, dtype=dtype, device=here)
    env.settle()
    outputs = perform(env, case, calls)
    with env.acting():
        announcing_kernel[(1,)](
            env.device_context, env.context, output, env.image.tensor(flag), seen, call.target.count,
            (me - 1) % ranks, (me + 1) % ranks, int(stronger), SPT, env.device.lanes, env.warps(warps),
            num_warps=env.warps(warps),
        )  # fmt: skip
    env.settle()
    findings = Findings(me)
    blank = torch.zeros(call.target.count, dtype=dtype)
    wanted = blank if call.wanted is None else call.wanted.cpu().flatten()
    results = gathered(torch.cat([wanted, torch.full((1,), call.wanted is not None, dtype=dtype)]).to(here)[None])
    of_left = results[(me - 1) % ranks].cpu()
    if of_left[-1]:
        findings.same("the left neighbour's output, read after its flag", seen.cpu(), of_left[:-1])
    return judge(env, case, calls, outputs, findings)


def cases(ranks, op):
    op = COLLECTIVES[op]
    plain = op.case(dtype="fp32", root=ranks - 1, comm_sms=1, async_op=True)
    kinds = [*(replace(plain, variant=variant.name) for variant in op.variants), *op.also_fast(plain, ranks)]
    kinds = kinds if judged.extended() else list(dict.fromkeys(map(published, kinds)))
    return [[replace(kind, m=rows, n=columns) for rows, columns in READERS] for kind in kinds]


@requirement("ORDER-COLLECTIVE-001", cases=cases, ranks=2, moves=moves, op=tuple(COLLECTIVES))
def test_collective_payload(check, case):
    check(run, case)
