"""Calls of fused products: their tensors on the heap, the oracle's result (torch.matmul and torch.distributed with the
same inputs), and how a case runs.

Inputs are small whole numbers, chosen so that every partial and final result is exact in the dtype and every
intermediate sum is exact in float32. So any order of summing gives the same bits, and results are compared bit by bit.
Every second call also adds large numbers that cancel, so that a sum in a narrower dtype loses the small ones. If fp32
inputs must not be rounded to TF32, they have bits that the rounding would drop. The workspace lies on the heap between
two guard areas; the bytes up to the next one, to which an allocator rounds up, are guarded too.

In every second call the inputs that no other rank reads are outside the heap, in memory that ends with their last
element: on the emulated device an access beyond it is a fault.
"""

import contextlib
import math
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from conformance.isa.builds import check_builds
from conformance.isa.contract import contracts
from conformance.ops.cases import FusedCase
from conformance.ops.operations import PRODUCTS
from conformance.support.outside import ends_with
from fixtures.findings import Findings
from fixtures.worker import Env
from harness.cases import of_name
from harness.errors import HarnessError
from harness.oracles import Region, bool_all
from harness.oracles.heap import starts

LARGE = 2048
"""Exact in every dtype. In fp16 and bf16, its sum with an odd number is not exact."""
GUARD, GUARD_WORDS = 0x5A5A5A5A, 256
ALIGNMENT = 1024
"""Bytes to which a heap rounds allocations up."""


@dataclass(frozen=True)
class Product:
    """The tensors of a case on this rank.

    ``shapes``, ``regions`` (of the arena) and ``tensors`` have the same keys: "a", "b", "c", and "bias" if there is
    one.
    """

    shapes: dict[str, tuple[int, int]]
    regions: dict[str, Region]
    tensors: dict[str, torch.Tensor]


def moves(ranks: int, case: FusedCase) -> bool:
    """Return whether elements of the case reach another rank."""
    return ranks > 1 and case.m > 0 and case.n > 0 and case.k > 0


def run(env: Env, case: FusedCase, confined: bool = False) -> Any:
    """Run a case on this rank, read the code of its kernels, and return the first difference: the rank function of most
    fused-product tests.

    ``confined``: on the emulated device, an access of the arena beyond the case's tensors is a fault.
    """
    product = prepare(env, case)
    given = [inputs_of(env, case, product, k) for k in range(case.calls)]
    wanted = [wanted_of(env, case, product, values) for values in given]
    env.settle()
    findings = Findings(env.rank)
    with env.confined(list(product.tensors.values())) if confined else contextlib.nullcontext():
        outputs = perform(env, case, product, given, findings)
    env.settle()
    return judge(env, case, product, given, wanted, outputs, findings) or check_code(env, case)


def check_code(env: Env, case: FusedCase) -> Any:
    """Return the first fault in the code that this case has launched so far, or None; see ``check_builds``."""
    known = contracts()
    contract = known.get(case.op) or known[f"{case.op} {case.variant}"]
    return None if env.fault is not None else check_builds(env, case.op, [contract], env.rank, env.world_size)


def prepare(env: Env, case: FusedCase) -> Product:
    """Poison the heap and place the case's tensors on it."""
    env.image.reset()
    shapes = shapes_of(case, env.world_size)
    dtype = of_name(case.dtype)
    # Last the one that other ranks access: what they access beyond it is none of the others.
    order = sorted(shapes, key=lambda name: name == PRODUCTS[case.op].reached)
    counts = {name: math.prod(_memory(case, name, shapes[name])) for name in order}
    shifts = {name: case.shift * dtype.itemsize * (name == (PRODUCTS[case.op].reached or "c")) for name in order}
    places = starts(1024, [count * dtype.itemsize + shifts[name] for name, count in counts.items()])
    regions = {
        name: env.image.claim(name, place + shifts[name], count, dtype)
        for (name, count), place in zip(counts.items(), places, strict=True)
    }
    tensors = {name: _matrix(case, name, env.image.tensor(region), shapes[name]) for name, region in regions.items()}
    if case.biased:
        tensors["bias"] = tensors["bias"][:, 0]
    return Product(shapes, regions, tensors)


def shapes_of(case: FusedCase, ranks: int) -> dict[str, tuple[int, int]]:
    """Return the rows and columns of one rank's tensors. A bias is one column."""
    shapes = PRODUCTS[case.op].shapes(case, ranks)
    return {**shapes, "bias": (case.m, 1)} if case.biased else shapes


