"""Calls of fused products: their tensors on the heap, what torch.matmul and torch.distributed give for the same inputs,
and how a case runs.

Inputs are small whole numbers, chosen so that every part and result is exact in the dtype, and every sum on the way in
float32: any order of summing gives the same bits, and results are compared bit by bit. In every second call large
numbers that cancel are added, so that who sums in a narrower dtype loses the small ones; where fp32 must not be cut to
TF32, the numbers have bits that this would cut. The workspace lies on the heap between two guards.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from fixtures.findings import Findings
from fixtures.worker import Env
from harness.cases import FusedCase, of_name
from harness.errors import HarnessError
from harness.oracles import Region, bool_all, gathered, reduced
from harness.oracles.heap import starts

LARGE = 2048
"""Exact in every dtype; in fp16 and bf16, it and an odd number have no exact sum."""
GUARD, GUARD_WORDS = 0x5A5A5A5A, 256


@dataclass(frozen=True)
class Product:
    """The tensors of a case on this rank; ``shapes``, and ``regions`` of the arena, are by the same names: "a", "b",
    "bias" where there is one, "c"."""

    shapes: dict[str, tuple[int, int]]
    regions: dict[str, Region]
    tensors: dict[str, torch.Tensor]


def run(env: Env, case: FusedCase) -> Any:
    """What most requirements of fused products have the ranks do."""
    product = prepare(env, case)
    given = [inputs_of(env, case, product, k) for k in range(case.calls)]
    wanted = [wanted_of(env, case, product, values) for values in given]
    env.settle()
    found = Findings(env.rank)
    outputs = perform(env, case, product, given, found)
    env.settle()
    return judge(env, case, product, given, wanted, outputs, found)


def prepare(env: Env, case: FusedCase) -> Product:
    """Poisoned heap, and the case's tensors on it."""
    env.image.reset()
    shapes = shapes_of(case, env.world_size)
    dtype = of_name(case.dtype)
    counts = {name: _memory(case, name, shape)[0] * _memory(case, name, shape)[1] for name, shape in shapes.items()}
    places = starts(1024, [count * dtype.itemsize for count in counts.values()])
    regions = {
        name: env.image.claim(name, place, count, dtype)
        for (name, count), place in zip(counts.items(), places, strict=True)
    }
    tensors = {name: _matrix(case, name, env.image.tensor(region), shapes[name]) for name, region in regions.items()}
    if case.biased:
        tensors["bias"] = tensors["bias"][:, 0]
    return Product(shapes, regions, tensors)


def shapes_of(case: FusedCase, ranks: int) -> dict[str, tuple[int, int]]:
    """Rows and columns of one rank's tensors; a bias is a column."""
    whole = case.k * ranks if case.op == "all_gather_matmul" else case.k
    rows = case.m * ranks if case.op == "matmul_all_gather" else case.m
    shapes = {"a": (case.m, case.k), "b": (whole, case.n), "c": (rows, case.n)}
    return {**shapes, "bias": (case.m, 1)} if case.biased else shapes


def inputs_of(env: Env, case: FusedCase, product: Product, call: int) -> dict[str, torch.Tensor]:
    """This rank's inputs of one call, float32. Where the result is one sum of all ranks, they share the bias."""
    everyones = case.op == "matmul_all_reduce"
    values = {}
    for place, name in enumerate(("a", "b", "bias")):
        if name in product.shapes:
            rank = env.world_size if name == "bias" and everyones else env.rank
            random = np.random.default_rng([call, rank, place])
            most = {"a": 2, "b": 1, "bias": 9}[name]
            values[name] = torch.from_numpy(random.integers(-most, most + 1, product.shapes[name])).float()
    if call % 2:
        _cancel(env, case, values)
    if case.dtype == "fp32" and not case.tf32:
        values["a"] *= 1 + 2**-12
        if "bias" in values:
            values["bias"] *= 1 + 2**-12
    return values


def _cancel(env: Env, case: FusedCase, values: dict[str, torch.Tensor]) -> None:
    """LARGE, added first and taken away last: within each product, or where products are summed, rank 0's product is
    LARGE, and the bias or the last rank's product is minus that."""
    a, b = values["a"], values["b"]
    b[:: case.k] = b[case.k - 1 :: case.k] = 1
    summed = case.op in ("matmul_all_reduce", "matmul_reduce_scatter") and (case.biased or env.world_size > 2)
    whole = {0: LARGE} if case.biased else {0: LARGE, env.world_size - 1: -LARGE}
    if summed and case.biased:
        values["bias"].fill_(-LARGE)
    if summed and env.rank in whole:
        a.zero_()
        a[:, 0] = whole[env.rank]
    elif case.k > 1:
        a[:, 0], a[:, -1] = LARGE, -LARGE


def wanted_of(env: Env, case: FusedCase, product: Product, values: dict[str, torch.Tensor]) -> torch.Tensor:
    """The result of one call, in the case's dtype. Collective."""
    if case.op == "all_gather_matmul":
        # Side by side: the shards' columns are stacked, and then turned back.
        whole = gathered(values["a"].t().contiguous()).t()
        result = _biased(torch.matmul(whole, values["b"]), values)
    elif case.op == "matmul_all_gather":
        result = gathered(_biased(torch.matmul(values["a"], values["b"]), values))
    else:
        part = torch.matmul(values["a"], values["b"])
        _exact(part, case.dtype)
        result = _biased(reduced(part, "sum"), values)
    return _exact(result, case.dtype)


