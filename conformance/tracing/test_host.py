"""The host side of tracing: what enable, reset and the attributes do, and which arguments are refused."""

import logging

import torch

from conformance.host.checks import run_named
from conformance.tracing.traced import COLUMNS, Traced
from fixtures.requirement import requirement
from harness.cases import HostCase, TraceCase

ENTRIES = 17


class Heard(logging.Handler):
    """The warnings of the library's logger, inside the with block."""

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


def check_disabled(env, found):
    iris = env.under_test.iris(heap_size=1 << 16)
    found.equal("enabled", iris.tracing.enabled, False)
    found.equal("max_events", iris.tracing.max_events, 0)
    for what, act in (("reset()", iris.tracing.reset), ("export()", iris.tracing.export)):
        with Heard(env) as messages:
            result = act()
        found.true(f"a warning of {what}: {messages}", any("not enabled" in message for message in messages))
        found.true(f"{what} returns nothing", not result)
    env.settle()
    iris.close()


def check_enable(env, found):
    iris = env.under_test.iris(heap_size=1 << 16)
    early = iris.get_device_context()
    before = early.tolist()
    tracing = iris.tracing
    tracing.enable(max_events=100)
    late = iris.get_device_context()
    found.equal("enabled", tracing.enabled, True)
    found.equal("max_events", tracing.max_events, 100)
    found.equal("trace_counter", tracing.trace_counter.tolist(), [0])
    found.equal("op_index_counter", tracing.op_index_counter.tolist(), [0])
    found.true("a new context tensor", late is not early)
    found.true("the same context tensor from then on", iris.get_device_context() is late)
    found.equal("the early context tensor", early.tolist(), before)
    found.equal("dtype of the context tensor", late.dtype, torch.int64)
    split = 2 + env.world_size
    found.equal("rank, world and heap bases", late[:split].tolist(), before[:split])
    found.equal("heap bases", late[2:split].tolist(), iris.get_heap_bases().tolist())
    wanted = [1, 100, tracing.trace_counter.data_ptr(), tracing.op_index_counter.data_ptr()]
    wanted += [tracing.trace_buffers[name].data_ptr() for name in COLUMNS]
    found.equal("entries about tracing", late[split:].tolist(), wanted)
    tracing.enable()
    found.equal("max_events by default", tracing.max_events, 1_000_000)
    tracing.enable(max_events=3)
    found.equal("max_events of another enable", tracing.max_events, 3)
    found.equal("elements of a buffer of another enable", tracing.trace_buffers["pid"].numel(), 3)
    found.equal("entry for maximum events", iris.get_device_context()[split + 1].item(), 3)
    env.settle()
    iris.close()


def check_arguments(env, found):
    iris = env.under_test.iris(heap_size=1 << 16)
    for bad in (0, -1, 2**31, 1.5, "5", True, None):
        found.raises(f"max_events={bad!r}", ValueError, lambda bad=bad: iris.tracing.enable(max_events=bad))
    found.equal("enabled after refused calls", iris.tracing.enabled, False)
    iris.tracing.enable(10)
    found.raises("unit='ms'", ValueError, lambda: iris.tracing.export("trace.json", unit="ms"))
    env.settle()
    iris.close()


def check_reset(env, found, form):
    """After reset slots are used again from the first, and hold nothing of their earlier events."""
    traced = Traced(env, TraceCase(form=form, kinds=(3, 5), grid=2, n=70, room=8, step=0))
    tracing = traced.iris.tracing
    tracing.enable(max_events=8)
    with env.acting():
        traced.launch()
        tracing.reset()
        found.equal("counters after reset", [int(tracing.trace_counter), int(tracing.op_index_counter)], [0, 0])
        traced.case = TraceCase(form=form, kinds=(1,), grid=1, n=10, room=8, step=0, masked=False, ended=False)
        traced.launch()
    env.settle()
    events, columns = traced.recorded()
    found.equal("events after reset", events, traced.expected())
    found.equal("operation numbers after reset", columns["op_index"], [0])
    found.equal("end of an event that was not ended", columns["duration_cycles"], [0])
    env.settle()
    traced.iris.close()


def check_enabled_again(env, found, form):
    """Each enable has buffers of its own: those of the one before keep what they hold, and get no more."""
    case = TraceCase(form=form, kinds=(3, 5), grid=2, n=70, step=0)
    traced = Traced(env, case)
    tracing = traced.iris.tracing
    tracing.enable(max_events=64)
    with env.acting():
        traced.launch()
    first = (traced.iris.get_device_context(), tracing.trace_counter, dict(tracing.trace_buffers))
    kept = {name: buffer.tolist() for name, buffer in first[2].items()}
    tracing.enable(max_events=2)
    found.equal("trace_counter of another enable", int(tracing.trace_counter), 0)
    with env.acting():
        traced.launch()
    found.equal("trace_counter", int(tracing.trace_counter), case.count)
    found.equal("events counted by the enable before", int(first[1]), case.count)
    found.equal("buffers of the enable before", {name: buffer.tolist() for name, buffer in first[2].items()}, kept)
    with env.acting():
        traced.launch(context=first[0])
    found.equal("events counted through the context tensor of the enable before", int(first[1]), 2 * case.count)
    env.settle()
    traced.iris.close()


CHECKS = {
    "disabled": check_disabled,
    "enable": check_enable,
    "arguments": check_arguments,
    "reset": check_reset,
    "enabled_again": check_enabled_again,
}


def run(env, case):
    return run_named(env, case, CHECKS)


def cases(ranks):
    plain = [HostCase(what) for what in ("disabled", "enable", "arguments")]
    return plain + [HostCase(what, (form,)) for what in ("reset", "enabled_again") for form in ("gluon", "triton")]


@requirement("TRACE-HOST-001", cases=cases)
def test_host(check, case):
    check(run, case)