def inputs_of(env: Env, case: FusedCase, product: Product, call: int) -> dict[str, torch.Tensor]:
    """Return this rank's inputs of one call, float32. The bias is the same on all ranks if the result is."""
    common_bias = PRODUCTS[case.op].shares_bias
    values = {}
    for place, name in enumerate(("a", "b", "bias")):
        if name in product.shapes:
            rank = env.world_size if name == "bias" and common_bias else env.rank
            random = np.random.default_rng([call, rank, place])
            limit = {"a": 2, "b": 1, "bias": 9}[name]
            values[name] = torch.from_numpy(random.integers(-limit, limit + 1, product.shapes[name])).float()
    if call % 2 and case.k:
        _cancel(env, case, values)
    if case.dtype == "fp32" and not case.tf32:
        values["a"] *= 1 + 2**-12
        if "bias" in values:
            values["bias"] *= 1 + 2**-12
    return values


def _cancel(env: Env, case: FusedCase, values: dict[str, torch.Tensor]) -> None:
    """Change the inputs so that LARGE is added first and subtracted last.

    This happens within each product or, if the ranks' products are summed, across ranks: rank 0's product is LARGE, and
    the bias or the last rank's product is -LARGE. Any bias is -LARGE: without it, the product is exact only in float32.
    """
    a, b = values["a"], values["b"]
    b[:: case.k] = b[case.k - 1 :: case.k] = 1
    op = PRODUCTS[case.op]
    summed = op.sums and (case.biased or env.world_size > 2)
    whole = {0: LARGE} if case.biased else {0: LARGE, env.world_size - 1: -LARGE}
    if case.biased:
        values["bias"].fill_(-LARGE)
    if summed and env.rank in whole:
        a.zero_()
        a[:, 0] = whole[env.rank]
    elif case.biased and not op.sums:
        if op.reached != "a" or env.rank == 0:
            a[:, 0] = LARGE
    elif case.k > 1:
        a[:, 0], a[:, -1] = LARGE, -LARGE


