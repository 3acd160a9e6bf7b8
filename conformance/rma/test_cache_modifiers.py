"""Load and store cache modifiers compile, give right results, and reach the compiled accesses.

``conformance.isa.targets`` lists how each modifier appears in amdgcn, PTX and the machine code of NVIDIA GPUs; None is
no modifier. A local access through a plain pointer on an AMD GPU may use the buffer form, which adds sc0 to nt. The
library cannot forward a modifier that Triton itself drops (a volatile load on AMD GPUs and ".cv" on NVIDIA's, both in
Triton 3.6): then the access must have the cache words of a plain load of such a pointer.

001  in Gluon. 002  in Triton, with ``DeviceContext``, and 003 with the functions. Every op has all its modifiers in
     one of them, and so has every pair of a load and a store modifier with some op. In each, every modifier occurs with
     some op, and every op has modifiers that change the compiled accesses: an op that drops one or swaps them is found.
"""

import functools
from functools import partial

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.isa.targets import LOADS, PLAIN, STORES, wrong_bits
from conformance.rma import transfer
from conformance.rma.cases import TransferCase
from conformance.rma.operations import TRANSFERS
from conformance.support.forms import FORMS, neighbours
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness import isa
from harness.cases.covering import covering

LOAD_MODIFIERS = (None, "", ".ca", ".cg", ".cv", "volatile")
STORE_MODIFIERS = (None, "", ".wb", ".cg", ".cs", ".wt")


def takes(row):
    """Return whether the op takes such modifiers; None is none, and volatile is another argument."""
    op = TRANSFERS[row["op"]]
    loads = op.volatile if row["load"] == "volatile" else op.loads or row["load"] is None
    return bool(loads) and bool(op.stores or row["store"] is None)


SHOWN = (".cg", "volatile"), (".cs", ".wt")
"""Modifiers of loads and of stores that change the compiled accesses on every GPU, if Triton does not drop them."""


@functools.cache
def modifiers():
    """Return the combinations of op, form and modifiers: every pair, and each op in each form with what is shown."""

    parameters = {"op": tuple(TRANSFERS), "form": FORMS, "load": LOAD_MODIFIERS, "store": STORE_MODIFIERS}
    shown = {
        "shown load": lambda row: row["load"] if row["load"] in SHOWN[0] else None,
        "shown store": lambda row: row["store"] in SHOWN[1],
    }
    return covering(parameters, also=[("op", "form", which) for which in shown], derived=shown, valid=takes)


def run(env, case, op):
    wrong = transfer.run(env, case, op)
    findings = Findings(env.rank)
    loads, stores = TRANSFERS[op].loads, TRANSFERS[op].stores
    for launch in env.launched():
        for code in isa.codes_of(launch):
            if loads:
                modifier = "volatile" if case.volatile else case.load_modifier
                wanted = LOADS[code.language].get(modifier, ())
                if wanted is PLAIN:
                    wanted = plain_bits(env, code.language, case.load_modifier, case.volatile)
                expect_bits(findings, code, "load", loads, modifier, wanted)
            if stores:
                wanted = STORES[code.language].get(case.store_modifier, ())
                expect_bits(findings, code, "store", stores, case.store_modifier, wanted)
    return wrong or findings.first


@gluon.jit(do_not_specialize=["steps"])
def plain_load(pointer, steps, SPT: gl.constexpr, LANES: gl.constexpr, MODIFIER: gl.constexpr, VOLATILE: gl.constexpr):
    """Load from a pointer that is an unknown number of 16-byte steps away, like a translated pointer."""
    offsets = gl.arange(0, SPT * LANES, layout=gl.BlockedLayout([SPT], [LANES], [1], [0]))
    moved = pointer + steps.to(gl.int64) * SPT + offsets
    gl.store(pointer + offsets, gl.load(moved, cache_modifier=MODIFIER, volatile=VOLATILE))


def plain_bits(env, language, modifier, volatile):
    """Return the cache words that the installed Triton gives ``plain_load``; the library's access must have the
    same."""
    memory = torch.zeros(1024, dtype=torch.float32, device=env.device.torch_device)
    plain_load[(1,)](memory, 1, 4, env.device.lanes, modifier, volatile, num_warps=1)
    (launch,) = env.launched()
    (code,) = (code for code in isa.codes_of(launch) if code.language == language)
    (bits,) = {a.bits for a in code.accesses if (a.kind, a.width, a.space) == ("load", 16, "global")}
    return bits


def expect_bits(findings, code, kind, where, modifier, wanted):
    """Check that the accesses have exactly the cache words ``wanted``, or for a local one those of the buffer form."""
    got = wrong_bits(code, kind, where, wanted)
    if got is not None:
        label = f"cache words of the {where} {kind} with modifier {modifier!r} in {code.language}"
        findings.note(label, got, [wanted])


def cases(ranks, op, form):
    """Return the op's part of the covering array."""
    listed = []
    for number, row in enumerate(row for row in modifiers() if (row["op"], row["form"]) == (op, form)):
        load = {"volatile": True} if row["load"] == "volatile" else {"load_modifier": row["load"]}
        case = TransferCase(
            form=form, dtype="fp32", n=256, targets=neighbours(ranks, form, number), spt=0, mask="none", aligned=True,
            store_modifier=row["store"], **load,
        )  # fmt: skip
        listed.append(case)
    return listed


@requirement("RMA-CACHE-001", cases=partial(cases, form="gluon"), op=tuple(TRANSFERS))
def test_cache_modifiers(check, case, op):
    check(run, case, op=op)


@requirement("RMA-CACHE-002", cases=partial(cases, form="context"), op=tuple(TRANSFERS))
def test_cache_modifiers_by_context(check, case, op):
    check(run, case, op=op)


@requirement("RMA-CACHE-003", cases=partial(cases, form="function"), op=tuple(TRANSFERS))
def test_cache_modifiers_by_function(check, case, op):
    check(run, case, op=op)
