"""In a debug build, an access outside the heap or to a rank outside the world stops the kernel before memory changes.

The fault names the operation, kernel and source line, the bytes touched relative to the heap's start, the heap's size,
and the ranks. Accesses inside the heap still work, even if masked-off lanes point beyond the heap. On a GPU a failed
assertion ends the process, so this test needs the emulated device.

Each transfer and atomic moves ``n`` int32 elements of a block; an atomic without a mask acts only on the last of them.
The functions, which are passed the rank whose heap holds the pointer, are also passed a wrong one, and a peer's pointer
with the peer's rank. A collective of tiles, whose flags are checked likewise, has its result.
"""

import copy
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
from conformance.x import tiles
from conformance.x.cases import TileCase
from conformance.x.operations import TILES, has_methods
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import of_name
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
            for arguments, wrong in _wrong(op, form, env.rank, peer, env.world_size):
                _expect_fault(local, findings, form, chosen, op, arguments, wrong)
    env.settle()
    findings.true("no heap was changed", not heap.any())
    env.settle()
    if env.rank == actor:
        for op in chosen:
            try:
                _launch(local, form, chosen, op, start=HEAP - 12, n=3, to_rank=peer)
                if _is_first(op) and form == "function":
                    _launch(local, form, chosen, op, start=HEAP - 12, n=3, from_rank=peer, to_rank=env.rank)
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


def _is_first(op):
    return op is next(iter(TRANSFERS.values()))


def _two_ranks(op):
    return isinstance(op, transfers.Transfer) and op.two_ranks


def _wrong(op, form, me, peer, ranks):
    """Yield wrong arguments of ``_launch``, and the texts that the fault must contain.

    The first transfer gets every kind of wrong argument. The others get the two that are missed most easily: one
    element too many, and one rank too many; for an op with two ranks, at both ends.
    """
    first_of_all = _is_first(op)
    starts = ((HEAP - 8, 3), (-4, 1), (HEAP - 3, 1), (HEAP, 1), (-(1 << 33), 2), (1 << 33, 2))
    for start, n in starts if first_of_all else starts[:1]:
        end = start + 4 * n
        first = start if getattr(op, "masked", True) else end - 4
        yield {"start": start, "n": n, "to_rank": peer}, _outside(first, end - 1, me, peer)
        if _two_ranks(op):
            yield {"source": start, "n": n, "to_rank": peer}, _outside(first, end - 1, me, me)
    for rank in (ranks, -1, 1 << 33) if first_of_all else (ranks,):
        words = ("rank outside the world", f"target rank: {rank}", f"number of ranks: {ranks}")
        # The address is that in the caller's heap.
        yield {"to_rank": rank}, (*words, "first byte of the heap that is touched: 0", f"heap of rank: {me}")
        if _two_ranks(op):
            yield {"from_rank": rank, "to_rank": peer}, words
        elif first_of_all and form == "function":
            yield {"from_rank": rank, "to_rank": peer}, (words[0], f"heap of rank: {rank}", f"target rank: {peer}")


def _outside(first, last, holder, target):
    return (
        "pointer outside the heap",
        f"first byte of the heap that is touched: {first}",
        f"last byte of the heap that is touched: {last}",
        f"bytes in the heap: {HEAP}",
        f"heap of rank: {holder}",
        f"target rank: {target}",
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
    """Launch the op, one of the ``chosen`` ones, once in a debug build. A function is passed ``from_rank`` as the rank
    that calls it.

    ``start``, and ``source`` if both ends are on a heap, are bytes from the heap's start: that of ``from_rank``, which
    defaults to the calling rank, if it is a rank and the op has only one end there.
    """
    bases = env.iris.get_heap_bases()
    moved = from_rank is not None and not _two_ranks(op) and 0 <= from_rank < env.world_size
    base = int(bases[from_rank if moved else env.rank])
    local, far = torch.zeros(BLOCK, dtype=torch.int32, device=env.device.torch_device), Address(base + start)
    ends, ranks, caller = (local, far), (env.rank, to_rank), env
    if isinstance(op, transfers.Transfer):
        case = TransferCase(n=n, spt=1, form=form)
        # An op with two ranks can only read from the heap.
        near = Address(base + source) if op.two_ranks else local
        ends = (near, far) if op.pushes(case) else (far, near)
        ranks = op.ranks(case, env.rank if from_rank is None else from_rank, to_rank)
        if from_rank is not None and not op.two_ranks:
            caller = copy.copy(env)
            caller.rank = from_rank
    several = [one for one in chosen if isinstance(one, transfers.Transfer)]
    others = [one for one in chosen if not isinstance(one, transfers.Transfer)]
    checked.launch(caller, form, several, others, [*several, *others].index(op), *ends, n, *ranks)
    env.device.synchronize()


def run_tiles(env, case):
    """Sum a tile of each rank on every rank; rank 1 does so in a debug build, the others run a kernel of other
    requirements."""
    (name,) = case.arguments
    dtype, block_m, block_n, warps = TILES[name].aligned
    shape = TileCase(
        name, dtype, block_m, block_n, block_m=block_m, block_n=block_n, warps=warps, methods=True, aligned=True
    )
    findings, kind = Findings(env.rank), of_name(dtype)
    iris = env.under_test.iris(heap_size=HEAP)
    given, shared, target = (iris.zeros(shape.m, shape.n, dtype=kind) for _ in range(3))
    locks = iris.zeros(shape.tiles, dtype=torch.int32)
    given.fill_(env.rank + 1)
    env.settle()
    try:
        tiles.launch(env, shape, iris, given, shared, target, locks, **({"debug": True} if env.rank == 1 else {}))
        env.device.synchronize()
    except KernelFault as fault:
        findings.note(f"{name} of tiles on the heap", str(fault), "no fault")
    env.settle()
    wanted = torch.full((shape.m, shape.n), float(sum(range(1, env.world_size + 1))), dtype=kind)
    findings.same("the sum of all ranks' tiles", target.cpu(), wanted)
    env.settle()
    release(iris)
    return findings.first


SUMMED = "all_reduce_one_shot"


def cases(ranks, ops):
    summed = [HostCase("tiles", (SUMMED,))] if ops == OPS[0] and has_methods(SUMMED) else []
    return [*(HostCase("debug", (form, ops)) for form in FORMS), *summed]


@requirement(
    "NEGATIVE-DEBUG-001",
    cases=cases,
    device="emulated",
    because="on a GPU a failed assertion ends the process",
    ops=OPS,
    weak=False,
)
def test_debug_build(check, case):
    check(
        run_tiles if case.what == "tiles" else run, case, deadline=180
    )  # without compilation, up to 13 s where ranks share cores
