"""Fields of a kernel's context, in Gluon and in Triton: this rank, the world size, and each rank's heap base."""

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.support.cases import HostCase
from fixtures.findings import Findings
from fixtures.requirement import requirement


@gluon.jit
def gluon_fields(IrisDeviceCtx: gl.constexpr, context_tensor, out, RANKS: gl.constexpr):
    """Write [rank, world size, base of rank 0, base of rank 1, ...] into ``out``."""
    ctx = IrisDeviceCtx.initialize(context_tensor)
    gl.store(out, ctx.cur_rank.to(gl.int64))
    gl.store(out + 1, ctx.num_ranks.to(gl.int64))
    for rank in range(RANKS):
        gl.store(out + 2 + rank, gl.load(ctx.heap_bases + rank))


@triton.jit
def triton_fields(
    DeviceContext: tl.constexpr, context_tensor, out, rank: tl.constexpr, world_size: tl.constexpr, RANKS: tl.constexpr
):
    """See ``gluon_fields``; rank and world size are compile-time values here."""
    ctx = DeviceContext.initialize(context_tensor, rank, world_size)
    tl.static_assert(ctx.rank < ctx.world_size)
    tl.store(out, ctx.rank)
    tl.store(out + 1, ctx.world_size)
    for peer in range(RANKS):
        tl.store(out + 2 + peer, tl.load(ctx.heap_bases + peer))


def run(env, case):
    findings = Findings(env.rank)
    wanted = torch.tensor([env.rank, env.world_size, *env.iris.get_heap_bases().tolist()], dtype=torch.int64)
    outs = {name: torch.full_like(wanted, -1, device=env.device.torch_device) for name in ("Gluon", "Triton")}
    with env.acting():
        gluon_fields[(1,)](env.device_context, env.context, outs["Gluon"], env.world_size, num_warps=1)
        if env.rank == env.world_size - 1:  # each rank would compile its own kernel
            triton_fields[(1,)](
                env.under_test.triton_context, env.context, outs["Triton"],
                env.rank, env.world_size, env.world_size, num_warps=1,
            )  # fmt: skip
        else:
            del outs["Triton"]
    env.settle()
    for name, out in outs.items():
        findings.same(f"rank, world and bases in {name}", out.cpu(), wanted)
    return findings.first


@requirement("HOST-CONTEXT-002", cases=lambda ranks: [HostCase("fields")], one_process_on_gpus="")
def test_context_fields(check, case):
    check(run, case)