def perform(
    env: Env, case: FusedCase, product: Product, given: list[dict[str, torch.Tensor]], found: Findings
) -> list[torch.Tensor]:
    """Makes the calls on one workspace, of which nothing is left then; returns what the output of each held, by a copy
    enqueued behind it."""
    ops, settings = env.iris.ops, config(env, case)
    matrices = product.tensors["c"], product.tensors["a"], product.tensors["b"]
    staged = [{name: value.to(env.device.torch_device) for name, value in values.items()} for values in given]
    outputs: list[torch.Tensor] = []
    workspace, guards = None, []
    with env.acting():
        guards.append(_guard(env))
        workspace = getattr(ops, f"{case.op}_preamble")(*matrices, config=settings)
        guards.append(_guard(env))
    with env.acting():
        for values in staged:
            env.late(case.skewed, case.skew_ms)
            for name, value in values.items():
                product.tensors[name].copy_(value.view(product.tensors[name].shape))
            workspace = invoke(case, product, settings, workspace, ops)
            outputs.append(product.tensors["c"].clone())
        workspace.wait()
    env.settle()
    if bool_all(env.fault is None):
        with env.acting():
            for side, guard in zip(("before", "behind"), guards, strict=True):
                found.same(f"guard {side} the workspace", guard, torch.full_like(guard, GUARD))
                env.iris.free(guard)
            workspace.clear()
    return outputs


def invoke(case: FusedCase, product: Product, settings: Any, workspace: Any, ops: Any) -> Any:
    """One call of the library."""
    tensors = product.tensors
    return getattr(ops, case.op)(
        tensors["c"], tensors["a"], tensors["b"], bias=tensors.get("bias"), async_op=case.async_op, config=settings,
        workspace=workspace,
    )  # fmt: skip


def config(env: Env, case: FusedCase) -> Any:
    """The case's FusedConfig."""
    return env.under_test.module.ops.FusedConfig(
        block_size_m=case.block_m, block_size_n=case.block_n, block_size_k=case.block_k, group_size_m=case.group_m,
        num_sms=case.sms, num_xcds=case.xcds, chunk_size=2, allow_tf32=case.tf32, all_reduce_variant=case.variant,
    )  # fmt: skip


def judge(
    env: Env,
    case: FusedCase,
    product: Product,
    given: list[dict[str, torch.Tensor]],
    wanted: list[torch.Tensor],
    outputs: list[torch.Tensor],
    found: Findings,
) -> Any:
    """The first difference: what was ``found`` before, of each call's output, then of the whole heap. Collective."""
    if not bool_all(env.fault is None):
        return found.first
    mine = owned(env, case) if case.op == "matmul_reduce_scatter" else None
    poison = _matrix(case, "c", env.image.expected(product.regions["c"]), product.shapes["c"]).clone()
    for k, (result, output) in enumerate(zip(wanted, outputs, strict=True)):
        held = result if mine is None else torch.where(mine, result, poison)
        found.same(f"output of call {k} behind it", output.cpu().contiguous(), held.contiguous())
        _matrix(case, "c", env.image.expected(product.regions["c"]), product.shapes["c"]).copy_(held)
    for name, value in given[-1].items():
        _matrix(case, name, env.image.expected(product.regions[name]), product.shapes[name]).copy_(value)
    return found.first or env.image.difference()


def owned(env: Env, case: FusedCase) -> torch.Tensor:
    """Booleans (m, n): what matmul_reduce_scatter gives this rank. Tiles are numbered down columns of ``group_m`` rows
    of tiles; of T tiles each rank has T // W, and the last one the rest."""
    tiles_m, tiles_n = -(-case.m // case.block_m), -(-case.n // case.block_n)
    order = [
        (row, column)
        for first in range(0, tiles_m, case.group_m)
        for column in range(tiles_n)
        for row in range(first, min(first + case.group_m, tiles_m))
    ]
    share, last = len(order) // env.world_size, env.rank == env.world_size - 1
    mine = order[env.rank * share :] if last else order[env.rank * share : (env.rank + 1) * share]
    mask = torch.zeros(case.m, case.n, dtype=torch.bool)
    for row, column in mine:
        rows = slice(row * case.block_m, (row + 1) * case.block_m)
        mask[rows, column * case.block_n : (column + 1) * case.block_n] = True
    return mask


def _biased(result: torch.Tensor, values: dict[str, torch.Tensor]) -> torch.Tensor:
    return result + values["bias"] if "bias" in values else result


def _exact(result: torch.Tensor, dtype: str) -> torch.Tensor:
    """``result`` in ``dtype``, to which nothing may be lost."""
    narrow = result.to(of_name(dtype))
    if not torch.equal(narrow.float(), result):
        raise HarnessError(
            f"numbers up to {result.abs().max()} are not exact in {dtype}: the case needs smaller inputs"
        )
    return narrow


def _memory(case: FusedCase, name: str, shape: tuple[int, int]) -> tuple[int, int]:
    """Rows and their distance in memory."""
    rows, columns = shape[::-1] if case.turned and name != "bias" else shape
    return rows, columns + case.pad


def _matrix(case: FusedCase, name: str, flat: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    turned = case.turned and name != "bias"
    width = shape[0] if turned else shape[1]
    matrix = flat.view(_memory(case, name, shape))[:, :width]
    return matrix.t() if turned else matrix


def _guard(env: Env) -> torch.Tensor:
    return env.iris.full((GUARD_WORDS,), GUARD, dtype=torch.int32)
