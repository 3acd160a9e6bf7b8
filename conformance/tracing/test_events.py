"""Kernels record events: what is in the buffers after a launch is what the kernels were told to record.

Every program brackets a put for each of its events. Each event takes a slot and a number of its own. Slots hold the
event's kind, program, the two numbers given by the caller, both ranks, the lowest address, the bytes that the mask
keeps (0 without a mask), where the program ran, and two times; the second is 0 for an event that was not ended.
Events for which there is no room are counted and not stored.

001  in Gluon, with ``IrisDeviceCtx``.
002  in Triton, with ``DeviceContext``.
"""

from collections import Counter

from conformance.tracing.traced import COLUMNS, LONG, NAMES, Traced
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import TraceCase


def run(env, case):
    found = Findings(env.rank)
    traced = Traced(env, case)
    tracing = traced.iris.tracing
    tracing.enable(max_events=case.room)
    with env.acting():
        traced.launch()
    env.settle()
    traced.moved(found)

    found.equal("trace_counter", int(tracing.trace_counter), case.count)
    found.equal("op_index_counter", int(tracing.op_index_counter), case.count)
    events, columns = traced.recorded()
    if case.room >= case.count:
        found.equal("events", events, traced.expected())
        found.equal("operation numbers", sorted(columns["op_index"]), list(range(case.count)))
    else:
        # Which ones find room is open.
        found.equal("how many events", len(events), case.room)
        strange = Counter(events) - Counter(traced.expected())
        found.equal("events that nobody recorded", sorted(strange), [])
        wrong = [number for number in columns["op_index"] if not 0 <= number < case.count]
        found.equal("operation numbers out of range", wrong, [])
        found.equal("how many operation numbers", len(set(columns["op_index"])), case.room)
    check_times(found, case, columns)
    dies = dict(zip(columns["pid"], columns["xcc_id"], strict=True))
    found.true(f"dies {dies}", all(0 <= die < 64 for die in dies.values()))
    found.true(f"compute units {columns['cu_id']}", all(0 <= unit < 1 << 16 for unit in columns["cu_id"]))
    env.settle()
    traced.iris.close()
    return found.first


def check_times(found, case, columns):
    """Starts are times; an ended event ends no earlier; the events of one program in one launch follow each other."""
    spans = {}
    rows = zip(columns["pid"], columns["pid_n"], columns["timestamp"], columns["duration_cycles"], strict=True)
    for program, number, start, end in rows:
        spans[program, number] = (start, end)
        found.true(f"timestamp {start}", start > 0)
        if case.ended:
            found.true(f"end {end} of an event that started at {start}", end >= start)
        else:
            found.equal("end of an event that was not ended", end, 0)
    for (program, number), (start, _) in spans.items():
        before = spans.get((program, number - 1))
        if before is not None:
            last = max(before)
            found.true(f"event {number} of program {program} at {start}, after {last}", start >= last)


def run_names(env, case):
    """Numbers and names, the buffers' types, and ``TraceEvent`` on the host."""
    found = Findings(env.rank)
    kinds = env.under_test.module.TraceEvent()
    for number, name in enumerate(NAMES):
        found.equal(f"int(TraceEvent().{name})", int(getattr(kinds, name)), number)
    iris = env.under_test.iris(heap_size=1 << 16)
    iris.tracing.enable(max_events=5)
    found.equal("names of the buffers", sorted(iris.tracing.trace_buffers), sorted(COLUMNS))
    for name in COLUMNS:
        buffer = iris.tracing.trace_buffers[name]
        found.equal(f"type of {name}", str(buffer.dtype), "torch.int64" if name in LONG else "torch.int32")
        found.equal(f"elements of {name}", buffer.numel(), 5)
        found.equal(f"device of {name}", buffer.device.type, env.device.torch_device.type)
        found.true(f"{name} is not on the heap", not iris.is_symmetric(buffer))
    env.settle()
    iris.close()
    return found.first


def gluon_cases(ranks, kernel):
    from harness.cases import strategies

    return strategies.traces(ranks, "gluon", kernel)


def triton_cases(ranks, kernel):
    from harness.cases import strategies

    return strategies.traces(ranks, "triton", kernel)


KERNELS = ("first", "last", "put")


@requirement("TRACE-EVENTS-001", cases=gluon_cases, weight=0.25, kernel=KERNELS)
def test_gluon(check, case):
    check(run, case)


@requirement("TRACE-EVENTS-002", cases=triton_cases, weight=0.25, kernel=KERNELS)
def test_triton(check, case):
    check(run, case)


@requirement("TRACE-NAMES-001", cases=lambda ranks: [TraceCase()])
def test_names(check, case):
    check(run_names, case)
