"""The parameters of every device operation: names, order and defaults, so that calls with positional arguments are
right.

The other requirements pass most arguments by name, and would not detect two parameters in the wrong order. The test
launches no kernel.
"""

import inspect

from conformance.support.cases import HostCase
from fixtures import judged
from fixtures.findings import Findings
from fixtures.requirement import requirement

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
"""As docs/spec/rma.md and atomics.md have them, without ``self``; DeviceContext adds ``hint=None`` at the end."""

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
"""As docs/spec/rma.md#functions and docs/spec/atomics.md#functions have them."""

TRACING = {
    "record_event_start": "event_id, target_rank, address, pid_m, pid_n, mask=None",
    "record_event_end": "handle",
}
"""As docs/spec/tracing.md#recording has them."""


CHECKED = (
    *(f"{context}.{name}" for context in ("IrisDeviceCtx", "DeviceContext") for name in METHODS), *FUNCTIONS,
    "gluon.GluonDeviceTracing", "device.triton.DeviceTracing",
)  # fmt: skip
"""The capabilities whose parameters are checked, if the library has them."""


def run(env, case):
    """Check what the library has; without an operation, the operation's own requirement is unsupported."""
    findings, absent = Findings(env.rank), case.arguments
    gluon, triton = env.device_context, env.under_test.triton_context
    _expect(env, findings, "IrisDeviceCtx", gluon, {"initialize": "context_tensor, tracing=False"})
    _expect(env, findings, "DeviceContext", triton, {"initialize": "context_tensor, rank, world_size, tracing=False"})
    for label, context, last in (("IrisDeviceCtx", gluon, ""), ("DeviceContext", triton, ", hint=None")):
        held = {name: wanted for name, wanted in METHODS.items() if f"{label}.{name}" not in absent}
        _expect(env, findings, label, context, {name: f"self, {wanted}{last}" for name, wanted in held.items()})
    for module, name in (("gluon", "GluonDeviceTracing"), ("device.triton", "DeviceTracing")):
        if f"{module}.{name}" in absent:
            continue
        recorder = getattr(env.module(f".{module}"), name)
        _expect(env, findings, name, recorder, {method: f"self, {wanted}" for method, wanted in TRACING.items()})
    for name, wanted in FUNCTIONS.items():
        if name in absent:
            continue
        findings.equal(
            f"parameters of the function {name}", env.in_library(parameters, env.under_test.function(name)), wanted
        )
    return findings.first


def _expect(env, findings, label, owner, methods):
    for name, wanted in methods.items():
        findings.equal(f"parameters of {label}.{name}", env.in_library(parameters, getattr(owner, name)), wanted)


def parameters(env, function):
    """Return the parameters of a jitted function as text, as ``"a, b=None"``, without annotations, which may differ."""
    parameters = inspect.signature(function.fn).parameters.values()
    return ", ".join(str(each.replace(annotation=inspect.Parameter.empty)) for each in parameters)


@requirement("DEVICE-SIGNATURE-001", cases=lambda ranks: [HostCase("signatures", judged.absent(CHECKED))])
def test_signatures(check, case):
    check(run, case)
