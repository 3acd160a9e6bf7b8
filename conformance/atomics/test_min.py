"""atomic_min(pointer, val, to_rank, mask, sem, scope): lowers a peer's cell to a value; the old value comes back.

Comparison is signed; the cell only ever falls, and each old value is one that it held.
Scalars and blocks, duplicate lanes and ranks on one cell, any sem and scope.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.atomics.history import run_atomics
from fixtures.requirement import requirement


@gluon.jit
def apply(ctx, pointer, compare, value, to_rank, mask, sem: gl.constexpr, scope: gl.constexpr):
    return ctx.atomic_min(pointer, value, to_rank, mask=mask, sem=sem, scope=scope)


def run(env, case):
    return run_atomics(env, case, apply)


def cases(ranks, dtype):
    from harness.cases import strategies

    return strategies.atomics(ranks, "min", dtype)


@requirement("ATOMIC-MIN-001", cases=cases, dtype=("int32", "int64", "fp32", "fp64"))
def test_min(check, case):
    check(run, case)
