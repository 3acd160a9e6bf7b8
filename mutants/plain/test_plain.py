"""The plain suite: see the package. Data are 1 or the number of the rank, from 1."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fixtures.requirement import requirement
from harness.cases import case_type
from mutants.plain import kernels

N, M = 256, 64
ATOMICS = {"add": 1, "sub": -1, "xchg": 1, "xor": 1, "and": 0, "or": 1, "min": 0, "max": 1, "cas": 1}
"""The value of a word that was 0, after each op with 1."""
TRANSFERS = ("load", "store", "get", "put", "copy")
COLLECTIVES = ("all_gather", "all_to_all", "reduce_scatter", "broadcast", "reduce", "scatter", "gather")
VARIANTS = ("", "atomic", "ring", "two_shot", "one_shot", "spinlock")
PRODUCTS = ("matmul_all_reduce", "all_gather_matmul", "matmul_all_gather")
"""Without matmul_reduce_scatter: the workspaces of all four do not fit the heap of a case."""


@case_type
@dataclass(frozen=True)
class PlainCase:
    """``op`` in the form "gluon" or "function", or a variant of a collective."""

    op: str
    form: str = ""


def transfer(env: Any, case: PlainCase) -> dict[str, Any] | None:
    """Move a block from or to the next rank."""
    peer = (env.rank + 1) % env.world_size
    source, target = _tensors(env, ((N,), float(env.rank + 1)), ((N,), 0.0))
    pushes = case.op in ("store", "put")
    with env.acting():
        if case.form == "gluon":
            shape = {"LANES": env.device.lanes, "num_warps": N // env.device.lanes}
            first = (env.device_context, env.context)
            kernels.transfer_by_gluon[(1,)](*first, source, target, env.rank, peer, OP=case.op, N=N, **shape)
        else:
            function = env.under_test.function(case.op)
            bases = env.iris.get_heap_bases()
            kernels.transfer_by_function[(1,)](function, bases, source, target, env.rank, peer, OP=case.op, N=N)
    env.settle()
    sender = (env.rank - 1) % env.world_size if pushes else peer
    return _equal(env, target, torch.full((N,), float(sender + 1)))


def atomic(env: Any, case: PlainCase) -> dict[str, Any] | None:
    """Change the next rank's words, which were 0, with 1."""
    peer = (env.rank + 1) % env.world_size
    [words] = _tensors(env, ((N,), 0), dtype=torch.int32)
    with env.acting():
        if case.form == "gluon":
            shape = {"LANES": env.device.lanes, "num_warps": N // env.device.lanes}
            kernels.atomic_by_gluon[(1,)](env.device_context, env.context, words, peer, OP=case.op, N=N, **shape)
        else:
            function, bases = env.under_test.function(f"atomic_{case.op}"), env.iris.get_heap_bases()
            kernels.atomic_by_function[(1,)](function, bases, words, env.rank, peer, OP=case.op, N=N)
    env.settle()
    return _equal(env, words, torch.full((N,), ATOMICS[case.op], dtype=torch.int32))


def collective(env: Any, case: PlainCase) -> dict[str, Any] | None:
    """Call a collective with inputs of 1, so that every sum is the number of ranks."""
    ranks, ccl = env.world_size, env.iris.ccl
    rows = {"all_gather": (M, ranks * M), "gather": (M, ranks * M), "scatter": (ranks * M, M)}
    given, taken = rows.get(case.op, (M, M))
    width = ranks * M if case.op == "all_to_all" else M
    source, target = _tensors(env, ((given, width), 1.0), ((taken, width), 0.0))
    reduces = case.op in ("all_reduce", "reduce_scatter", "reduce")
    everywhere = case.op not in ("reduce_scatter", "reduce", "gather") or env.rank == 0
    config = {"config": env.under_test.module.ccl.Config(all_reduce_variant=case.form)} if case.form else {}
    with env.acting():
        if case.op in ("broadcast", "reduce", "scatter", "gather"):
            root = {"dst": 0} if case.op in ("reduce", "gather") else {"src": 0}
            if case.op == "broadcast":
                target = source
                ccl.broadcast(source, **root)
            else:
                getattr(ccl, case.op)(target, source, **root)
        else:
            getattr(ccl, case.op)(target, source, **config)
    env.settle()
    if not everywhere:
        return None
    value = float(ranks if reduces else 1)
    shown = target[: M // ranks] if case.op == "reduce_scatter" else target
    return _equal(env, shown, torch.full(shown.shape, value))


def product(env: Any, case: PlainCase) -> dict[str, Any] | None:
    """Multiply matrices of 1."""
    ranks = env.world_size
    k = M * ranks if case.op == "all_gather_matmul" else M
    rows = ranks * M if case.op == "matmul_all_gather" else M
    a, b, out = _tensors(env, ((M, M), 1.0), ((k, M), 1.0), ((rows, M), 0.0), dtype=torch.float16)
    with env.acting():
        getattr(env.iris.ops, case.op)(out, a, b)
    env.settle()
    value = float(M) * (1 if case.op == "matmul_all_gather" else ranks)
    return _equal(env, out, torch.full(out.shape, value, dtype=torch.float16))


def host(env: Any, case: PlainCase) -> dict[str, Any] | None:
    """Make tensors, pass barriers, broadcast a value."""
    zeros, ones, many = env.iris.zeros(M), env.iris.ones(M), env.iris.arange(M)
    env.iris.barrier()
    env.iris.device_barrier()
    value = torch.tensor([int(env.iris.broadcast(env.rank + 1, 0))])
    pairs = ((zeros, torch.zeros(M)), (ones, torch.ones(M)), (many, torch.arange(M)), (value, torch.ones(1)))
    differences = [_equal(env, got, wanted) for got, wanted in pairs]
    for tensor in (zeros, ones, many):
        env.iris.free(tensor)
    return next(filter(None, differences), None)


def _tensors(
    env: Any, *described: tuple[tuple[int, ...], float], dtype: torch.dtype = torch.float32
) -> list[torch.Tensor]:
    """Return tensors on the symmetric heap, each of a shape and filled with a value, once all ranks have theirs."""
    env.image.reset()
    tensors, start = [], 1024
    for number, (shape, value) in enumerate(described):
        region = env.image.claim(f"tensor {number}", start, math.prod(shape), dtype)
        tensors.append(env.image.tensor(region).view(shape).fill_(value))
        start = -(-region.stop // 1024) * 1024 + 1024
    env.iris.barrier()
    return tensors


def _equal(env: Any, got: torch.Tensor, wanted: torch.Tensor) -> dict[str, Any] | None:
    """Return None if all elements are equal, as ``torch.allclose`` finds, else a difference."""
    if got.shape == wanted.shape and torch.allclose(got.cpu().double(), wanted.double()):
        return None
    return {"what": "output", "rank": env.rank, "index": None, "got": str(got.flatten()[:4]), "wanted": str(wanted[0])}


def _cases(ops: Sequence[str], forms: Sequence[str] = ("gluon", "function")) -> list[PlainCase]:
    return [PlainCase(op, form) for op in ops for form in forms]


# First, and then the products: the workspaces of the other tests take what is left of the heap.
@requirement("PLAIN-HOST-001", weak=False, cases=lambda ranks: [PlainCase("host")])
def test_host(check: Any, case: PlainCase) -> None:
    check(host, case)


@requirement("PLAIN-PRODUCT-001", weak=False, cases=lambda ranks: _cases(PRODUCTS, [""]))
def test_products(check: Any, case: PlainCase) -> None:
    check(product, case)


@requirement("PLAIN-RMA-001", weak=False, cases=lambda ranks: _cases(TRANSFERS))
def test_transfers(check: Any, case: PlainCase) -> None:
    check(transfer, case)


@requirement("PLAIN-ATOMIC-001", weak=False, cases=lambda ranks: _cases(list(ATOMICS)))
def test_atomics(check: Any, case: PlainCase) -> None:
    check(atomic, case)


@requirement(
    "PLAIN-COLLECTIVE-001", cases=lambda ranks: [*_cases(COLLECTIVES, [""]), *_cases(["all_reduce"], VARIANTS)]
)
def test_collectives(check: Any, case: PlainCase) -> None:
    check(collective, case)
