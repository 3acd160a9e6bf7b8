"""The memory that a fused product takes besides its operands: its workspace.

repeated  A product that is called again with equal arguments, and without a workspace, needs no more memory.
reused    A workspace of another instance serves a call, and so does one whose memory was overwritten before
          ``reset``; ``clear`` gives all of it back.
full      A product that finds the heap full can be called again when there is room.
dropped   An instance that has run a product without a workspace is released with its last reference.
programs  A product that may have a program for each of more than a thousand tiles leaves the memory of another group
          unchanged: barriers of that group work before and after it.

All products have the kernels of FUSED-EDGES-001.
"""

import contextlib
import gc
import weakref
from dataclasses import replace

import torch

from conformance.ops.cases import FusedCase
from conformance.ops.held import held_cases
from conformance.ops.operations import PRODUCTS
from conformance.ops.products import (
    Product,
    config,
    inputs_of,
    invoke,
    judge,
    owned,
    prepare,
    refill,
    shapes_of,
    wanted_of,
)
from conformance.support.cases import HostCase
from conformance.support.instances import release
from conformance.support.room import held
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.oracles import bool_all

CALLS = 3
LARGER, HEAP, SMALLER = 1 << 24, 1 << 19, 1 << 18
MANY = 11_025
"""Columns that make more than a thousand tiles."""
BEFORE, SPOILED = -99, 3


def run(env, case):
    findings, product = Findings(env.rank), prepare(env, case)
    values = inputs_of(env, case, product, 0)
    wanted, outputs, rooms = wanted_of(env, case, product, values), [], []
    for name, value in values.items():
        product.tensors[name].copy_(value.view(product.tensors[name].shape))
    env.settle()
    with env.acting():
        for _ in range(CALLS):
            workspace = invoke(case, product, config(env, case), None, env.iris.ops)
            rooms.append(held(env, env.iris))
            outputs.append(product.tensors["c"].clone())
        workspace.clear()
    env.settle()
    findings.equal("bytes of the heap in use, and shared mappings, after each call", rooms, rooms[:1] * CALLS)
    return judge(env, case, product, [values] * CALLS, [wanted] * CALLS, outputs, findings)


def run_reused(env, case):
    """Call on one instance with the workspace of another, overwrite its memory, reset it, and call again."""
    fused, findings = _fused(*case.arguments), Findings(env.rank)
    smaller, iris = (env.under_test.iris(heap_size=size) for size in (SMALLER, HEAP))
    other, product = _on(smaller, env, fused), _on(iris, env, fused)
    matrices, used = (other.tensors[name] for name in "cab"), held(env, iris)[0]
    workspace = getattr(smaller.ops, f"{fused.op}_preamble")(*matrices, config=config(env, fused))
    _call(env, fused, iris, product, workspace, "with a workspace of another instance", findings)
    for buffer in ("aux_buffer", "locks"):
        if not bool_all(env.fault is None and findings.first is None):
            break
        env.in_library(spoil, workspace, buffer)
        env.settle()
        workspace.reset()
        _call(env, fused, iris, product, workspace, f"after {buffer} was overwritten and reset", findings)
    env.settle()
    if bool_all(env.fault is None):
        workspace.clear()
        findings.equal("bytes of the heap in use after clear()", held(env, iris)[0], used)
    for one in (iris, smaller):
        release(one)
    return findings.first


def run_full(env, case):
    """Call with a heap that is full, then with room, with a workspace and without."""
    fused, findings = _fused(*case.arguments), Findings(env.rank)
    iris, workspace = env.under_test.iris(heap_size=SMALLER), env.under_test.module.ops.FusedWorkspace()
    product, fillers, size = _on(iris, env, fused), [], SMALLER
    while size:
        try:
            fillers.append(iris.empty(size, dtype=torch.uint8))
        except (MemoryError, RuntimeError):
            size //= 2
    for given in (None, workspace):
        with contextlib.suppress(MemoryError, RuntimeError):
            invoke(fused, product, config(env, fused), given, iris.ops)
    env.settle()
    for filler in fillers:
        iris.free(filler)
    for given, label in ((None, "without a workspace"), (workspace, "with a workspace")):
        if bool_all(env.fault is None):
            _call(env, fused, iris, product, given, f"{label} after one that found the heap full", findings)
    env.settle()
    release(iris)
    return findings.first


