"""Collectives in device graphs: captured with async_op=True, replayed with other data.

Each step of the graph makes the next input from the last one and keeps a copy of the output, so that a replay whose
calls are not ordered by the stream shows. Nothing waits between the replays. Without async_op a capture is refused.
"""

from dataclasses import replace

import torch

from conformance.collectives.calls import config, invoke, prepare
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import COLLECTIVES, CollectiveCase, low_latency
from harness.oracles import bool_all

STEPS, REPLAYS = 4, 5


def run(env, case):
    found = Findings(env.rank)
    # One replay's worth of calls each: their inputs and results, on one pair of tensors.
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
        found.raises(
            "a capture without async_op",
            RuntimeError,
            lambda: _captured(lambda: invoke(env, replace(case, async_op=False), first, settings)),
        )
        graph = _captured(steps)
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
            # What others own is 0 here.
            wanted = call.wanted if call.before is None else call.wanted.where(call.wanted != call.before, 0)
            found.same(f"output of step {k % STEPS} of replay {k // STEPS}", result, wanted)
    return found.first


def _captured(enqueue):
    """A graph of what ``enqueue`` enqueues; the current stream is as before behind it."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    try:
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            enqueue()
    finally:
        torch.cuda.set_stream(stream)
    return graph


def cases(ranks, op):
    shape = {"dtype": "int32", "m": 40, "n": 272, "reuse": True, "async_op": True, "skewed": 0, "skew_ms": 5}
    variants = ("one_shot", "two_shot", "two_shot_push", "ring", "spinlock", "atomic") if op == "all_reduce" else ("",)
    return [
        CollectiveCase(op=op, **shape, in_place=op == "broadcast", root=1, variant=variant, gluon=gluon)
        for variant in variants
        for gluon in (False, True)
    ] + [
        CollectiveCase(
            op=op, **shape, in_place=op == "broadcast", root=1, variant=variants[0], gluon=gluon, protocol="ll"
        )
        for gluon in (False, True)
        if low_latency(op, ranks)
    ]


@requirement(
    "CCL-CAPTURE-001", cases=cases, device="gpu", because="the emulated device has no device graphs", op=COLLECTIVES
)
def test_captured(check, case):
    check(run, case)
