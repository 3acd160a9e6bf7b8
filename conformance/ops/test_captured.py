"""Fused products in device graphs: captured with async_op=True and replayed with other data, without synchronization.

Each step of the graph copies its inputs from staging tensors and keeps a copy of the output, so that a replay fails if
the stream does not order its calls. A capture without async_op, or with a workspace that is not prepared, is refused.
"""

from dataclasses import replace

import torch

from conformance.collectives.graphs import captured
from conformance.ops.cases import FusedCase
from conformance.ops.operations import PRODUCTS
from conformance.ops.products import config, inputs_of, invoke, owned, prepare, wanted_of
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.oracles import bool_all

STEPS, REPLAYS = 3, 5


def run(env, case):
    findings, product, device = Findings(env.rank), prepare(env, case), env.device.torch_device
    given = [inputs_of(env, case, product, k) for k in range(STEPS * REPLAYS)]
    wanted = [wanted_of(env, case, product, values) for values in given]
    on_device = [{name: value.to(device, product.tensors[name].dtype) for name, value in one.items()} for one in given]
    staged = [{name: torch.zeros_like(value) for name, value in on_device[0].items()} for _ in range(STEPS)]
    kept = [torch.zeros_like(product.tensors["c"]) for _ in range(STEPS)]
    ops, settings, results, workspaces = env.iris.ops, config(env, case), [], []
    env.settle()

    def steps():
        for step in range(STEPS):
            for name, value in staged[step].items():
                product.tensors[name].copy_(value.view(product.tensors[name].shape))
            product.tensors["c"].zero_()
            invoke(case, product, settings, workspaces[0], ops).wait()
            kept[step].copy_(product.tensors["c"])

    with env.acting():
        fresh = env.under_test.module.ops.FusedWorkspace()
        matrices = (product.tensors[name] for name in "cab")
        workspaces.append(getattr(ops, f"{case.op}_preamble")(*matrices, config=settings))
        steps()  # compiles
    env.settle()
    if not bool_all(env.fault is None):
        return None
    with env.acting():
        for label, waiting, workspace in (("async_op", False, workspaces[0]), ("a preamble", True, fresh)):
            attempt = replace(case, async_op=waiting)
            findings.raises(
                f"a capture without {label}",
                RuntimeError,
                lambda a=attempt, w=workspace: captured(lambda: invoke(a, product, settings, w, ops)),
            )
        graph = captured(steps)
        for replay in range(REPLAYS):
            env.late((case.skewed + replay) % env.world_size, case.skew_ms)
            for step in range(STEPS):
                for name, value in staged[step].items():
                    value.copy_(on_device[replay * STEPS + step][name])
            graph.replay()
            results += [value.clone() for value in kept]
    env.settle()
    mine = owned(env, case)
    for k, (one, result) in enumerate(zip(wanted, results, strict=False)):
        held = one if mine is None else torch.where(mine, one, torch.zeros_like(one))
        findings.same(f"output of step {k % STEPS} of replay {k // STEPS}", result.cpu(), held)
    if bool_all(env.fault is None):
        workspaces[0].clear()
    return findings.first


def cases(ranks, op):
    return [
        FusedCase(op, m=33, n=48, k=48, biased=True, async_op=True, skewed=0, skew_ms=5, variant=variant)
        for variant in PRODUCTS[op].variants
    ]


@requirement(
    "FUSED-CAPTURE-001",
    cases=cases,
    device="gpu",
    because="the emulated device has no device graphs",
    one_process="it captures work in a device graph of its process",
    op=tuple(PRODUCTS),
)
def test_captured(check, case):
    check(run, case)
