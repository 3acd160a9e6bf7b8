"""Collectives in device graphs: captured with async_op=True and replayed with other data, without synchronization.

Each step of the graph copies its input from a staging tensor and keeps a copy of the output, so that a replay fails if
the stream does not order its calls. A capture without async_op is refused.
"""

from dataclasses import replace

import torch

from conformance.collectives.calls import config, invoke, prepare
from conformance.collectives.graphs import captured
from conformance.collectives.operations import COLLECTIVES
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.oracles import bool_all

STEPS, REPLAYS = 4, 5


def run(env, case):
    findings = Findings(env.rank)
    # The inputs and results of all steps of all replays; every call uses the same pair of tensors.
    calls = prepare(env, replace(case, calls=STEPS * REPLAYS))
    first = calls[0]
    device = env.device.torch_device
    given = [None if call.given is None else call.given.to(device) for call in calls]
    staged = [None if value is None else torch.zeros_like(value) for value in given[:STEPS]]
    kept = [None if first.output is None else torch.zeros_like(first.output) for _ in range(STEPS)]
    results = []
    settings = config(env, case, env.world_size)

    def steps():
        for step in range(STEPS):
            if staged[step] is not None:
                first.input.copy_(staged[step])
            if first.before is not None:
                first.output.zero_()
            invoke(env, case, first, settings).wait()
            if kept[step] is not None:
                kept[step].copy_(first.output)

    with env.acting():
        steps()  # compiles
    env.settle()
    if not bool_all(env.fault is None):
        return None
    with env.acting():
        findings.raises(
            "a capture without async_op",
            RuntimeError,
            lambda: captured(lambda: invoke(env, replace(case, async_op=False), first, settings)),
        )
        graph = captured(steps)
        for replay in range(REPLAYS):
            env.late((case.skewed + replay) % env.world_size, case.skew_ms)
            for step in range(STEPS):
                if staged[step] is not None:
                    staged[step].copy_(given[replay * STEPS + step])
            graph.replay()
            results += [None if value is None else value.clone() for value in kept]
    env.settle()
    for k, (call, result) in enumerate(zip(calls, results, strict=False)):
        if call.wanted is not None:
            # The graph writes 0 into the elements that other members own.
            wanted = call.wanted if call.before is None else call.wanted.where(call.wanted != call.before, 0)
            findings.same(f"output of step {k % STEPS} of replay {k // STEPS}", result, wanted)
    return findings.first


def cases(ranks, op):
    op = COLLECTIVES[op]
    shape = {"dtype": "int32", "m": 24, "n": 136, "reuse": True, "async_op": True, "skewed": 0, "skew_ms": 5}
    languages = [op.case(**shape, root=1, gluon=gluon) for gluon in (False, True)]
    fast = [case for one in languages for case in op.also_fast(one, ranks)]
    return [replace(one, variant=variant.name) for variant in op.variants for one in languages] + fast


@requirement(
    "CCL-CAPTURE-001",
    cases=cases,
    device="gpu",
    because="the emulated device has no device graphs",
    op=COLLECTIVES,
    one_process="it captures work in a device graph of its process",
)
def test_captured(check, case):
    check(run, case)
