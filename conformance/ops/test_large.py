"""Fused products of more than 2^31 elements, on GPUs: offsets in the workspace and in the result need 64 bits.

The result has that many elements or, if shards of A are joined, each of them. The sums over K are of few elements that
are not zero, so that they are exact. Every rank gathers the others' inputs and multiplies them by torch.matmul, a chunk
of rows at a time.
"""

from dataclasses import replace

import torch

from conformance.ops.cases import FusedCase
from conformance.ops.operations import PRODUCTS
from conformance.ops.products import Product, inputs_of, invoke, owned, shapes_of
from conformance.support.cases import HostCase
from conformance.support.instances import release
from fixtures import judged
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.oracles import gathered

SIDE, LOCKED_SIDE = 46_350, 65_550
"""SIDE * SIDE is more than 2^31. LOCKED_SIDE * LOCKED_SIDE is more than 2^32: with the variant of the locks each of two
ranks keeps the sums of half the tiles."""
LOCKED = "spinlock"
NARROW, APART = 48, 1021
"""If shards are joined: columns of the result, and distance of the columns of a shard that are not zero."""
BEFORE, CHUNK = -99, 4096


def run(env, case):
    name, variant, side = case.arguments
    ranks, device = env.world_size, env.device.torch_device
    large = _case(name, variant, side, ranks)
    shapes, step = shapes_of(large, ranks), APART if _joins(name) else 1
    few = replace(large, k=-(-large.k // step))  # the elements of K that are not zero
    reached = PRODUCTS[name].reached
    sizes = {one: rows * columns for one, (rows, columns) in shapes.items()}
    results = 3 if variant == LOCKED else ranks + 2  # and partial sums
    iris = env.under_test.iris(heap_size=2 * (sizes["c"] * results + sizes["a"]) + (64 << 20))
    values = inputs_of(env, few, Product(shapes_of(few, ranks), {}, {}), 0)
    tensors = {}
    for one, shape in shapes.items():
        heap = one in ("c", reached)
        tensors[one] = (
            iris.empty(*shape, dtype=torch.float16) if heap else torch.empty(shape, dtype=torch.float16, device=device)
        )
    tensors["a"].zero_()[:, ::step] = values["a"].to(device)
    tensors["b"].fill_(1)
    tensors["b"].view(-1, large.k, large.n)[:, ::step] = values["b"].view(-1, few.k, large.n).to(device)
    tensors["c"].fill_(BEFORE)
    env.settle()
    with env.acting():
        settings = env.under_test.module.ops.FusedConfig(all_reduce_variant=variant)
        # Without a configuration the shares of a rank are the same, on every device.
        passed = None if PRODUCTS[name].owned else settings
        invoke(large, Product(shapes, {}, tensors), passed, None, iris.ops)
    env.settle()
    findings = Findings(env.rank)
    mine = owned(env, replace(large, block_m=settings.block_size_m, block_n=settings.block_size_n))
    for first, wanted in _expected(env, few, values):
        got = tensors["c"][first : first + len(wanted)]
        if mine is not None:
            wanted = torch.where(mine[first : first + len(wanted)].to(device), wanted, BEFORE)
        findings.same(f"rows from {first} on", got, wanted)
    env.settle()
    release(iris)
    return findings.first


def _case(name, variant, side, ranks):
    if _joins(name):
        return FusedCase(name, m=side, n=NARROW, k=side, variant=variant)
    return FusedCase(name, m=side // (ranks if _stacks(name) else 1), n=side, k=16, variant=variant)


def _joins(name):
    """Return whether the ranks' shards of A are joined by columns."""
    return PRODUCTS[name].shapes(FusedCase(name), 2)["b"][0] == 2


def _stacks(name):
    """Return whether the ranks' products are stacked."""
    return PRODUCTS[name].shapes(FusedCase(name), 2)["c"][0] == 2


def _expected(env, few, values):
    """Yield rows of the result, float16, and the number of the first one."""
    ranks, device = env.world_size, env.device.torch_device
    every_a = gathered(values["a"]).to(device).view(ranks, few.m, few.k)
    every_b = (values["b"] if _joins(few.op) else gathered(values["b"])).to(device).view(ranks, few.k, few.n)
    # Ranks whose products are summed.
    terms = [[rank] for rank in range(ranks)] if _stacks(few.op) else [range(ranks)]
    for part, summed in enumerate(terms):
        for first in range(0, few.m, CHUNK):
            total = sum(torch.matmul(every_a[rank, first : first + CHUNK], every_b[rank]) for rank in summed)
            yield part * few.m + first, total.half()


def cases(ranks, op):
    variants = PRODUCTS[op].variants if judged.extended() else PRODUCTS[op].variants[:1]
    sides = {LOCKED: LOCKED_SIDE} if ranks == 2 else {}
    return [HostCase("large", (op, variant, sides.get(variant, SIDE))) for variant in variants]


@requirement(
    "FUSED-LARGE-001",
    cases=cases,
    ranks=2,
    device="gpu",
    because="the emulated device would take hours",
    op=tuple(PRODUCTS),
)
def test_large(check, case):
    check(run, case)
