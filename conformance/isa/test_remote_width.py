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

from functools import partial

from conformance.collectives.calls import judge, perform, prepare
from conformance.collectives.cases import CollectiveCase
from conformance.isa.listing import expect_width
from conformance.rma import transfer
from conformance.rma.cases import TransferCase
from conformance.rma.operations import TRANSFERS, wide
from conformance.support.forms import neighbours
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import size_of, vector_of


def run(env, case, op):
    transferred = transfer.run(env, case, op)
    findings, launches = Findings(env.rank), env.launched()
    held = TRANSFERS[op]
    if not case.targets[env.rank]:
        return transferred
    own = case.span if env.rank in case.targets[env.rank] else 0
    for kind in held.remote:
        # Of the two sides of a copy one is this rank's own, which the case of the other direction judges.
        if len(held.remote) == 1 or (kind == "store") == held.pushes(case):
            expect_width(findings, launches, kind, case.span, counts(env), own)
    return transferred or findings.first


def counts(env):
    """Return True if the device counts the accesses that its launches execute."""
    return env.device.name == "emulated"


def cases(ranks, op, form):
    """Return a case for each of the op's rows: with all element types in Gluon, with some in Triton.

    With a mask the case ends inside a block; with hint as the only knowledge of the pointers it has no mask.
    """
    listed = []
    for number, row in enumerate(wide(op, form)):
        block = vector_of(row["dtype"]) * 64
        n = 2 * block if row["mask"] == "none" else block + 48
        fields = {name: value for name, value in row.items() if name != "op"}
        fields["direction"], targets = row["op"][1], neighbours(ranks, form, number)
        listed.append(TransferCase(**fields, n=n, targets=targets, spt=0, warps=1, aligned=True, form=form))
    return listed


@requirement("ISA-WIDTH-001", cases=partial(cases, form="gluon"), op=tuple(TRANSFERS), ranks=2, weak=False)
def test_width(check, case, op):
    check(run, case, op=op)


@requirement("ISA-WIDTH-003", cases=partial(cases, form="context"), op=tuple(TRANSFERS), ranks=2, weak=False)
def test_width_by_context(check, case, op):
    check(run, case, op=op)


@requirement("ISA-WIDTH-004", cases=partial(cases, form="function"), op=tuple(TRANSFERS), ranks=2, weak=False)
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


@requirement("ISA-WIDTH-002", cases=gather_cases, ranks=2, weak=False)
def test_gather_width(check, case):
    check(run_gather, case)
