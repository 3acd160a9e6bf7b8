"""atomic_sub(pointer, val, to_rank, mask, sem, scope): subtracts from a peer's cell; the old value comes back.

The value is negated, not the cell; integers wrap, and the smallest integer is its own negative.
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
    return ctx.atomic_sub(pointer, value, to_rank, mask=mask, sem=sem, scope=scope)


@triton.jit
def by_context(ctx, pointer, compare, value, to_rank, mask, sem: tl.constexpr, scope: tl.constexpr):
    return ctx.atomic_sub(pointer, value, to_rank, mask=mask, sem=sem, scope=scope)


@triton.jit
def by_function(
    atomic_sub: tl.constexpr, heap_bases, rank, pointer, compare, value, to_rank, mask, sem: tl.constexpr,
    scope: tl.constexpr,
):  # fmt: skip
    return atomic_sub(pointer, value, rank, to_rank, heap_bases, mask=mask, sem=sem, scope=scope)


APPLIES = {"gluon": apply, "context": by_context, "function": by_function}


def run(env, case):
    return run_atomics(env, case, APPLIES)


def cases(ranks, dtype, form="gluon"):
    from harness.cases import strategies

    return strategies.atomics(ranks, "sub", dtype, form)


@requirement("ATOMIC-SUB-001", cases=cases, dtype=("int32", "int64", "fp32", "fp64", "fp16", "bf16"))
def test_sub(check, case):
    check(run, case)


@requirement("ATOMIC-SUB-002", cases=partial(cases, form="context"), weight=0.5, dtype=("int32", "fp64", "bf16"))
def test_sub_by_context(check, case):
    check(run, case)


@requirement("ATOMIC-SUB-003", cases=partial(cases, form="function"), weight=0.75, dtype=("int32", "fp64", "bf16"))
def test_sub_by_function(check, case):
    check(run, case)
