"""atomic_xchg(pointer, val, to_rank, mask, sem, scope): puts a value into a peer's cell and gives what was there;
the old value comes back.

No value may be lost or handed out twice: the old values and the final one form a chain.
Scalars and blocks, duplicate lanes and ranks on one cell, any sem and scope.

001  in Gluon, with ``IrisDeviceCtx``.
002  in Triton, with ``DeviceContext``.
003  in Triton, with the function.
"""

from functools import partial

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.atomics.history import run_atomics
from fixtures.requirement import requirement


@gluon.jit
def apply(ctx, pointer, compare, value, to_rank, mask, sem: gl.constexpr, scope: gl.constexpr):
    return ctx.atomic_xchg(pointer, value, to_rank, mask=mask, sem=sem, scope=scope)


@triton.jit
def by_context(ctx, pointer, compare, value, to_rank, mask, sem: tl.constexpr, scope: tl.constexpr):
    return ctx.atomic_xchg(pointer, value, to_rank, mask=mask, sem=sem, scope=scope)


@triton.jit
def by_function(
    atomic_xchg: tl.constexpr, heap_bases, rank, pointer, compare, value, to_rank, mask, sem: tl.constexpr,
    scope: tl.constexpr,
):  # fmt: skip
    return atomic_xchg(pointer, value, rank, to_rank, heap_bases, mask=mask, sem=sem, scope=scope)


APPLIES = {"gluon": apply, "context": by_context, "function": by_function}


def run(env, case):
    return run_atomics(env, case, APPLIES)


def cases(ranks, dtype, form="gluon"):
    from harness.cases import strategies

    return strategies.atomics(ranks, "xchg", dtype, form)


@requirement("ATOMIC-XCHG-001", cases=cases, dtype=("int32", "int64", "fp32", "fp64"))
def test_xchg(check, case):
    check(run, case)


@requirement("ATOMIC-XCHG-002", cases=partial(cases, form="context"), weight=0.5, dtype=("int32", "fp64"))
def test_xchg_by_context(check, case):
    check(run, case)


@requirement("ATOMIC-XCHG-003", cases=partial(cases, form="function"), weight=0.75, dtype=("int32", "fp64"))
def test_xchg_by_function(check, case):
    check(run, case)
