"""All 5 x 6 pairs of load and store cache modifiers compile, give right answers, and reach the compiled accesses.

What each modifier looks like, in amdgcn, PTX and the machine code of NVIDIA GPUs, is in ``conformance.isa.targets``;
no modifier is the default. A local access through a plain pointer on an AMD GPU may take the buffer form, which adds
sc0 to nt. What Triton itself drops in some version (a volatile load on AMD GPUs and ".cv" on NVIDIA's, both in Triton
3.6), the library cannot forward: there the access must carry what a plain load of such a pointer does.

001  in Gluon. 002  in Triton, with ``DeviceContext``, and 003 with the functions: each modifier once, since they are
     forwarded one by one.
"""

import importlib
from functools import partial
from itertools import product, zip_longest

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.isa.listing import bits_of
from conformance.isa.targets import LOADS, PLAIN, STORES
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness import isa
from harness.cases import TransferCase

LOAD_MODIFIERS = (None, "", ".ca", ".cg", ".cv")
STORE_MODIFIERS = (None, "", ".wb", ".cg", ".cs", ".wt")
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
    for launch in env.launched():
        for code in isa.codes_of(launch):
            if loads:
                modifier = "volatile" if case.volatile else case.load_modifier
                wanted = LOADS[code.language].get(modifier, ())
                if wanted is PLAIN:
                    wanted = plain_bits(env, code.language, case.load_modifier, case.volatile)
                expect_bits(found, code, "load", loads, modifier, wanted)
            if stores:
                wanted = STORES[code.language].get(case.store_modifier, ())
                expect_bits(found, code, "store", stores, case.store_modifier, wanted)
    return wrong or found.first


@gluon.jit(do_not_specialize=["steps"])
def plain_load(pointer, steps, SPT: gl.constexpr, LANES: gl.constexpr, MODIFIER: gl.constexpr, VOLATILE: gl.constexpr):
    """Loads from a pointer that was moved by an unknown number of 16-byte steps, as a translated one is."""
    offsets = gl.arange(0, SPT * LANES, layout=gl.BlockedLayout([SPT], [LANES], [1], [0]))
    moved = pointer + steps.to(gl.int64) * SPT + offsets
    gl.store(pointer + offsets, gl.load(moved, cache_modifier=MODIFIER, volatile=VOLATILE))


def plain_bits(env, language, modifier, volatile):
    """The words that this Triton gives ``plain_load``, which the library must forward."""
    memory = torch.zeros(1024, dtype=torch.float32, device=env.device.torch_device)
    plain_load[(1,)](memory, 1, 4, env.device.lanes, modifier, volatile, num_warps=1)
    (launch,) = env.launched()
    (code,) = (code for code in isa.codes_of(launch) if code.language == language)
    (bits,) = {a.bits for a in code.accesses if (a.kind, a.width, a.space) == ("load", 16, "global")}
    return bits


def expect_bits(found, code, kind, where, modifier, wanted):
    """Exactly ``wanted``; where the access is local, amdgcn's buffer form of it will do."""
    got = bits_of(code, kind, where, 16)
    allowed = [{wanted}] if where == "remote" or wanted != ("nt",) else [{wanted}, {("sc0", "nt")}]
    if got not in allowed:
        what = f"cache words of the {where} {kind} with modifier {modifier!r} in {code.language}"
        found.note(what, sorted(got), [wanted])


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


RUNS = {"put": run_put, "get": run_get, "copy": run_copy, "load": run_load, "store": run_store}


def cases(ranks, op):
    """Every pair."""
    loads, stores = SIDES[op]
    pairs = product(LOAD_MODIFIERS if loads else (None,), STORE_MODIFIERS if stores else (None,))
    return modified(ranks, op, "gluon", pairs)


def triton_cases(ranks, op, form):
    """Every modifier."""
    loads, stores = SIDES[op]
    pairs = zip_longest(LOAD_MODIFIERS if loads else (), STORE_MODIFIERS if stores else ())
    return modified(ranks, op, form, pairs)


def modified(ranks, op, form, pairs):
    """A case for each pair of modifiers, and for a load that is volatile."""
    shape = {
        "form": form,
        "dtype": "fp32",
        "n": 256,
        "targets": tuple(((rank + 1) % ranks,) for rank in range(ranks)),
        "spt": 0,
        "mask": "none",
        "aligned": True,
    }
    found = [TransferCase(**shape, load_modifier=load, store_modifier=store) for load, store in pairs]
    if op == "load":
        found.append(TransferCase(**shape, volatile=True))
    return found


@requirement("RMA-CACHE-001", cases=cases, op=tuple(SIDES))
def test_cache_modifiers(check, case, op):
    check(RUNS[op], case)


@requirement("RMA-CACHE-002", cases=partial(triton_cases, form="context"), op=tuple(SIDES))
def test_cache_modifiers_by_context(check, case, op):
    check(RUNS[op], case)


@requirement("RMA-CACHE-003", cases=partial(triton_cases, form="function"), op=tuple(SIDES))
def test_cache_modifiers_by_function(check, case, op):
    check(RUNS[op], case)
