"""The host side of tracing: enable, reset, the attributes, and refused arguments."""

import logging

import torch

from conformance.host.checks import run_named
from conformance.support.cases import HostCase
from conformance.support.instances import release
from conformance.tracing.cases import TraceCase
from conformance.tracing.traced import COLUMNS, Traced
from fixtures import judged
from fixtures.addresses import address_of
from fixtures.requirement import requirement

ENTRIES = 17


class Warnings(logging.Handler):
    """Handler that collects the warnings of the library's logger inside the ``with`` block."""

    def __init__(self, env):
        super().__init__(logging.WARNING)
        self._logger = env.under_test.module.logger
        self.messages = []

    def emit(self, record):
        self.messages.append(record.getMessage())

    def __enter__(self):
        self._logger.addHandler(self)
        return self.messages

    def __exit__(self, *_):
        self._logger.removeHandler(self)


def with_warnings(env, act):
    """Return what ``act`` returns, and the warnings of the library's logger meanwhile."""
    with Warnings(env) as messages:
        return act(), messages


def check_disabled(env, findings):
    iris = env.under_test.iris(heap_size=1 << 16)
    findings.equal("enabled", iris.tracing.enabled, False)
    findings.equal("max_events", iris.tracing.max_events, 0)
    for label, act in (("reset()", iris.tracing.reset), ("export()", iris.tracing.export)):
        result, messages = env.in_library(with_warnings, act)
        findings.true(f"a warning of {label}: {messages}", any("not enabled" in message for message in messages))
        findings.true(f"{label} returns an empty result", not result)
    env.settle()
    release(iris)


def check_enable(env, findings):
    iris = env.under_test.iris(heap_size=1 << 16)
    early = iris.get_device_context()
    before = early.tolist()
    tracing = iris.tracing
    tracing.enable(max_events=100)
    late = iris.get_device_context()
    findings.equal("enabled", tracing.enabled, True)
    findings.equal("max_events", tracing.max_events, 100)
    findings.equal("trace_counter", tracing.trace_counter.tolist(), [0])
    findings.equal("op_index_counter", tracing.op_index_counter.tolist(), [0])
    findings.true("a new context tensor", late is not early)
    findings.true("the same context tensor from then on", iris.get_device_context() is late)
    findings.equal("the early context tensor", early.tolist(), before)
    findings.equal("dtype of the context tensor", late.dtype, torch.int64)
    split = 2 + env.world_size
    findings.equal("rank, world and heap bases", late[:split].tolist(), before[:split])
    findings.equal("heap bases", late[2:split].tolist(), iris.get_heap_bases().tolist())
    wanted = [1, 100, address_of(tracing.trace_counter), address_of(tracing.op_index_counter)]
    wanted += [address_of(tracing.trace_buffers[name]) for name in COLUMNS]
    findings.equal("entries about tracing", late[split:].tolist(), wanted)
    tracing.enable()
    findings.equal("max_events by default", tracing.max_events, 1_000_000)
    tracing.enable(max_events=3)
    findings.equal("max_events of another enable", tracing.max_events, 3)
    findings.equal("elements of a buffer of another enable", tracing.trace_buffers["pid"].numel(), 3)
    findings.equal("entry for maximum events", iris.get_device_context()[split + 1].item(), 3)
    env.settle()
    release(iris)


def check_arguments(env, findings):
    iris = env.under_test.iris(heap_size=1 << 16)
    for bad in (0, -1, 2**31, 1.5, "5", True, None):
        findings.raises(f"max_events={bad!r}", ValueError, lambda bad=bad: iris.tracing.enable(max_events=bad))
    findings.equal("enabled after refused calls", iris.tracing.enabled, False)
    iris.tracing.enable(10)
    findings.raises("unit='ms'", ValueError, lambda: iris.tracing.export("trace.json", unit="ms"))
    env.settle()
    release(iris)


