"""Remote accesses are 16 bytes per lane wherever the source allows it.

001  put, store, get, load and copy, when a lane's elements are 16 contiguous bytes, both pointers are 16-byte
     aligned, and there is no mask or the mask is ``offsets < n`` with n a multiple of 16.
002  The remote stores of all_gather, for 2- and 4-byte element types, when the row length and all row strides are
     multiples of 16 elements, with the default tile.
003  As 001 for Triton's ``DeviceContext``, and where Triton knows nothing of the pointers but ``hint`` tells it, and
     there is no mask.
004  As 003 for the functions.

Looked at in the compiled code, on NVIDIA GPUs in PTX and in machine code; and, where the device counts it, as the
emulated one does, in what the launch executed: there the bytes that were moved must be just the payload. On a GPU
nothing counts them, so there the code is all that is checked. The kernels are those of conformance/rma, and their
results are checked too.
"""

import importlib
from dataclasses import replace
from functools import partial

from conformance.collectives.calls import judge, perform, prepare
from conformance.isa.listing import expect_width
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import ALL, SOME, CollectiveCase, TransferCase, size_of, vector_of

REMOTE = {"put": ("store",), "store": ("store",), "get": ("load",), "load": ("load",), "copy": ("store", "load")}


def _run(op, env, case):
    transferred = importlib.import_module(f"conformance.rma.test_{op}").run(env, case)
    found, launches = Findings(env.rank), env.launched()
    for kind in REMOTE[op]:
        expect_width(found, launches, kind, case.span, counts(env))
    return transferred or found.first


def counts(env):
    """Whether the device counts what its launches execute."""
    return env.device.name == "emulated"


def run_put(env, case):
    return _run("put", env, case)


def run_store(env, case):
    return _run("store", env, case)


def run_get(env, case):
    return _run("get", env, case)


def run_load(env, case):
    return _run("load", env, case)


def run_copy(env, case):
    return _run("copy", env, case)


RUNS = {"put": run_put, "store": run_store, "get": run_get, "load": run_load, "copy": run_copy}


def cases(ranks, op):
    """Every element type without a mask, and with a mask that ends inside a block."""
    return wide_cases(ranks, ALL)


def triton_cases(ranks, op, form):
    """Some element types so, and one whose pointers the kernel is told of by ``hint`` alone."""
    wide = [replace(case, form=form) for case in wide_cases(ranks, SOME)]
    return [*wide, replace(wide[0], hinted=True)]


def wide_cases(ranks, dtypes):
    targets = tuple(((rank + 1) % ranks,) for rank in range(ranks))
    found = []
    for dtype in dtypes:
        block = vector_of(dtype) * 64
        found.append(TransferCase(dtype=dtype, n=2 * block, targets=targets, spt=0, warps=1, mask="none", aligned=True))
        found.append(
            TransferCase(dtype=dtype, n=block + 48, targets=targets, spt=0, warps=1, mask="range", aligned=True)
        )
    return found


@requirement("ISA-WIDTH-001", cases=cases, op=tuple(REMOTE))
def test_width(check, case, op):
    check(RUNS[op], case)


@requirement("ISA-WIDTH-003", cases=partial(triton_cases, form="context"), op=tuple(REMOTE))
def test_width_by_context(check, case, op):
    check(RUNS[op], case)


@requirement("ISA-WIDTH-004", cases=partial(triton_cases, form="function"), op=tuple(REMOTE))
def test_width_by_function(check, case, op):
    check(RUNS[op], case)


def run_gather(env, case):
    calls = prepare(env, case)
    env.settle()
    outputs = perform(env, case, calls)
    env.settle()
    found = Findings(env.rank)
    moved = env.world_size * case.m * case.n * size_of(case.dtype)
    expect_width(found, env.launched(), "store", moved, counts(env))
    return judge(env, case, calls, outputs) or found.first


def gather_cases(ranks):
    return [
        CollectiveCase(dtype=dtype, m=m, n=n, block_m=32, block_n=64, warps=4, in_pad=pad, out_pad=pad, gluon=True)
        for dtype in ("fp16", "bf16", "fp32", "int16", "int32")
        for m, n, pad in ((8, 256, 0), (5, 48, 16))
    ]


@requirement("ISA-WIDTH-002", cases=gather_cases)
def test_gather_width(check, case):
    check(run_gather, case)
