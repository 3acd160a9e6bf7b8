"""``hint`` of an atomic reaches the compiled code: additions of two adjacent 2-byte elements become one of 4 bytes.

The kernel has no knowledge of the pointers except ``hint=4``. Without the hint, an AMD GPU adds to each element in a
loop around a compare-and-swap of the 4 bytes that contain it. Other atomics compile to the same code with and without a
hint.
"""

import torch
import triton
import triton.language as tl

from conformance.isa.targets import unhinted
from conformance.support.cases import HostCase
from conformance.support.instances import release
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness import isa

COUNT = 256


@triton.jit(do_not_specialize=["cells", "to_rank"])
def by_context(
    DeviceContext: tl.constexpr, context_tensor, RANK: tl.constexpr, RANKS: tl.constexpr, cells, values, to_rank,
    SUB: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    ctx = DeviceContext.initialize(context_tensor, RANK, RANKS)
    offsets = tl.arange(0, COUNT)
    value = tl.load(values + offsets)
    if SUB:
        old = ctx.atomic_sub(cells + offsets, value, to_rank, sem="relaxed", scope="gpu", hint=4)
    else:
        old = ctx.atomic_add(cells + offsets, value, to_rank, sem="relaxed", scope="gpu", hint=4)
    tl.store(values + offsets, old)


@triton.jit(do_not_specialize=["rank", "cells", "to_rank"])
def by_function(add: tl.constexpr, heap_bases, rank, cells, values, to_rank, COUNT: tl.constexpr):
    """Call ``add``, which is atomic_add or atomic_sub."""
    offsets = tl.arange(0, COUNT)
    value = tl.load(values + offsets)
    old = add(cells + offsets, value, rank, to_rank, heap_bases, sem="relaxed", scope="gpu", hint=4)
    tl.store(values + offsets, old)


def run(env, case):
    form, op = case.arguments
    me, ranks = env.rank, env.world_size
    findings = Findings(me)
    # A kernel with ``DeviceContext`` is compiled for one rank: the ranks take the operations by turns.
    actor = ("add", "sub").index(op) % ranks if form == "context" else None
    iris = env.under_test.iris(heap_size=1 << 16)
    cells = iris.zeros(COUNT, dtype=torch.float16)
    values = _sent(me).to(env.device.torch_device)
    env.settle()
    env.launched()
    with env.acting():
        if actor not in (None, me):
            values.zero_()  # as the kernel would leave them
        elif form == "context":
            by_context[(1,)](
                env.under_test.triton_context, iris.get_device_context(), me, ranks, cells, values, (me + 1) % ranks,
                op == "sub", COUNT, num_warps=1,
            )  # fmt: skip
        else:
            function = env.under_test.function(f"atomic_{op}")
            by_function[(1,)](
                function, iris.get_heap_bases(), me, cells, values, (me + 1) % ranks, COUNT, num_warps=1
            )  # fmt: skip
    env.settle()
    sender = (me - 1) % ranks
    sent = _sent(sender) if actor in (None, sender) else torch.zeros(COUNT, dtype=torch.float16)
    findings.same(f"cells after {op}", cells, sent if op == "add" else 0 - sent)
    findings.same(f"old values of {op}", values, torch.zeros_like(values))
    for launch in env.launched():
        for code in isa.codes_of(launch):
            # NVIDIA's assembler chooses the instructions for the 4 bytes by itself.
            if code.language != "sass":
                single = unhinted(code)
                findings.true(f"atomics of 4 bytes, and no loops, in {code.language}: {single}", single is None)
    env.settle()
    release(iris)
    return findings.first


def _sent(rank):
    """Return a rank's operands: small whole numbers, so that sums are exact."""
    return (torch.arange(COUNT) % 50 + 1 + 50 * rank).to(torch.float16)


def cases(ranks):
    return [HostCase("hinted", (form, op)) for form in ("context", "function") for op in ("add", "sub")]


@requirement("ISA-WIDTH-005", cases=cases, weak=False)
def test_hinted_atomics(check, case):
    check(run, case)
