"""Kernels record events: after a launch the buffers hold exactly the events that the kernels recorded.

Every program brackets a put with each of its events. Each event gets its own slot and number. A slot holds the event's
kind, the program, the two numbers passed by the caller, both ranks, the lowest address, the bytes that the mask keeps
(0 without a mask), the die and compute unit, and two times; the second time is 0 for an event that was not ended.
Events that do not fit in the buffers are counted but not stored, also where their number is beyond 2^31. The slots
hold other values before the launch.

001  in Gluon, with ``IrisDeviceCtx``.
002  in Triton, with ``DeviceContext``.
"""

from collections import Counter

import torch

from conformance.support.instances import release
from conformance.tracing.cases import TraceCase
from conformance.tracing.traced import COLUMNS, LONG, NAMES, Traced, overwrite
from fixtures.findings import Findings
from fixtures.requirement import requirement


def run(env, case):
    findings = Findings(env.rank)
    traced = Traced(env, case)
    tracing = traced.iris.tracing
    tracing.enable(max_events=case.room)
    env.in_library(overwrite, tracing)  # ``reset`` may leave earlier events in the slots
    with env.acting():
        traced.launch()
    env.settle()
    traced.moved(findings)

    findings.equal("trace_counter", int(tracing.trace_counter), traced.count)
    findings.equal("op_index_counter", int(tracing.op_index_counter), traced.count)
    events, columns = traced.recorded()
    if case.room >= traced.count:
        findings.equal("events", events, traced.expected())
        findings.equal("operation numbers", sorted(columns["op_index"]), list(range(traced.count)))
    else:
        # Any of the events may be the ones that are stored.
        findings.equal("number of events", len(events), case.room)
        strange = Counter(events) - Counter(traced.expected())
        findings.equal("events that no kernel recorded", sorted(strange), [])
        wrong = [number for number in columns["op_index"] if not 0 <= number < case.count]
        findings.equal("operation numbers out of range", wrong, [])
        findings.equal("number of distinct operation numbers", len(set(columns["op_index"])), case.room)
    check_times(findings, case, columns)
    dies = dict(zip(columns["pid"], columns["xcc_id"], strict=True))
    findings.true(f"dies {dies}", all(0 <= die < 64 for die in dies.values()))
    findings.true(f"compute units {columns['cu_id']}", all(0 <= unit < 1 << 16 for unit in columns["cu_id"]))
    env.settle()
    if case.wrapped:
        check_wrapped(env, findings, traced)
    release(traced.iris)
    return findings.first


def check_wrapped(env, findings, traced):
    """Check that events whose numbers are the last before 2^32 are counted, and neither stored nor ended."""
    tracing, count = traced.iris.tracing, traced.count
    tracing.enable(max_events=max(1, count))
    env.in_library(overwrite, tracing, -count)
    with env.acting():
        traced.launch()
    env.settle()
    findings.equal("trace_counter after 2^32 events", int(tracing.trace_counter), 0)
    for name in COLUMNS:
        buffer = tracing.trace_buffers[name]
        findings.same(f"{name} after events beyond 2^31", buffer, torch.full_like(buffer, -7))
    env.settle()


def check_times(findings, case, columns):
    """Check that starts are positive, that no event ends before its start, and that the events of one program in one
    launch follow each other."""
    spans = {}
    rows = zip(columns["pid"], columns["pid_n"], columns["timestamp"], columns["duration_cycles"], strict=True)
    for program, number, start, end in rows:
        spans[program, number] = (start, end)
        findings.true(f"timestamp {start}", start > 0)
        if case.ended:
            findings.true(f"end {end} of an event that started at {start}", end >= start)
        else:
            findings.equal("end of an event that was not ended", end, 0)
    for (program, number), (start, _) in spans.items():
        before = spans.get((program, number - 1))
        if before is not None:
            last = max(before)
            findings.true(f"event {number} of program {program} at {start}, after {last}", start >= last)


def run_names(env, case):
    """Check ``TraceEvent`` on the host: numbers and names; and the names, types and sizes of the buffers."""
    findings = Findings(env.rank)
    kinds = env.under_test.module.TraceEvent()
    for number, name in enumerate(NAMES):
        findings.equal(f"int(TraceEvent().{name})", int(getattr(kinds, name)), number)
    iris = env.under_test.iris(heap_size=1 << 16)
    iris.tracing.enable(max_events=5)
    findings.equal("names of the buffers", sorted(iris.tracing.trace_buffers), sorted(COLUMNS))
    for name in COLUMNS:
        buffer = iris.tracing.trace_buffers[name]
        findings.equal(f"type of {name}", str(buffer.dtype), "torch.int64" if name in LONG else "torch.int32")
        findings.equal(f"elements of {name}", buffer.numel(), 5)
        findings.equal(f"device of {name}", buffer.device.type, env.device.torch_device.type)
        findings.true(f"{name} is not on the heap", not iris.is_symmetric(buffer))
    env.settle()
    release(iris)
    return findings.first


def gluon_cases(ranks, kernel):
    from conformance.tracing import strategies

    return strategies.traces(ranks, "gluon", kernel)


def triton_cases(ranks, kernel):
    from conformance.tracing import strategies

    return strategies.traces(ranks, "triton", kernel)


KERNELS = ("first", "last", "put")


@requirement("TRACE-EVENTS-001", cases=gluon_cases, weight=0.25, kernel=KERNELS)
def test_gluon(check, case):
    check(run, case)


@requirement("TRACE-EVENTS-002", cases=triton_cases, weight=0.25, kernel=KERNELS)
def test_triton(check, case):
    check(run, case)


@requirement("TRACE-NAMES-001", cases=lambda ranks: [TraceCase()], one_process_on_gpus="")
def test_names(check, case):
    check(run_names, case)
