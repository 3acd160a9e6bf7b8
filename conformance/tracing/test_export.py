"""export(filename, merge, unit): writes recorded events to a file that Perfetto's trace processor accepts completely.

The test reads the file by the rules of the trace processor (``harness.oracles.perfetto``): no event may be dropped, and
the slices must be the events in the buffers, each on a thread of its rank. With merge, rank 0 writes the events of all
ranks into one file. If one rank cannot write its file, every rank gets an error.
"""

import json
import tempfile
from collections import Counter
from pathlib import Path

import torch.distributed as dist
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.runtime import driver

from conformance.host.checks import run_named
from conformance.support.cases import HostCase, alike
from conformance.support.instances import release
from conformance.tracing.cases import TraceCase
from conformance.tracing.traced import COLUMNS, NAMES, Traced
from fixtures import judged
from fixtures.requirement import requirement
from harness.oracles import perfetto

HERTZ = {"hip": 100_000_000, "cuda": 1_000_000_000}
COUNTED = 2**31 + 10
"""Events begun by the kernels of a long run; the counter has 32 bits."""
NUMBERS = ("pid_m", "pid_n", "target_rank", "op_index", "payload_size", "xcc_id", "cu_id")


@gluon.jit
def crossed_kernel(IrisDeviceCtx: gl.constexpr, context_tensor, data):
    """Record two events that overlap partially (the first one ends first) and, inside both, an event without an end."""
    ctx = IrisDeviceCtx.initialize(context_tensor, tracing=True)
    program = gl.program_id(0)
    first = ctx.tracing.record_event_start(0, ctx.cur_rank, data, program, 0)
    second = ctx.tracing.record_event_start(1, ctx.cur_rank, data, program, 1)
    ctx.tracing.record_event_start(200, ctx.cur_rank, data, program, 2)
    ctx.tracing.record_event_end(first)
    ctx.tracing.record_event_end(second)


class Folder:
    """Temporary folder that all ranks share inside the ``with`` block. Every rank must enter and leave it."""

    def __init__(self, env):
        self._env = env
        self._folder = tempfile.TemporaryDirectory() if env.rank == 0 else None

    def __enter__(self):
        name = [self._folder.name if self._folder else ""]
        dist.broadcast_object_list(name, src=0)
        return Path(name[0])

    def __exit__(self, *_):
        self._env.settle()
        if self._folder:
            self._folder.cleanup()


def backend(env):
    """Return Triton's name of the device's kind."""
    return driver.active.get_current_target().backend


def rows(env, tracing, unit):
    """Return the expected slices of this rank's events: (process, name, duration in nanoseconds, arguments)."""
    count = min(int(tracing.trace_counter), tracing.max_events)
    columns = {name: tracing.trace_buffers[name][:count].tolist() for name in COLUMNS}
    per_tick = 1000 if unit == "cycles" else 1_000_000_000 // HERTZ[env.in_library(backend)]
    events = []
    for i in range(count):
        name = (
            NAMES[columns["event_id"][i]] if columns["event_id"][i] < len(NAMES) else f"event {columns['event_id'][i]}"
        )
        end = columns["duration_cycles"][i]
        extent = per_tick * (end - columns["timestamp"][i]) if end else 0
        arguments = {name: columns[name][i] for name in NUMBERS} | {"address": f"{columns['address'][i]:#x}"}
        events.append((f"rank {env.rank}", name, extent, tuple(sorted(arguments.items()))))
    return events


def expect_file(findings, label, path, trace, wanted):
    """Check that ``path`` holds ``trace``, that Perfetto accepts all of it, and that its slices are ``wanted``. Return
    the slices."""
    if not path.is_file():
        findings.note(f"{label}: {path.name}", "no file", "a file")
        return []
    text = path.read_text()
    findings.equal(f"{label}: the file equals the returned trace", json.loads(text) == trace, True)
    slices, problems = perfetto.load(text)
    for kind in ("process", "thread"):
        named, placed = (
            {(event["pid"], event["tid"]) for event in trace["traceEvents"] if event["name"] == f"{kind}_{suffix}"}
            for suffix in ("name", "sort_index")
        )
        findings.equal(f"{label}: places in the order without a {kind}", sorted(placed - named), [])
    findings.equal(f"{label}: problems", problems[:3], [])
    got = Counter((s.process, s.name, s.dur, s.arguments) for s in slices)
    findings.equal(f"{label}: events missing", sorted((Counter(wanted) - got).elements())[:2], [])
    findings.equal(f"{label}: events added", sorted((got - Counter(wanted)).elements())[:2], [])
    if slices:
        findings.equal(f"{label}: time of the first event", min(s.ts for s in slices), 0)
    threads = {}
    for s in slices:
        threads.setdefault(s.process, set()).add(s.thread)
    findings.true(f"{label}: threads {threads}", all(all(names) for names in threads.values()))
    return slices


def gathered(rows_of_rank):
    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, rows_of_rank)
    return [row for part in parts for row in part]


