"""atomic_cas(pointer, cmp, val, to_rank, sem, scope): puts a value into a peer's cell if that holds the compare
value; the old value comes back.

Of several that expect the same value exactly one succeeds, and the others learn who did. It has no mask.
Scalars and blocks, duplicate lanes and ranks on one cell, any sem and scope.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.atomics.history import run_atomics
from fixtures.requirement import requirement


@gluon.jit
def apply(ctx, pointer, compare, value, to_rank, mask, sem: gl.constexpr, scope: gl.constexpr):
    return ctx.atomic_cas(pointer, compare, value, to_rank, sem=sem, scope=scope)


def run(env, case):
    return run_atomics(env, case, apply)


def cases(ranks, dtype):
    from harness.cases import strategies

    return strategies.atomics(ranks, "cas", dtype)


@requirement("ATOMIC-CAS-001", cases=cases, dtype=("int32", "int64"))
def test_cas(check, case):
    check(run, case)
