"""atomic_or(pointer, val, to_rank, mask, sem, scope): sets bits of a peer's cell; the old value comes back.

Each operation sets a bit of its own, so that every intermediate value tells which operations came before.
Scalars and blocks, duplicate lanes and ranks on one cell, any sem and scope.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.atomics.history import run_atomics
from fixtures.requirement import requirement


@gluon.jit
def apply(ctx, pointer, compare, value, to_rank, mask, sem: gl.constexpr, scope: gl.constexpr):
    return ctx.atomic_or(pointer, value, to_rank, mask=mask, sem=sem, scope=scope)


def run(env, case):
    return run_atomics(env, case, apply)


def cases(ranks, dtype):
    from harness.cases import strategies

    return strategies.atomics(ranks, "or", dtype)


@requirement("ATOMIC-OR-001", cases=cases, dtype=("int32", "int64"))
def test_or(check, case):
    check(run, case)
