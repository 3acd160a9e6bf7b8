"""Descriptions of the fused products. Every test matrix of the suite is derived from them.

To add a fused product, describe it here and add its requirement to ``requirements.toml``: ``test_operations.py`` then
draws cases of it, and the files of one property (edges, graphs, refusals) include it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from conformance.ops.cases import FusedCase
from harness.oracles import gathered, reduced

Shape = tuple[int, int]
Values = dict[str, torch.Tensor]
Exact = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class FusedProduct:
    """One op of the library.

    ``shapes(case, ranks)`` returns rows and columns of one rank's "a", "b" and "c". ``reference(values, exact)`` is the
    oracle: the result of torch.matmul and torch.distributed for this rank's float32 "a", "b" and, if present, "bias";
    ``exact`` refuses a partial result that the case's element type cannot hold. ``requirement`` is the id of the
    requirement that any case gives the oracle's result, and ``weight`` its weight.

    ``sums``: the ranks' products are summed. ``shares_bias``: the result, and so the bias, is the same on all ranks.
    ``owned(case, rank, ranks)``: the mask of elements that a rank writes, if each rank writes only a part of the
    result. ``variants``: the algorithms. ``reached``: the tensor of a rank that other ranks read or write, if any.
    ``short_columns``: the exception that the API raises if a matrix lacks a column. ``wrong_settings``: fields of
    FusedConfig that the op refuses. ``whole_block``: the published op refuses a problem that is smaller than a block.
    """

    name: str
    shapes: Callable[[FusedCase, int], dict[str, Shape]]
    reference: Callable[[Values, Exact], torch.Tensor]
    requirement: str
    weight: float = 0.25
    sums: bool = False
    shares_bias: bool = False
    owned: Callable[[FusedCase, int, int], torch.Tensor] | None = None
    variants: tuple[str, ...] = ("two_shot",)
    reached: str = ""
    short_columns: type[Exception] = ValueError
    wrong_settings: tuple[tuple[str, object], ...] = ()
    whole_block: bool = False


def _plain(case: FusedCase, ranks: int) -> dict[str, Shape]:
    return {"a": (case.m, case.k), "b": (case.k, case.n), "c": (case.m, case.n)}


def _biased(result: torch.Tensor, values: Values) -> torch.Tensor:
    return result + values["bias"] if "bias" in values else result


def _summed(values: Values, exact: Exact) -> torch.Tensor:
    part = torch.matmul(values["a"], values["b"])
    exact(part)
    return _biased(reduced(part, "sum"), values)


def _stacked(values: Values, exact: Exact) -> torch.Tensor:
    return gathered(_biased(torch.matmul(values["a"], values["b"]), values))


def _joined(values: Values, exact: Exact) -> torch.Tensor:
    # Join the shards' columns: gather the transposed shards as rows, and transpose the result back.
    whole = gathered(values["a"].t().contiguous()).t()
    return _biased(torch.matmul(whole, values["b"]), values)


def owned(case: FusedCase, rank: int, ranks: int) -> torch.Tensor:
    """Return a boolean mask (m, n) of the elements that matmul_reduce_scatter gives a rank.

    Tiles are numbered column by column within groups of ``group_m`` rows of tiles. Of T tiles each rank owns T // W,
    and the last rank also owns the rest.
    """
    tiles_m, tiles_n = -(-case.m // case.block_m), -(-case.n // case.block_n)
    order = [
        (row, column)
        for first in range(0, tiles_m, case.group_m)
        for column in range(tiles_n)
        for row in range(first, min(first + case.group_m, tiles_m))
    ]
    share, last = len(order) // ranks, rank == ranks - 1
    mine = order[rank * share :] if last else order[rank * share : (rank + 1) * share]
    mask = torch.zeros(case.m, case.n, dtype=torch.bool)
    for row, column in mine:
        rows = slice(row * case.block_m, (row + 1) * case.block_m)
        mask[rows, column * case.block_n : (column + 1) * case.block_n] = True
    return mask


_LISTED = (
    # matmul_all_reduce(C (M, N), A (M, K), B (K, N), bias (M,)): every rank gets the sum of all ranks' products.
    FusedProduct(
        "matmul_all_reduce", _plain, _summed, "FUSED-ALLREDUCE-001", 0.5, sums=True, shares_bias=True, reached="c",
        whole_block=True, variants=("two_shot", "one_shot", "atomic", "spinlock"),
        wrong_settings=(("all_reduce_variant", "tree"), ("all_reduce_variant", "ring")),
    ),
    # all_gather_matmul(C (M, N), A_sharded (M, K/W), B (K, N), bias (M,)): the product of A, which is all ranks' shards
    # joined by columns, and the rank's own B.
    FusedProduct(
        "all_gather_matmul", lambda case, ranks: {**_plain(case, ranks), "b": (case.k * ranks, case.n)}, _joined,
        "FUSED-GATHERMATMUL-001", reached="a", short_columns=AssertionError,
    ),
    # matmul_all_gather(C (M, N), A (M/W, K), B (K, N), bias (M/W,)): every rank gets all ranks' products, stacked.
    FusedProduct(
        "matmul_all_gather", lambda case, ranks: {**_plain(case, ranks), "c": (case.m * ranks, case.n)}, _stacked,
        "FUSED-ALLGATHER-001", reached="c",
    ),
    # matmul_reduce_scatter(C (M, N), A (M, K), B (K, N), bias (M,)): each rank gets its tiles of the sum of all ranks'
    # products; the other tiles of its output stay as they were.
    FusedProduct("matmul_reduce_scatter", _plain, _summed, "FUSED-REDUCESCATTER-001", sums=True, owned=owned),
)  # fmt: skip

DTYPES = ("fp16", "bf16", "fp32")
"""Element types of the products."""

PRODUCTS = {op.name: op for op in _LISTED}
