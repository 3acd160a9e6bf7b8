"""Tracing: what is compiled for targets that are not here, the life of buffers, and the form of the files.

The conformance suite (conformance/tracing) runs traced kernels.
"""

from __future__ import annotations

import gc
import json
import shutil
import subprocess
import tempfile
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from triton.runtime import driver

from conformance.tracing import traced
from harness import isa
from harness.isa.compile_only import target
from harness.oracles import perfetto
from iris_under_test import DeviceContext, iris
from iris_under_test.gluon import IrisDeviceCtx
from iris_under_test.host.tracing.export import COLUMNS, Recording, as_trace, nested_lanes, write_json
from tests.iris.ranks import run_checks

TARGETS = {"gfx942": ("hip", "gfx942", 64), "gfx950": ("hip", "gfx950", 64), "sm_90": ("cuda", 90, 32)}
EACH_TARGET = [name if name == "gfx942" else pytest.param(name, marks=pytest.mark.nightly) for name in TARGETS]


def compiled(name: str, form: str, *, plain: bool = False, tracing: bool = False) -> isa.Fingerprint:
    """A put that is traced, or not, for a target."""
    backend, arch, lanes = TARGETS[name]
    context, data = torch.zeros(64, dtype=torch.int64), torch.zeros(4096, dtype=torch.float16)
    with target(backend, arch):
        arguments = (context, data, data, 1000, 2048, 1, 0)
        if form == "gluon":
            kernel = traced.gluon_plain if plain else traced.gluon_traced
            code = kernel[(1,)](IrisDeviceCtx, *arguments, tracing, (3,), True, True, 8, lanes, 4, num_warps=4)
        else:
            kernel = traced.triton_plain if plain else traced.triton_traced
            code = kernel[(1,)](DeviceContext, *arguments, 0, 2, tracing, (3,), True, True, 2048, num_warps=4)
        return isa.fingerprint(code.asm["ptx" if backend == "cuda" else "amdgcn"])


@pytest.mark.parametrize("form", ["gluon", "triton"])
@pytest.mark.parametrize("name", EACH_TARGET)
def test_without_tracing_calls_to_record_leave_no_trace_in_the_code(name, form):
    plain = compiled(name, form, plain=True)
    assert compiled(name, form).sha256 == plain.sha256
    with_tracing = compiled(name, form, tracing=True)
    assert with_tracing.sha256 != plain.sha256
    assert not with_tracing.vgpr_spills


@pytest.mark.parametrize("form", ["gluon", "triton"])
@pytest.mark.parametrize("name", EACH_TARGET)
def test_tracing_orders_nothing(name, form):
    """A missing release in the traced code must not be hidden by one in the tracing of it."""
    code = compiled(name, form, tracing=True)
    if code.language == "amdgcn":
        assert (code.writebacks, code.invalidates) == ({}, {})
    else:
        assert not code.fences
        assert {access.bits for access in code.accesses if access.kind == "atomic"} == {("gpu", "relaxed")}


# The host, on a rank without a device


def buffers_live_as_long_as_a_context_tensor(ctx, rank, num_ranks):
    registered = driver.active.registered
    before = set(registered)
    ctx.tracing.enable(max_events=10)
    (first,) = set(registered) - before
    assert registered[first] == (8 + 10 * 64, None)
    early = ctx.get_device_context()
    ctx.tracing.enable(max_events=10)
    assert len(set(registered) - before) == 2
    assert early[2 + num_ranks + 2] == first
    del early
    gc.collect()
    assert first not in registered
    assert len(set(registered) - before) == 1


def an_instance_goes_with_its_last_reference(ctx, rank, num_ranks):
    other = iris(1 << 20)
    before = set(driver.active.registered)
    other.tracing.enable(max_events=10)
    tracing, gone = other.tracing, weakref.ref(other)
    gc.disable()
    try:
        other.close()
        del other
        assert gone() is None
    finally:
        gc.enable()
    assert not set(driver.active.registered) - before
    with pytest.raises(RuntimeError, match="was deleted"):
        tracing.enable(max_events=10)


def a_merged_export_fails_on_every_rank_when_one_has_no_instance(ctx, rank, num_ranks):
    other = iris(1 << 20)
    other.tracing.enable(max_events=10)
    tracing = other.tracing
    if rank == 0:
        other.close()
        del other
    says = "was deleted" if rank == 0 else r"ranks \[0\]"
    with tempfile.TemporaryDirectory() as folder, pytest.raises(RuntimeError, match=says):
        tracing.export(f"{folder}/trace.json", merge=True)


