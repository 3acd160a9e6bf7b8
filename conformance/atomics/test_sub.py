"""atomic_sub(pointer, val, to_rank, mask, sem, scope): subtracts from a peer's cell; the old value comes back.

The value is negated, not the cell; integers wrap, and the smallest integer is its own negative.
Scalars and blocks, duplicate lanes and ranks on one cell, any sem and scope.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.atomics.history import run_atomics
from fixtures.requirement import requirement


@gluon.jit
def apply(ctx, pointer, compare, value, to_rank, mask, sem: gl.constexpr, scope: gl.constexpr):
    return ctx.atomic_sub(pointer, value, to_rank, mask=mask, sem=sem, scope=scope)


def run(env, case):
    return run_atomics(env, case, apply)


def cases(ranks, dtype):
    from harness.cases import strategies

    return strategies.atomics(ranks, "sub", dtype)


@requirement("ATOMIC-SUB-001", cases=cases, dtype=("int32", "int64", "fp32", "fp64", "fp16", "bf16"))
def test_sub(check, case):
    check(run, case)
