"""All 5 x 6 pairs of load and store cache modifiers compile, give right answers, and reach the compiled accesses.

On gfx942: a load with ".cg" carries nt, with ".cv" sc0 sc1; a store with ".cs" carries nt, with ".wt" sc0 sc1; the
other modifiers carry nothing, and no modifier is the default. A local access through a plain pointer may take the
buffer form, which adds sc0 to nt. A volatile load carries what Triton gives a plain
volatile load of such a pointer: sc0 sc1 with Triton 3.9, nothing with 3.6, which drops it.
"""

import importlib

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.isa.listing import bits_of
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness import isa
from harness.cases import TransferCase

LOADS = (None, "", ".ca", ".cg", ".cv")
STORES = (None, "", ".wb", ".cg", ".cs", ".wt")
LOAD_BITS = {".cg": ("nt",), ".cv": ("sc0", "sc1")}
STORE_BITS = {".cs": ("nt",), ".wt": ("sc0", "sc1")}
SIDES = {
    "put": ("local", "remote"),
    "get": ("remote", "local"),
    "copy": ("remote", "remote"),
    "load": ("remote", None),
    "store": (None, "remote"),
}
"""Where an op loads and where it stores; None: not by itself."""


def _run(op, env, case):
    wrong = importlib.import_module(f"conformance.rma.test_{op}").run(env, case)
    found = Findings(env.rank)
    loads, stores = SIDES[op]
    launches = env.launched()
    wanted_load = plain_volatile_bits(env) if case.volatile else LOAD_BITS.get(case.load_modifier, ())
    for launch in launches:
        if loads:
            _expect(
                found,
                f"{op} with load modifier {case.load_modifier!r}",
                bits_of(launch, "load", loads, 16),
                wanted_load,
                loads,
            )
        if stores:
            wanted = STORE_BITS.get(case.store_modifier, ())
            _expect(
                found,
                f"{op} with store modifier {case.store_modifier!r}",
                bits_of(launch, "store", stores, 16),
                wanted,
                stores,
            )
    return wrong or found.first


@gluon.jit(do_not_specialize=["steps"])
def plain_volatile_load(pointer, steps, SPT: gl.constexpr, LANES: gl.constexpr):
    """A volatile load of a pointer that was moved by an unknown number of 16-byte steps, as a translated one is."""
    offsets = gl.arange(0, SPT * LANES, layout=gl.BlockedLayout([SPT], [LANES], [1], [0]))
    values = gl.load(pointer + steps.to(gl.int64) * SPT + offsets, volatile=True)
    gl.store(pointer + offsets, values)


def plain_volatile_bits(env):
    """The cache bits that this Triton gives ``plain_volatile_load``, which the library must forward."""
    memory = torch.zeros(1024, dtype=torch.float32, device=env.device.torch_device)
    plain_volatile_load[(1,)](memory, 1, 4, env.device.lanes, num_warps=1)
    (launch,) = env.launched()
    loads = [
        access for access in isa.fingerprint(launch.listing).accesses if access.kind == "load" and access.width == 16
    ]
    (bits,) = {access.bits for access in loads if access.space == "global"}
    return bits


def _expect(found, what, got, wanted, where):
    """Exactly ``wanted``; where the access is local, the buffer form of it will do."""
    allowed = [{wanted}] if where == "remote" or wanted != ("nt",) else [{wanted}, {("sc0", "nt")}]
    if got not in allowed:
        found.note(f"cache bits of the {where} access: {what}", sorted(got), [wanted])


def run_put(env, case):
    return _run("put", env, case)


def run_get(env, case):
    return _run("get", env, case)


def run_copy(env, case):
    return _run("copy", env, case)


def run_load(env, case):
    return _run("load", env, case)


def run_store(env, case):
    return _run("store", env, case)


def cases(ranks, op):
    loads, stores = SIDES[op]
    shape = {
        "dtype": "fp32",
        "n": 256,
        "targets": tuple(((rank + 1) % ranks,) for rank in range(ranks)),
        "spt": 0,
        "mask": "none",
        "aligned": True,
    }
    pairs = [(load, store) for load in (LOADS if loads else (None,)) for store in (STORES if stores else (None,))]
    found = [TransferCase(**shape, load_modifier=load, store_modifier=store) for load, store in pairs]
    if op == "load":
        found.append(TransferCase(**shape, volatile=True))
    return found


@requirement("RMA-CACHE-001", cases=cases, op=tuple(SIDES))
def test_cache_modifiers(check, case, op):
    check({"put": run_put, "get": run_get, "copy": run_copy, "load": run_load, "store": run_store}[op], case)
