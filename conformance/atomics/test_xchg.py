"""atomic_xchg(pointer, val, to_rank, mask, sem, scope): puts a value into a peer's cell and gives what was there;
the old value comes back.

No value may be lost or handed out twice: the old values and the final one form a chain.
Scalars and blocks, duplicate lanes and ranks on one cell, any sem and scope.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.atomics.history import run_atomics
from fixtures.requirement import requirement


@gluon.jit
def apply(ctx, pointer, compare, value, to_rank, mask, sem: gl.constexpr, scope: gl.constexpr):
    return ctx.atomic_xchg(pointer, value, to_rank, mask=mask, sem=sem, scope=scope)


def run(env, case):
    return run_atomics(env, case, apply)


def cases(ranks, dtype):
    from harness.cases import strategies

    return strategies.atomics(ranks, "xchg", dtype)


@requirement("ATOMIC-XCHG-001", cases=cases, dtype=("int32", "int64", "fp32", "fp64"))
def test_xchg(check, case):
    check(run, case)
