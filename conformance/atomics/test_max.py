"""atomic_max(pointer, val, to_rank, mask, sem, scope): raises a peer's cell to a value; the old value comes back.

Comparison is signed; the cell only ever rises, and each old value is one that it held.
Scalars and blocks, duplicate lanes and ranks on one cell, any sem and scope.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.atomics.history import run_atomics
from fixtures.requirement import requirement


@gluon.jit
def apply(ctx, pointer, compare, value, to_rank, mask, sem: gl.constexpr, scope: gl.constexpr):
    return ctx.atomic_max(pointer, value, to_rank, mask=mask, sem=sem, scope=scope)


def run(env, case):
    return run_atomics(env, case, apply)


def cases(ranks, dtype):
    from harness.cases import strategies

    return strategies.atomics(ranks, "max", dtype)


@requirement("ATOMIC-MAX-001", cases=cases, dtype=("int32", "int64", "fp32", "fp64"))
def test_max(check, case):
    check(run, case)