def run_dropped(env, case):
    findings = Findings(env.rank)
    remains = env.in_library(dropped, *case.arguments)
    findings.equal(
        f"an instance with a {case.arguments[0]} remains after its last reference was dropped", remains, False
    )
    return findings.first


def dropped(env, op, variant):
    """Return whether an instance remains after a call without a workspace and the drop of its last reference."""
    fused = _fused(op, variant)
    iris = env.under_test.iris(heap_size=HEAP)
    product = _on(iris, env, fused)
    invoke(fused, product, config(env, fused), None, iris.ops)
    env.settle()
    last = weakref.ref(iris)
    del iris, product
    gc.collect()
    env.settle()
    return last() is not None


def run_programs(env, case):
    from conformance.ops.strategies import edges

    odd = next(one for one in edges(*case.arguments) if one.n % 16 and one.dtype == "fp16")
    fused, findings = replace(odd, n=MANY, k=2, sms=MANY, async_op=False), Findings(env.rank)
    members = tuple(reversed(range(env.world_size)))
    group = env.group(members, (members,))
    iris = env.under_test.iris(heap_size=LARGER)
    product = _on(iris, env, fused)
    env.settle()
    with env.acting():
        iris.device_barrier(group)
    _call(env, fused, iris, product, None, "with more than a thousand programs", findings)
    if bool_all(env.fault is None):
        with env.acting():
            iris.device_barrier(group)
    env.settle()
    release(iris)
    return findings.first


def spoil(env, workspace, buffer):
    """Fill one of a workspace's buffers, if it has that one."""
    memory = getattr(workspace, buffer)
    if memory is not None:
        memory.fill_(SPOILED)


def _fused(op, variant):
    (fused,) = (one for one in held_cases(op, 1) if one.variant == variant)
    return replace(fused, async_op=False)


def _on(iris, env, fused):
    """Return a product with its tensors on the heap of an instance."""
    shapes, tensors = shapes_of(fused, env.world_size), {}
    for name, (rows, columns) in shapes.items():
        tensors[name] = iris.full((rows, columns + fused.pad), BEFORE, dtype=torch.float16)[:, :columns]
    if fused.biased:
        tensors["bias"] = tensors["bias"][:, 0]
    return Product(shapes, {}, tensors)


def _call(env, fused, iris, product, workspace, label, findings):
    """Call a product once, and compare its output."""
    values, before = inputs_of(env, fused, product, 0), torch.full(product.shapes["c"], BEFORE, dtype=torch.float16)
    wanted, mine, output = wanted_of(env, fused, product, values), owned(env, fused), product.tensors["c"]
    refill(product, values, before)
    env.settle()
    with env.acting():
        invoke(fused, product, config(env, fused), workspace, iris.ops)
    env.settle()
    if env.fault is None:
        wanted = wanted if mine is None else torch.where(mine, wanted, before)
        findings.same(f"output of a call {label}", output.cpu().contiguous(), wanted)
    elif hasattr(env.fault, "add_note"):  # from Python 3.11 on
        env.fault.add_note(f"in a call {label}")


RUNS = {"reused": run_reused, "full": run_full, "dropped": run_dropped, "programs": run_programs}


def cases(ranks, op):
    from conformance.ops.strategies import edges

    variants = PRODUCTS[op].variants
    return [
        replace(edges(op)[0], calls=1, async_op=False, skewed=-1, skew_ms=0),
        *(HostCase("reused", (op, variant)) for variant in variants),
        *(HostCase(kind, (op, variants[0])) for kind in ("full", "dropped")),
        *(HostCase("programs", (op,)) for _ in range(PRODUCTS[op].owned is not None)),
    ]


@requirement("FUSED-ROOM-001", cases=cases, op=tuple(PRODUCTS), weak=False)
def test_room(check, case):
    check(run if isinstance(case, FusedCase) else RUNS[case.what], case)
