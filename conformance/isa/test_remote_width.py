"""Remote accesses are 16 bytes per lane wherever the source allows it.

001  put, store, get, load and copy, if a lane's elements are 16 contiguous bytes, both pointers are 16-byte aligned,
     and there is no mask or the mask is ``offsets < n`` with n a multiple of 16.
002  The remote stores of all_gather, for 2- and 4-byte element types, if the row length and all row strides are
     multiples of 16 elements, with the default tile.
003  As 001 for Triton's ``DeviceContext``, and without a mask also if ``hint`` is Triton's only knowledge of the
     pointers.
004  As 003 for the functions.

The test reads the compiled code: amdgcn, or PTX and the machine code of NVIDIA GPUs. The emulated device also counts
the accesses to other ranks' memory; there the moved bytes must be exactly the payload. A GPU does not count them, so
that only the code is checked. The kernels are those of conformance/rma, and their results are checked too. One rank
alone has no remote memory, and a compiler may know that, so each of these needs two ranks.
"""

from dataclasses import replace
from functools import partial

from conformance.collectives.calls import judge, perform, prepare
from conformance.collectives.cases import CollectiveCase
from conformance.isa.listing import expect_width
from conformance.rma import transfer
from conformance.rma.cases import TransferCase
from conformance.rma.operations import TRANSFERS
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import ALL, SOME, size_of, vector_of


def run(env, case, op):
    transferred = transfer.run(env, case, op)
    findings, launches = Findings(env.rank), env.launched()
    held = TRANSFERS[op]
    own = case.span if env.rank in case.targets[env.rank] else 0
    for kind in held.remote:
        # Of the two sides of a copy one is this rank's own, which the case of the other direction judges.
        if len(held.remote) == 1 or (kind == "store") == held.pushes(case):
            expect_width(findings, launches, kind, case.span, counts(env), own)
    return transferred or findings.first


def counts(env):
    """Return True if the device counts the accesses that its launches execute."""
    return env.device.name == "emulated"


def cases(ranks, op):
    """Return a case for every element type without a mask, and one with a mask that ends inside a block."""
    return both_ways(op, wide_cases(ranks, ALL))


def triton_cases(ranks, op, form):
    """Return such cases for some element types, and one in which ``hint`` is the only knowledge of the pointers."""
    wide = [replace(case, form=form) for case in wide_cases(ranks, SOME)]
    return both_ways(op, [*wide, replace(wide[0], hinted=True)])


def both_ways(op, listed):
    """Return the cases, and those of an op that names both ranks also in the other direction."""
    if TRANSFERS[op].two_ranks:
        listed += [replace(case, direction="to" if case.direction == "from" else "from") for case in listed]
    return listed


def wide_cases(ranks, dtypes):
    targets = tuple(((rank + 1) % ranks,) for rank in range(ranks))
    listed = []
    for dtype in dtypes:
        block = vector_of(dtype) * 64
        listed.append(
            TransferCase(dtype=dtype, n=2 * block, targets=targets, spt=0, warps=1, mask="none", aligned=True)
        )
        listed.append(
            TransferCase(dtype=dtype, n=block + 48, targets=targets, spt=0, warps=1, mask="range", aligned=True)
        )
    return listed


@requirement("ISA-WIDTH-001", cases=cases, op=tuple(TRANSFERS), ranks=2)
def test_width(check, case, op):
    check(run, case, op=op)


@requirement("ISA-WIDTH-003", cases=partial(triton_cases, form="context"), op=tuple(TRANSFERS), ranks=2)
def test_width_by_context(check, case, op):
    check(run, case, op=op)


@requirement("ISA-WIDTH-004", cases=partial(triton_cases, form="function"), op=tuple(TRANSFERS), ranks=2)
def test_width_by_function(check, case, op):
    check(run, case, op=op)


def run_gather(env, case):
    calls = prepare(env, case)
    env.settle()
    outputs = perform(env, case, calls)
    env.settle()
    findings = Findings(env.rank)
    moved = env.world_size * case.m * case.n * size_of(case.dtype)
    expect_width(findings, env.launched(), "store", moved, counts(env), moved // env.world_size)
    return judge(env, case, calls, outputs) or findings.first


def gather_cases(ranks):
    return [
        CollectiveCase(dtype=dtype, m=m, n=n, block_m=32, block_n=64, warps=4, in_pad=pad, out_pad=pad, gluon=True)
        for dtype in ("fp16", "bf16", "fp32", "int16", "int32")
        for m, n, pad in ((8, 256, 0), (5, 48, 16))
    ]


@requirement("ISA-WIDTH-002", cases=gather_cases, ranks=2)
def test_gather_width(check, case):
    check(run_gather, case)
