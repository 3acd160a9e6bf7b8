"""In a debug build, an access outside the heap or to a rank outside the world stops the kernel before memory changes.

The fault names the operation, kernel and source line, the bytes touched relative to the heap's start, the heap's size,
and the ranks. Accesses inside the heap still work, even if masked-off lanes point beyond the heap. On a GPU a failed
assertion ends the process, so this test needs the emulated device.

Each transfer and atomic moves ``n`` int32 elements of a block; an atomic without a mask acts only on the last of them.
"""

import inspect
import re
from pathlib import Path

import torch

from conformance.atomics import operations as atomics
from conformance.atomics.operations import ATOMICS
from conformance.negative import checked
from conformance.rma import operations as transfers
from conformance.rma.cases import TransferCase
from conformance.rma.operations import TRANSFERS
from conformance.rma.words import Address
from conformance.support.cases import HostCase
from conformance.support.forms import FORMS
from conformance.support.instances import OtherInstance, release
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.errors import KernelFault

HEAP, BLOCK = 1 << 16, 64


def run(env, case):
    """Call every operation on one rank, first with each wrong argument and then with valid ones. Other ranks do
    nothing.

    It is not rank 0, whose heap a check that drops a rank would look at, and the heap of its peer is another one.
    """
    form, chosen = case.arguments[0], ops(case.arguments[1])
    actor = 1 % env.world_size
    peer = (actor + 1) % env.world_size
    findings = Findings(env.rank)
    iris = env.under_test.iris(heap_size=HEAP)
    heap = iris.zeros(HEAP // 4, dtype=torch.int32)
    local = OtherInstance(env, iris)
    env.settle()
    if env.rank == actor:
        for op in chosen:
            for arguments, wrong in _wrong(op, env.rank, peer, env.world_size):
                _expect_fault(local, findings, form, chosen, op, arguments, wrong)
    env.settle()
    findings.true("no heap was changed", not heap.any())
    env.settle()
    if env.rank == actor:
        for op in chosen:
            try:
                _launch(local, form, chosen, op, start=HEAP - 12, n=3, to_rank=peer)
            except KernelFault as fault:
                findings.note(f"{op.name} of the heap's last elements", str(fault), "no fault")
    env.settle()
    release(iris)
    return findings.first


OPS = ("one of each kind", "the others")
"""The others run at the first world size only: their kernels are large."""


def ops(chosen):
    """Return the first transfer and the first atomic, or all others."""
    (transfer, *other_transfers), (atomic, *other_atomics) = TRANSFERS.values(), ATOMICS.values()
    return (transfer, atomic) if chosen == OPS[0] else (*other_transfers, *other_atomics)


def _two_ranks(op):
    return isinstance(op, transfers.Transfer) and op.two_ranks


def _wrong(op, me, peer, ranks):
    """Yield wrong arguments of ``_launch``, and the texts that the fault must contain.

    The first transfer gets every kind of wrong argument. The others get the two that are missed most easily: one
    element too many, and one rank too many; for an op with two ranks, at both ends.
    """
    first_of_all = op is next(iter(TRANSFERS.values()))
    starts = ((HEAP - 8, 3), (-4, 1), (HEAP, 1), (-(1 << 33), 2), (1 << 33, 2))
    for start, n in starts if first_of_all else starts[:1]:
        end = start + 4 * n
        first = start if getattr(op, "masked", True) else end - 4
        yield {"start": start, "n": n, "to_rank": peer}, _outside(first, end - 1, peer)
        if _two_ranks(op):
            yield {"source": start, "n": n, "to_rank": peer}, _outside(first, end - 1, me)
    for rank in (ranks, -1, 1 << 20) if first_of_all else (ranks,):
        words = ("rank outside the world", f"target rank: {rank}", f"number of ranks: {ranks}")
        yield {"to_rank": rank}, words
        if _two_ranks(op):
            yield {"from_rank": rank, "to_rank": peer}, words


def _outside(first, last, rank):
    return (
        "pointer outside the heap",
        f"first byte of the heap that is touched: {first}",
        f"last byte of the heap that is touched: {last}",
        f"bytes in the heap: {HEAP}",
        f"target rank: {rank}",
    )


def _expect_fault(env, findings, form, chosen, op, arguments, wrong):
    label = f"{op.name} of {arguments} in the form {form}"
    try:
        _launch(env, form, chosen, op, **arguments)
        findings.note(label, "no fault", wrong[0])
    except KernelFault as fault:
        kernel, place = _place(op, form)
        for word in (f"iris {_public(op)}: ", *wrong, f"by rank: {env.rank}", kernel, place):
            findings.true(f"{word} in the fault of {label}: {fault}", word in str(fault))


def _public(op):
    """Return the public name of an op."""
    return op.name if isinstance(op, transfers.Transfer) else f"atomic_{op.name}"


def _place(op, form):
    """Return the kernel's name and the ``file:line`` of its call of the operation.

    The folder is left out: Triton's cache may hold the code of another copy of the file.
    """
    table = transfers if isinstance(op, transfers.Transfer) else atomics
    lines, first = inspect.getsourcelines(op.calls[form].fn)
    call = re.compile(rf"ctx\.{_public(op)}\(|(?<![.\w])({_public(op)}|function)\(")
    (line,) = (first + i for i, text in enumerate(lines) if call.search(text))
    return checked.KERNELS[form].fn.__name__, f"{Path(table.__file__).name}:{line}'"


def _launch(env, form, chosen, op, *, to_rank, start=0, n=1, source=0, from_rank=None):
    """Launch the op, one of the ``chosen`` ones, once in a debug build.

    ``start``, and ``source`` if both ends are on a heap, are bytes from the heap's start. ``from_rank`` defaults to the
    calling rank.
    """
    base = int(env.iris.get_heap_bases()[env.rank])
    local, far = torch.zeros(BLOCK, dtype=torch.int32, device=env.device.torch_device), Address(base + start)
    ends, ranks = (local, far), (env.rank, to_rank)
    if isinstance(op, transfers.Transfer):
        case = TransferCase(n=n, spt=1, form=form)
        # An op with two ranks can only read from the heap.
        near = Address(base + source) if op.two_ranks else local
        ends = (near, far) if op.pushes(case) else (far, near)
        ranks = op.ranks(case, env.rank if from_rank is None else from_rank, to_rank)
    several = [one for one in chosen if isinstance(one, transfers.Transfer)]
    others = [one for one in chosen if not isinstance(one, transfers.Transfer)]
    checked.launch(env, form, several, others, [*several, *others].index(op), *ends, n, *ranks)
    env.device.synchronize()


def cases(ranks, ops):
    return [HostCase("debug", (form, ops)) for form in FORMS]


@requirement(
    "NEGATIVE-DEBUG-001",
    cases=cases,
    device="emulated",
    because="on a GPU a failed assertion ends the process",
    ops=OPS,
    weak=False,
)
def test_debug_build(check, case):
    check(run, case, deadline=180)  # without compilation, up to 13 s where ranks share cores