def check_reset(env, findings, form):
    """Check that after reset the slots are used again from the first, without data of earlier events."""
    traced = Traced(env, TraceCase(form=form, kinds=(3,), grid=4, n=70, room=8, step=0))
    tracing = traced.iris.tracing
    tracing.enable(max_events=8)
    with env.acting():
        traced.launch()
        tracing.reset()
        findings.equal("counters after reset", [int(tracing.trace_counter), int(tracing.op_index_counter)], [0, 0])
        traced.case = TraceCase(form=form, kinds=(1,), grid=1, n=10, room=8, step=0, masked=False, ended=False)
        traced.launch()
    env.settle()
    events, columns = traced.recorded()
    findings.equal("events after reset", events, traced.expected())
    findings.equal("operation numbers after reset", columns["op_index"], [0] * traced.count)
    findings.equal("end of an event that was not ended", columns["duration_cycles"], [0] * traced.count)
    env.settle()
    release(traced.iris)


def check_enabled_again(env, findings, form):
    """Check that each enable creates new buffers: those of an earlier enable keep their events and get no new ones."""
    case = TraceCase(form=form, kinds=(3,), grid=4, n=70, step=0)
    traced = Traced(env, case)
    tracing = traced.iris.tracing
    tracing.enable(max_events=64)
    with env.acting():
        traced.launch()
    first = (traced.iris.get_device_context(), tracing.trace_counter, dict(tracing.trace_buffers))
    kept = {name: buffer.tolist() for name, buffer in first[2].items()}
    tracing.enable(max_events=2)
    findings.equal("trace_counter of another enable", int(tracing.trace_counter), 0)
    with env.acting():
        traced.launch()
    findings.equal("trace_counter", int(tracing.trace_counter), case.count)
    findings.equal("events counted by the previous enable", int(first[1]), case.count)
    findings.equal("buffers of the previous enable", {name: buffer.tolist() for name, buffer in first[2].items()}, kept)
    with env.acting():
        traced.launch(context=first[0])
    findings.equal("events counted through the context tensor of the previous enable", int(first[1]), 2 * case.count)
    env.settle()
    release(traced.iris)


def allocate_beside(env, tracing):
    """Allocate a tensor like each buffer. ``tracing`` holds them: a judge apart reads them there after the launch."""
    tracing.beside = {name: torch.full_like(buffer, -7) for name, buffer in tracing.trace_buffers.items()}


def check_kept(env, findings):
    """Check that a context tensor keeps the buffers that it points to: a kernel that is passed it after another enable
    writes neither into freed memory nor into a newer tensor."""
    traced = Traced(env, TraceCase(grid=4, n=70, step=0))
    tracing = traced.iris.tracing
    tracing.enable(max_events=64)
    first = traced.iris.get_device_context()
    tracing.enable(max_events=64)
    env.in_library(allocate_beside, tracing)
    env.settle()
    with env.acting():
        traced.launch(context=first)
    env.settle()
    traced.moved(findings)
    findings.equal("trace_counter of another enable", int(tracing.trace_counter), 0)
    for name, other in tracing.beside.items():
        findings.same(f"a tensor like {name}, allocated after another enable", other, torch.full_like(other, -7))
    env.settle()
    release(traced.iris)


CHECKS = {
    "disabled": check_disabled,
    "enable": check_enable,
    "arguments": check_arguments,
    "reset": check_reset,
    "enabled_again": check_enabled_again,
    "kept": check_kept,
}


def run(env, case):
    return run_named(env, case, CHECKS)


def cases(ranks):
    plain = [HostCase(label) for label in ("disabled", "enable", "arguments")]
    if judged.extended():
        plain.append(HostCase("kept"))
    return plain + [HostCase(label, (form,)) for label in ("reset", "enabled_again") for form in ("gluon", "triton")]


@requirement("TRACE-HOST-001", cases=cases)
def test_host(check, case):
    check(run, case)
