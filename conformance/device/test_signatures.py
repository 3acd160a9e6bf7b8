"""The parameters of every device operation: names, order and defaults, so that calls by position mean what they say.

The other requirements pass most arguments by name, where two that changed places would not be seen. Nothing is
launched.
"""

import importlib
import inspect

from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import HostCase

RMW = ("add", "sub", "xchg", "xor", "and", "or", "min", "max")
BOTH_SIDES = "mask=None, other=None, load_cache_modifier=None, store_cache_modifier=None"

METHODS = {
    "load": "pointer, from_rank, mask=None, other=None, cache_modifier=None, volatile=False",
    "store": "pointer, value, to_rank, mask=None, cache_modifier=None",
    "get": f"from_ptr, to_ptr, from_rank, {BOTH_SIDES}",
    "put": f"from_ptr, to_ptr, to_rank, {BOTH_SIDES}",
    "copy": f"src_ptr, dst_ptr, from_rank, to_rank, {BOTH_SIDES}",
    "atomic_cas": "pointer, cmp, val, to_rank, sem=None, scope=None",
} | {f"atomic_{op}": "pointer, val, to_rank, mask=None, sem=None, scope=None" for op in RMW}
"""Iris API, section 7, without ``self``; section 8 adds ``hint=None`` at the end."""

FUNCTIONS = {
    "load": "pointer, to_rank, from_rank, heap_bases, mask=None, other=None, cache_modifier=None, volatile=False, "
    "hint=None",
    "store": "pointer, value, from_rank, to_rank, heap_bases, mask=None, hint=None, cache_modifier=None",
    "get": f"from_ptr, to_ptr, from_rank, to_rank, heap_bases, {BOTH_SIDES}, hint=None",
    "put": f"from_ptr, to_ptr, from_rank, to_rank, heap_bases, {BOTH_SIDES}, hint=None",
    "copy": f"src_ptr, dst_ptr, from_rank, to_rank, cur_rank, heap_bases, {BOTH_SIDES}, hint=None",
    "atomic_cas": "pointer, cmp, val, from_rank, to_rank, heap_bases, sem=None, scope=None, hint=None",
} | {
    f"atomic_{op}": "pointer, val, from_rank, to_rank, heap_bases, mask=None, sem=None, scope=None, hint=None"
    for op in RMW
}
"""Iris API, section 8."""

TRACING = {
    "record_event_start": "event_id, target_rank, address, pid_m, pid_n, mask=None",
    "record_event_end": "handle",
}
"""Iris API, section 6."""


def run(env, case):
    found = Findings(env.rank)
    gluon, triton = env.device_context, env.under_test.triton_context
    _expect(found, gluon, {"initialize": "context_tensor, tracing=False"})
    _expect(found, triton, {"initialize": "context_tensor, rank, world_size, tracing=False"})
    _expect(found, gluon, {name: f"self, {wanted}" for name, wanted in METHODS.items()})
    _expect(found, triton, {name: f"self, {wanted}, hint=None" for name, wanted in METHODS.items()})
    package = env.under_test.name
    for module, name in (("gluon", "GluonDeviceTracing"), ("device.triton", "DeviceTracing")):
        recorder = getattr(importlib.import_module(f"{package}.{module}"), name)
        _expect(found, recorder, {name: f"self, {wanted}" for name, wanted in TRACING.items()})
    for name, wanted in FUNCTIONS.items():
        found.equal(f"parameters of the function {name}", _parameters(env.under_test.function(name)), wanted)
    return found.first


def _expect(found, owner, methods):
    for name, wanted in methods.items():
        found.equal(f"parameters of {owner.__name__}.{name}", _parameters(getattr(owner, name)), wanted)


def _parameters(function):
    """``"a, b=None"`` of a jitted function, whose annotations may differ."""
    parameters = inspect.signature(function.fn).parameters.values()
    return ", ".join(str(each.replace(annotation=inspect.Parameter.empty)) for each in parameters)


@requirement("DEVICE-SIGNATURE-001", cases=lambda ranks: [HostCase("signatures")])
def test_signatures(check, case):
    check(run, case)