CHECKS = [
    buffers_live_as_long_as_a_context_tensor,
    an_instance_goes_with_its_last_reference,
    a_merged_export_fails_on_every_rank_when_one_has_no_instance,
]


@pytest.fixture(scope="module")
def outcome():
    return run_checks(CHECKS, num_ranks=2, heap_size=1 << 20, emulated=False)


@pytest.mark.parametrize("check", [check.__name__ for check in CHECKS])
def test_on_ranks(outcome, check):
    assert outcome[check] == ""


# The file


def recording(rank: int, events: list[tuple[int, int, int]], dropped: int = 0) -> Recording:
    """``events``: (program, start, end), in ticks of 10 ns."""
    columns = {name: np.zeros(len(events), np.int64) for name in COLUMNS}
    for name, place in (("pid", 0), ("timestamp", 1), ("duration_cycles", 2)):
        columns[name][:] = [event[place] for event in events]
    return Recording(rank, columns, dropped, 100_000_000)


SPANS = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 40), st.integers(0, 20)), max_size=30)


@given(st.lists(SPANS, min_size=1, max_size=3), st.sampled_from(["cycles", "us"]))
def test_every_event_reaches_the_trace(ranks, unit):
    """Whatever overlaps whatever: Perfetto drops nothing, and times are those of the clock from the first event."""
    events = [[(program, start, start + extent) for program, start, extent in spans] for spans in ranks]
    trace = as_trace([recording(rank, spans) for rank, spans in enumerate(events)], unit)
    slices, problems = perfetto.load(json.dumps(trace))
    assert problems == []
    per_tick = 1000 if unit == "cycles" else 10
    first = min((start for spans in events for _, start, _ in spans), default=0)
    wanted = sorted(
        (f"rank {rank}", (start - first) * per_tick, (end - start) * per_tick)
        for rank, spans in enumerate(events)
        for _, start, end in spans
    )
    assert sorted((s.process, s.ts, s.dur) for s in slices) == wanted


def test_lanes():
    assert nested_lanes([(0, 9), (2, 5), (4, 12), (9, 11), (12, 13)]) == [0, 0, 1, 0, 0]
    assert nested_lanes([(1, 3), (1, 3), (2, 2), (3, 3)]) == [0, 0, 0, 0]


def test_events_of_one_start_nest_on_one_thread():
    trace = as_trace([recording(0, [(0, 1, 5), (0, 1, 9), (0, 1, 7)])], "cycles")
    slices, problems = perfetto.load(json.dumps(trace))
    assert problems == []
    assert [(s.thread, s.dur, s.depth) for s in slices] == [
        ("program 0", 8000, 0), ("program 0", 6000, 1), ("program 0", 4000, 2),
    ]  # fmt: skip


def test_clocks_that_count_from_1970_stay_within_what_perfetto_reads(tmp_path):
    now = 1_795_000_000 * 10**9
    one = Recording(0, recording(0, [(0, now, now + 500)]).columns, 0, 1_000_000_000)
    trace = write_json(tmp_path / "trace.json", as_trace([one], "us"))
    slices, problems = perfetto.load((tmp_path / "trace.json").read_text())
    assert problems == [] and [(s.ts, s.dur) for s in slices] == [(0, 500)]
    assert trace["otherData"]["clock at ts 0"] == now


@pytest.mark.skipif(shutil.which("trace_processor_shell") is None, reason="needs Perfetto's trace_processor_shell")
def test_perfettos_own_trace_processor_gives_the_same_slices(tmp_path):
    path, query = tmp_path / "trace.json", tmp_path / "query.sql"
    spans = [(0, 1, 9), (0, 2, 5), (0, 4, 12), (1, 3, 3), (1, 3, 8)]
    write_json(path, as_trace([recording(0, spans), recording(1, spans)], "us"))
    query.write_text(perfetto.SLICES_QUERY)
    done = subprocess.run(
        ["trace_processor_shell", "-q", query, path], capture_output=True, text=True, check=True, timeout=60
    )
    rows = [line.replace('"', "").split(",") for line in done.stdout.splitlines() if line][1:]
    slices, _ = perfetto.load(path.read_text())
    assert rows == [[s.process, s.thread, s.name, str(s.ts), str(s.dur), str(s.depth)] for s in slices]
