"""Fused products with a matrix or a bias whose lines (rows or columns) go beyond 2^31 elements, which is 4 GiB: index
times stride needs 64 bits.

Line 15 of 17 is that far, so that both an index within a block of 16 and the step to the next block are too large, and
where ranks' parts are joined, each part is. The heap is sparse: only the lines and the addresses that a product of 32
bits would give are touched. No stride is 1 or even, so that all cases of an op run one compiled kernel.
"""

import torch

from conformance.ops.cases import FusedCase
from conformance.ops.operations import PRODUCTS
from conformance.ops.products import Product, config, inputs_of, invoke, owned, refill, shapes_of, wanted_of
from conformance.support.cases import HostCase
from conformance.support.instances import release
from fixtures import judged
from fixtures.findings import Findings
from fixtures.requirement import requirement

BLOCK, SIZE = 16, 17
FAR, NEAR = 2**31 // (BLOCK - 1) + 1, 3
"""Elements from one line to the next one, and from one element of a line to the next one."""
BETWEEN = -99
"""Elements where only a wrong address leads."""


def run(env, case):
    name, far, lines, biased = case.arguments
    block = {"block_m": BLOCK, "block_n": BLOCK, "block_k": BLOCK}
    fused = FusedCase(name, m=SIZE, n=SIZE, k=SIZE, biased=biased, **block)
    shapes = shapes_of(fused, env.world_size)
    strides = {one: _strides(shape, lines if one == far else "") for one, shape in shapes.items()}
    counts = {one: _extent(shape, strides[one]) for one, shape in shapes.items()}
    iris = env.under_test.iris(heap_size=sum(counts.values()) * torch.float16.itemsize + (4 << 20))
    memories = {one: iris.empty(count, dtype=torch.float16) for one, count in counts.items()}
    tensors = {one: memories[one].as_strided(shape, strides[one]) for one, shape in shapes.items()}
    watched = _wrapped(memories[far], shapes[far][lines == "columns"])
    for part in watched:
        part.fill_(BETWEEN)
    output = tensors["c"]
    output.fill_(-98)
    if biased:
        tensors["bias"] = tensors["bias"][:, 0]
    product = Product(shapes, {}, tensors)
    values = inputs_of(env, fused, product, 0)
    wanted = wanted_of(env, fused, product, values).to(output.device)
    if (mine := owned(env, fused)) is not None:
        wanted = torch.where(mine.to(output.device), wanted, output)
    refill(product, {one: value.to(output.device) for one, value in values.items()}, output.clone())
    env.settle()
    with env.acting():
        invoke(fused, product, config(env, fused), None, iris.ops)
    env.settle()
    findings = Findings(env.rank)
    findings.same("the output", output.contiguous(), wanted.contiguous())
    for part in watched:
        place = part.storage_offset() - memories[far].storage_offset()
        label = f"elements from {place:#x} of {far} on, which must stay unchanged"
        findings.same(label, part, torch.full_like(part, BETWEEN))
    env.settle()
    release(iris)
    return findings.first


def _strides(shape, lines):
    """Return two strides, in elements; ``lines``: what is far apart, "" for nothing."""
    return {"rows": (FAR, NEAR), "columns": (NEAR, FAR), "": (NEAR * shape[1] + 2, NEAR)}[lines]


def _extent(shape, strides):
    """Return the elements from the first one of a matrix to its last one, both included."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def _wrapped(memory, lines):
    """Return the parts of the memory, outside the lines, where addresses of lines end if they lose bits: those of 2 GiB
    and more, or of 4 GiB and more."""
    length = NEAR * SIZE
    starts = {line * FAR for line in range(lines)}
    wrapped = {start % size for start in starts for size in (2**30, 2**31)} - starts
    apart = [place for place in sorted(wrapped) if all(abs(place - start) >= length for start in starts)]
    return [memory[place : place + length] for place in apart]


def cases(ranks, op):
    biased = judged.extended() or not PRODUCTS[op].sums  # as the published API has it
    far = [(matrix, lines) for matrix in "abc" for lines in ("rows", "columns")] + [("bias", "rows")] * biased
    return [HostCase("far", (op, *which, biased)) for which in far]


@requirement("FUSED-FAR-001", cases=cases, op=tuple(PRODUCTS), weak=False)
def test_far(check, case):
    check(run, case)