def check_files(env, findings, form, unit, room, counts_on):
    kinds = (3, 5, 13) if form == "gluon" else (3,)  # which all ranks record, see ``TraceCase.acts``
    case = TraceCase(form=form, kinds=kinds, grid=3, n=150, launches=6 // len(kinds), room=room)
    traced = Traced(env, case)
    tracing = traced.iris.tracing
    tracing.enable(max_events=room)
    with env.acting():
        traced.launch()
    env.settle()
    wanted = rows(env, tracing, unit)
    with Folder(env) as folder:
        own = tracing.export(str(folder / "own.json"), unit=unit)
        expect_file(findings, "own file", folder / f"own_rank{env.rank}.json", own, wanted)
        merged = tracing.export(folder / "all.json", merge=True, unit=unit)
        env.settle()
        everyone = gathered(wanted)
        expect_own = folder / f"all_rank{env.rank}.json"
        findings.true(f"{expect_own.name} next to the merged file", expect_own.is_file())
        if env.rank == 0:
            expect_file(findings, "merged file", folder / "all.json", merged, everyone)
            lost = {f"rank {rank}": max(0, case.count - room) for rank in range(env.world_size)}
            findings.equal("events left out", merged["otherData"]["events left out"], lost)
        else:
            findings.equal("export(merge=True) elsewhere than on rank 0", merged, {})
        if room <= case.count and counts_on:
            # The kernels have begun more than 2^31 events, and the first ones are stored.
            env.in_library(count_on, tracing, COUNTED - 2**32)
            late = tracing.export(folder / "late.json", unit=unit)
            label = "file after 2^31 events"
            expect_file(findings, label, folder / f"late_rank{env.rank}.json", late, wanted)
            lost = {f"rank {env.rank}": COUNTED - room}
            findings.equal(f"events left out of the {label}", late["otherData"]["events left out"], lost)
    release(traced.iris)


def count_on(env, tracing, counter):
    tracing.trace_counter.fill_(counter)


def end_together(env, tracing):
    """Give all events that have an end the last one."""
    ends = tracing.trace_buffers["duration_cycles"]
    ends[ends != 0] = int(ends.max())


def check_crossed(env, findings):
    """Check that the file has all events: partial overlaps, instants, unknown kinds, and concurrent programs."""
    iris = env.under_test.iris(heap_size=1 << 16)
    data = iris.zeros(4, dtype=iris.get_heap_bases().dtype)
    iris.tracing.enable(max_events=100)
    with env.acting():
        for _ in range(2):
            crossed_kernel[(4,)](env.device_context, iris.get_device_context(), data, num_warps=1)
    env.settle()
    with Folder(env) as folder:
        trace = iris.tracing.export(folder / "crossed.json")
        wanted = rows(env, iris.tracing, "cycles")
        findings.equal("events", len(wanted), 24)
        expect_file(findings, "crossed", folder / f"crossed_rank{env.rank}.json", trace, wanted)
        # The same events with one end for all: they nest, so a program needs one thread.
        env.in_library(end_together, iris.tracing)
        trace = iris.tracing.export(folder / "nested.json")
        wanted = rows(env, iris.tracing, "cycles")
        slices = expect_file(findings, "nested", folder / f"nested_rank{env.rank}.json", trace, wanted)
        programs = {dict(s.arguments)["pid_m"]: set() for s in slices}
        for s in slices:
            programs[dict(s.arguments)["pid_m"]].add(s.thread)
        findings.equal("threads of each program whose events nest", {len(each) for each in programs.values()}, {1})
    release(iris)


def check_partly(env, findings):
    """Check merged exports while not every rank has tracing enabled: first the last rank only, then all but rank 1. The
    others warn, and no rank waits."""
    case = TraceCase(kinds=(3,), grid=2, n=10, step=0)
    traced = Traced(env, case)
    tracing, last = traced.iris.tracing, env.world_size - 1
    with Folder(env) as folder:
        for name, ranks in (("partly", {last}), ("mostly", {0, *range(2, last), last})):
            if env.rank in ranks and not tracing.enabled:
                tracing.enable(max_events=10)
            with env.acting():
                traced.launch()
            env.settle()
            wanted = gathered(rows(env, tracing, "cycles") if env.rank in ranks else [])
            merged = tracing.export(folder / f"{name}.json", merge=True)
            env.settle()
            files = sorted(path.name for path in folder.glob(f"{name}*"))
            findings.equal("files", files, [f"{name}.json", *(f"{name}_rank{rank}.json" for rank in sorted(ranks))])
            if env.rank == 0:
                expect_file(findings, name, folder / f"{name}.json", merged, wanted)
            env.settle()
    release(traced.iris)


def check_unwritable(env, findings):
    """Check that a missing folder gives OSError; if it is missing on one rank only, the others get a RuntimeError."""
    iris = env.under_test.iris(heap_size=1 << 16)
    iris.tracing.enable(max_events=10)
    with Folder(env) as folder:
        findings.raises("export to a missing folder", OSError, lambda: iris.tracing.export(folder / "no" / "x.json"))
        bad = env.world_size - 1
        path = folder / ("no" if env.rank == bad else ".") / "x.json"
        kind = OSError if env.rank == bad else RuntimeError
        findings.raises(
            "merged export, one rank to a missing folder", kind, lambda: iris.tracing.export(path, merge=True),
            says="" if env.rank == bad else str(bad),
        )  # fmt: skip
        taken = folder / "taken.json"
        if env.rank == 0:
            taken.mkdir()
        env.settle()
        kind = OSError if env.rank == 0 else RuntimeError
        findings.raises("merged export onto a folder", kind, lambda: iris.tracing.export(taken, merge=True))
        trace = iris.tracing.export(folder / "empty.json")
        expect_file(findings, "no events", folder / f"empty_rank{env.rank}.json", trace, [])
    release(iris)


CHECKS = {"files": check_files, "crossed": check_crossed, "partly": check_partly, "unwritable": check_unwritable}


def run(env, case):
    return run_named(env, case, CHECKS)


def cases(ranks):
    files = [
        HostCase("files", (*arguments, judged.extended()))
        for arguments in (("gluon", "cycles", 64), ("triton", "us", 18), ("gluon", "us", 7))
    ]
    if any(alike()):
        return [*files, HostCase("crossed")]
    return [*files, HostCase("crossed"), HostCase("partly"), HostCase("unwritable")]


@requirement("TRACE-EXPORT-001", cases=cases)
def test_export(check, case):
    check(run, case)
