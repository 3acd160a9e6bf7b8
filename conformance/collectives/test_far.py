"""Collectives on tensors whose rows or columns are more than 2 GiB and 4 GiB apart: index times stride needs 64 bits.

The heap is sparse: only the rows or columns (*lines*) and the addresses that a 32-bit product would give are touched.
Messages, which describe their tensors to the other side, also have strides that 32 bits cannot hold.
"""

import torch

from conformance.collectives.operations import ALWAYS, MESSAGES, Inputs, described, names
from conformance.support.cases import HostCase
from conformance.support.instances import release
from fixtures import judged
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import contribution, payload

GIB = 1 << 30
LINES, LENGTH = 5, 64
HIGH = 4
"""Lines of a tile: both the lines of one tile, and tiles, are far apart."""
LOW_LATENCY = "ll"
"""The protocol for small sizes, in the place of a variant."""
WIDE = "wide "
"""Before the kind of the lines: two lines, whose distance needs more than 32 bits."""
WIDE_MESSAGES = (("input", "rows"), ("input", "columns"), ("output", "rows"))
"""Sides of a message with such lines. The receiver describes its tensor in 64-bit words, for both kinds alike."""


def run(env, case):
    name, side, language, variant, kind = (*case.arguments, "", "")[:5]
    op, protocol = described(name), {}
    if variant == LOW_LATENCY:
        variant, protocol = next(one.name for one in op.variants if one.low_latency), {"protocol": LOW_LATENCY}
    me, ranks = env.rank, env.world_size
    findings = Findings(me)
    wide = kind.startswith(WIDE)
    # turned: the columns are far apart; all_to_all's blocks are columns.
    turned = kind.endswith("columns") if kind else not op.far_rows
    height = 2 if wide else LINES
    inputs, outputs = op.shapes(*((LENGTH, height) if turned else (height, LENGTH)), ranks)
    shape = outputs if side == "output" else inputs
    lines = shape[1] if turned else shape[0]
    # Below 2 GiB, so that the stride itself is a 32-bit argument and only its product with a line overflows.
    stride = min((5 * GIB) // (lines - 1) // 4096 + 1, 2 * GIB // 4096 - 1) * 4096
    if wide:
        stride = 2 * GIB + 3 * 4096
    heap_size = stride * lines + (2 << 20)
    iris = env.under_test.iris(heap_size=heap_size)
    near = iris.empty(*(inputs if side == "output" else outputs), dtype=torch.int8)
    heap = iris.empty(stride * lines + 4096, dtype=torch.int8)
    far = heap.as_strided(shape, (1, stride) if turned else (stride, 1))
    count = inputs[0] * inputs[1]
    if op.reduces:
        mine = contribution("sum", "int8", count, member=me, members=ranks).view(inputs)
    else:
        mine = payload("int8", count, rank=me, ranks=ranks).view(inputs)
    source, target = (near, far) if side == "output" else (far, near)
    if op.in_place == ALWAYS:
        source = target = far
    block_m, block_n = (LENGTH, HIGH) if turned else (HIGH, LENGTH)
    # Addresses that a product of 31 or 32 bits would give, and the line after the last one, which a ragged tile leaves
    # out. They, and the lines, get a pattern before the call.
    places = {line * stride for line in range(lines)}
    watched = sorted({lines * stride, *(place % size for place in places for size in (2 * GIB, 4 * GIB))} - places)
    for place in watched:
        heap[place : place + LENGTH].fill_(-99)
    target.fill_(-98)
    source.copy_(mine)
    wanted, before = op.reference(Inputs(mine, members=ranks)), torch.full(outputs, -98, dtype=torch.int8)
    if op.owned is not None:
        tiles = op.case(m=outputs[0], n=outputs[1], block_m=block_m, block_n=block_n)
        wanted = torch.where(op.owned(tiles, me, ranks), wanted, before)
    wanted = wanted if me == 0 or op.results_at == "all" else before
    env.settle()
    with env.acting():
        settings = env.under_test.config(
            block_size_m=block_m, block_size_n=block_n, num_warps=env.warps(1), use_gluon=language == "gluon",
            threads_per_warp=env.device.lanes, **({f"{name}_variant": variant} if variant else {}), **protocol,
        )  # fmt: skip
        if name == "sendrecv":
            iris.ccl.sendrecv(source, target, (me + 1) % ranks, (me - 1) % ranks, config=settings)
        else:
            given = {"input": source, "output": target}
            order = ("output",) if op.in_place == ALWAYS else ("output", "input")
            tensors = [given[which] if op.passes(which, is_root=me == 0) else None for which in order]
            getattr(iris.ccl, name)(*tensors, config=settings, **({op.root: 0} if op.root else {}))
    env.settle()
    findings.same("the output", target.contiguous(), wanted)
    for place in watched:
        got = heap[place : place + LENGTH]
        findings.same(f"{LENGTH} bytes at {place:#x}, which must stay unchanged", got, torch.full_like(got, -99))
    env.settle()
    release(iris)
    return findings.first


def cases(ranks, op):
    op = described(op)
    # Variants with their own kernel. One side is enough, since both sides have the same rows and columns. The second
    # kind is in Gluon, so that the kernels of both languages have an output with other strides than the input.
    own = [
        ("output", language, variant.name, kind)
        for variant in op.variants
        for language, kind in zip(("triton", "gluon"), variant.far, strict=False)
    ]
    fast = [(side, "triton", LOW_LATENCY) for side in ("output", "input") if op.fast(ranks)]
    wide = [(side, "triton", "", f"{WIDE}{kind}") for side, kind in WIDE_MESSAGES if op.name in MESSAGES]
    every = [HostCase("far", (op.name, *which)) for which in (*op.far, *own, *fast, *wide)]
    if judged.extended():
        return every
    # The published API has no variants with kernels of their own.
    languages = ("triton", "gluon") if op.published_gluon else ("triton",)
    return [case for case in every if case.arguments[2] in languages and len(case.arguments) == 3]


@requirement("CCL-FAR-001", cases=cases, op=(*names(lambda op: op.far), "sendrecv"), weak=False)
def test_far(check, case):
    check(run, case)
