"""Hints of other forms than the block: what a hint may be, and what is refused.

001  A hint with another number of entries than the pointers have dimensions is an error of compilation, of every
     transfer in Triton. A hint that is larger than the block, and true, changes no result. Each transfer has a wrong
     hint in each form, and for pointers of one dimension and of two; each form has every wrong hint with some transfer.
"""

import functools

import torch

from conformance.rma.cases import TransferCase
from conformance.rma.kernels import launch_between
from conformance.rma.operations import TRANSFERS
from conformance.rma.several import launch_tile_between
from conformance.support.cases import HostCase
from conformance.support.forms import FORMS
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import payload
from harness.cases.covering import covering
from harness.oracles import exchange

WRONG = {1: ((1, 16), (4, 4, 4)), 2: (16, (16,), (1, 4, 16))}
"""Hints that do not fit, by the number of dimensions of the pointers."""

TRITON = tuple(form for form in FORMS if form != "gluon")

SOURCE, TARGET, LARGE = 8192, 16384, 1024
"""Bytes of the arena, multiples of the hint that is larger than the block of 256 elements."""


@functools.cache
def wrong():
    """Return the combinations of op, form, dimensions and a hint that does not fit."""
    hints = [(dimensions, hint) for dimensions, some in WRONG.items() for hint in some]
    return covering(
        {"op": tuple(TRANSFERS), "form": TRITON, "hint": hints},
        strength=1,
        also=[("op", "form"), ("op", "dimensions"), ("form", "hint")],
        derived={"dimensions": lambda row: row["hint"][0]},
    )


def run(env, case):
    (form,) = case.arguments
    findings, me = Findings(env.rank), env.rank
    right, left = (me + 1) % env.world_size, (me - 1) % env.world_size
    plain = TransferCase(n=200, spt=4, mask="range", form=form, aligned=True)
    tile = TransferCase(n=100, mask="holes", form=form)
    env.image.reset()
    mine = payload("int32", plain.n, rank=me, ranks=env.world_size)
    source = env.image.claim("source", SOURCE, plain.n, torch.int32)
    env.image.fill(source, mine)
    target = env.image.claim("target", TARGET, plain.n, torch.int32)
    around = {(rank, (rank + 1) % env.world_size) for rank in range(env.world_size)}
    sent = exchange(mine, around, rank=me, ranks=env.world_size)[left]
    acts = form != "context" or me == 0  # a kernel with DeviceContext is compiled for one rank
    if form != "context" or left == 0:
        env.image.expect(target, sent)
    ends = env.pointer(SOURCE, torch.int32), env.pointer(TARGET, torch.int32)
    keep = torch.ones(256, dtype=torch.uint8, device=env.device.torch_device)
    env.settle()
    with env.acting():
        # One rank's compiler is enough: a kernel that does not compile is in no cache, and each rank would try again.
        for row in (row for row in wrong() if row["form"] == form and me == 0):
            op, (dimensions, hint) = TRANSFERS[row["op"]], row["hint"]
            one_case, start = (plain, launch_between) if dimensions == 1 else (tile, launch_tile_between)
            ranks = op.ranks(one_case, me, right)
            findings.raises(
                f"{op.name} of {dimensions}-D pointers with hint={hint}",
                Exception,  # Triton's CompilationError, whose text has the kernel's
                lambda o=op, c=one_case, f=start, r=ranks, h=hint: f(env, o, c, *ends, keep, *r, hint=h),
                says=f"def {'transfer' if dimensions == 1 else 'several'}_by_{form}(",
            )
        if acts:
            launch_between(env, TRANSFERS["put"], plain, *ends, keep, me, right, hint=LARGE)
    env.settle()
    return findings.first or env.image.difference()


def cases(ranks):
    return [HostCase("hints", (form,)) for form in TRITON]


@requirement("RMA-HINT-001", cases=cases, weak=False)
def test_hints(check, case):
    check(run, case)