def wanted_of(env: Env, case: FusedCase, product: Product, values: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the expected result of one call, in the case's dtype. Every rank must call it."""
    return _exact(PRODUCTS[case.op].reference(values, lambda part: _exact(part, case.dtype)), case.dtype)


def perform(
    env: Env, case: FusedCase, product: Product, given: list[dict[str, torch.Tensor]], findings: Findings
) -> list[torch.Tensor]:
    """Make the calls on one workspace, clear it, and return a copy of each call's output, enqueued after that call."""
    ops, settings = env.iris.ops, config(env, case)
    matrices = product.tensors["c"], product.tensors["a"], product.tensors["b"]
    staged = [{name: value.to(env.device.torch_device) for name, value in values.items()} for values in given]
    outputs: list[torch.Tensor] = []
    workspace, guards, rounded = None, [], []
    preamble = getattr(ops, f"{case.op}_preamble", None)  # the published instance has none
    if preamble is not None and hasattr(env.iris, "free"):
        with env.acting():
            guards.append(_guard(env))
            workspace = preamble(*matrices, config=settings)
            guards.append(_guard(env))
            rounded = _rounded_up(guards[0], workspace, guards[1])
    unwritten = product.tensors["c"].clone()
    with env.acting():
        for number, values in enumerate(staged):
            env.late(case.skewed, case.skew_ms)
            refill(product, values, unwritten)
            called = _outside(case, product) if number % 2 else product
            workspace = invoke(case, called, settings, workspace, ops)
            outputs.append(product.tensors["c"].clone())
        if hasattr(workspace, "wait"):
            workspace.wait()
    env.settle()
    if guards and bool_all(env.fault is None):
        with env.acting():
            for side, guard in zip(("before", "behind"), guards, strict=True):
                findings.same(f"guard {side} the workspace", guard, torch.full_like(guard, GUARD))
                env.iris.free(guard)
            for number, padding in enumerate(rounded):
                label = f"bytes between allocation {number} and the next one"
                findings.same(label, padding, torch.full_like(padding, GUARD & 0xFF))
            workspace.clear()
    return outputs


def refill(product: Product, values: dict[str, torch.Tensor], unwritten: torch.Tensor) -> None:
    """Enqueue the next call's inputs, and the contents of its output before any call: other ranks may write that only
    when this rank has begun the call."""
    for name, value in values.items():
        product.tensors[name].copy_(value.view(product.tensors[name].shape))
    product.tensors["c"].copy_(unwritten)


def _outside(case: FusedCase, product: Product) -> Product:
    """Return the product with copies of the inputs that no other rank reads, with equal strides, outside the heap."""
    copies = {}
    for name in ("a", "b", "bias"):
        if name in product.tensors and name != PRODUCTS[case.op].reached:
            copies[name] = ends_with(product.tensors[name])
    return replace(product, tensors={**product.tensors, **copies})


def invoke(case: FusedCase, product: Product, settings: Any, workspace: Any, ops: Any) -> Any:
    """Call the library's op once."""
    tensors = product.tensors
    more = {"bias": tensors["bias"]} if case.biased else {}  # two of the published products have no bias
    return getattr(ops, case.op)(
        tensors["c"], tensors["a"], tensors["b"], **more, async_op=case.async_op, config=settings, workspace=workspace
    )


def config(env: Env, case: FusedCase, **further: Any) -> Any:
    """Return the case's FusedConfig; ``further``: fields that a case has not."""
    return env.under_test.module.ops.FusedConfig(
        block_size_m=case.block_m, block_size_n=case.block_n, block_size_k=case.block_k, group_size_m=case.group_m,
        num_sms=case.sms, num_xcds=case.xcds, chunk_size=2, allow_tf32=case.tf32, all_reduce_variant=case.variant,
        **further,
    )  # fmt: skip


def judge(
    env: Env,
    case: FusedCase,
    product: Product,
    given: list[dict[str, torch.Tensor]],
    wanted: list[torch.Tensor],
    outputs: list[torch.Tensor],
    findings: Findings,
) -> Any:
    """Return the first difference: an earlier one in ``findings``, then of each call's output, then of the whole heap.

    Every rank must call it.
    """
    if not bool_all(env.fault is None):
        return findings.first
    mine = owned(env, case)
    poison = _matrix(case, "c", env.image.expected(product.regions["c"]), product.shapes["c"]).clone()
    for k, (result, output) in enumerate(zip(wanted, outputs, strict=True)):
        held = result if mine is None else torch.where(mine, result, poison)
        findings.same(f"output of call {k}, copied directly after it", output.cpu().contiguous(), held.contiguous())
        _matrix(case, "c", env.image.expected(product.regions["c"]), product.shapes["c"]).copy_(held)
    for name, value in given[-1].items():
        _matrix(case, name, env.image.expected(product.regions[name]), product.shapes[name]).copy_(value)
    return findings.first or env.image.difference()


def owned(env: Env, case: FusedCase) -> torch.Tensor | None:
    """Return a mask of the elements that this rank writes, or None if every rank writes all of them."""
    owner_mask = PRODUCTS[case.op].owned
    return None if owner_mask is None else owner_mask(case, env.rank, env.world_size)


def _exact(result: torch.Tensor, dtype: str) -> torch.Tensor:
    """Return ``result`` in ``dtype``. Raises HarnessError if the conversion is not exact."""
    narrow = result.to(of_name(dtype))
    if not torch.equal(narrow.float(), result):
        raise HarnessError(
            f"the expected result (largest magnitude {result.abs().max()}) is not exact in {dtype}: "
            "give the case other inputs"
        )
    return narrow


def _memory(case: FusedCase, name: str, shape: tuple[int, int]) -> tuple[int, int]:
    """Return the number of rows in memory and their distance in elements."""
    rows, columns = shape[::-1] if case.turned and name != "bias" else shape
    return rows, columns + case.pad


def _matrix(case: FusedCase, name: str, flat: torch.Tensor, shape: tuple[int, int]) -> torch.Tensor:
    turned = case.turned and name != "bias"
    width = shape[0] if turned else shape[1]
    matrix = flat.view(_memory(case, name, shape))[:, :width]
    return matrix.t() if turned else matrix


def _guard(env: Env) -> torch.Tensor:
    return env.iris.full((GUARD_WORDS,), GUARD, dtype=torch.int32)


def _rounded_up(before: torch.Tensor, workspace: Any, behind: torch.Tensor) -> list[torch.Tensor]:
    """Return the bytes between neighbours among the guards and the workspace's buffers, filled with the guard's byte.

    Only neighbours in one pool that are less than ALIGNMENT apart: no other allocation can lie between them.
    """
    pool = before.untyped_storage()
    tensors = [before, getattr(workspace, "aux_buffer", None), getattr(workspace, "locks", None), behind]
    shared = [one for one in tensors if one is not None and one.untyped_storage().data_ptr() == pool.data_ptr()]
    memory = torch.empty(0, dtype=torch.uint8, device=before.device).set_(pool)
    ends = sorted((one.data_ptr() - pool.data_ptr(), one.nbytes) for one in shared)
    gaps = [
        memory[start + size : after] for (start, size), (after, _) in pairwise(ends) if after - start - size < ALIGNMENT
    ]
    for gap in gaps:
        gap.fill_(GUARD & 0xFF)
    return gaps
