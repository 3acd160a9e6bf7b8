"""Repeated calls with different data each time, without clearing memory in between, and with one late rank.

In each turn, n words hold turn * 1000 + rank * 100 + index, so that stale data and another rank's data are detected. A
turn writes to one of two buffers in turn, since a peer may still read the buffer of the previous turn. Only the call
under test orders the ranks.
"""

import numpy as np
import torch

from conformance.rma.cases import TransferCase
from conformance.rma.kernels import launch
from conformance.rma.operations import TRANSFERS
from conformance.rma.words import read_word
from conformance.support.cases import HostCase
from fixtures.findings import Findings
from fixtures.requirement import requirement

SOURCE, SLOTS, STRIDE = 8192, 65536, 16384


def words(n, turn, rank):
    """Return the words of ``rank`` in a turn."""
    return torch.arange(n, dtype=torch.int32) + (1000 * turn + 100 * rank)


class Turn:
    """Data of one turn: ``left`` and ``right`` are the neighbours, ``slot`` is the offset of the turn's buffer in the
    arena."""

    def __init__(self, env, n, turn):
        self.env, self.n, self.turn = env, n, turn
        self.left, self.right = (env.rank - 1) % env.world_size, (env.rank + 1) % env.world_size
        self.slot = SLOTS + STRIDE * (turn % 2)
        self.case = TransferCase(dtype="int32", n=n)
        self.keep = torch.ones(1, dtype=torch.uint8, device=env.device.torch_device)

    def buffer(self, start):
        """Return the n words at offset ``start`` of the arena."""
        return self.env.image.arena[start : start + 4 * self.n].view(torch.int32)

    def mine(self):
        return words(self.n, self.turn, self.env.rank)


def puts(env, findings, turn):
    """Put to the right neighbour, then barrier: the left neighbour's words have arrived."""
    source = turn.buffer(SOURCE + STRIDE // 4 * (turn.turn % 2))
    source.copy_(turn.mine())
    launch(env, TRANSFERS["put"], turn.case, source, turn.buffer(turn.slot), turn.keep, turn.right)
    env.iris.barrier()
    findings.same(f"put {turn.turn} from rank {turn.left}", turn.buffer(turn.slot), words(turn.n, turn.turn, turn.left))


def gets(env, findings, turn):
    """Write this rank's words, then barrier: a get from the right neighbour returns that rank's words."""
    turn.buffer(turn.slot).copy_(turn.mine())
    env.iris.barrier()
    target = torch.full((turn.n,), -1, dtype=torch.int32, device=env.device.torch_device)
    launch(env, TRANSFERS["get"], turn.case, turn.buffer(turn.slot), target, turn.keep, turn.right)
    env.device.synchronize()
    findings.same(f"get {turn.turn} from rank {turn.right}", target, words(turn.n, turn.turn, turn.right))


def device_barriers(env, findings, turn):
    """Put to the right neighbour, then device_barrier: the host waits only to compare."""
    source = turn.buffer(SOURCE + STRIDE // 4 * (turn.turn % 2))
    source.copy_(turn.mine())
    launch(env, TRANSFERS["put"], turn.case, source, turn.buffer(turn.slot), turn.keep, turn.right)
    env.iris.device_barrier()
    seen = turn.buffer(turn.slot).clone()
    findings.same(f"put {turn.turn} from rank {turn.left}", seen, words(turn.n, turn.turn, turn.left))


def broadcasts(env, findings, turn):
    """Broadcast from another rank, with another type and value each time, without synchronization between calls."""
    source = turn.turn % env.world_size
    value = words(turn.n, turn.turn, source)
    form = (lambda v: v, lambda v: v.tolist(), lambda v: v.numpy(), lambda v: {"words": v.tolist()})[turn.turn % 4]
    got = env.iris.broadcast(form(value) if env.rank == source else "not this", src=source)
    if turn.turn % 4 == 3:
        findings.equal(f"broadcast {turn.turn}", got, {"words": value.tolist()})
    else:
        findings.true(f"broadcast {turn.turn}: {got!r}", np.array_equal(got, value.numpy()))


def refills(env, findings, turn):
    """Write into the same tensor with a factory, then barrier: the neighbours read the newest values."""
    factory = ("full", "arange", "linspace")[turn.turn % 3]
    out, first = turn.buffer(turn.slot), int(turn.mine()[0])
    if factory == "full":
        env.iris.full((turn.n,), first, out=out, dtype=torch.int32)
    elif factory == "arange":
        env.iris.arange(first, first + turn.n, out=out, dtype=torch.int32)
    else:
        env.iris.linspace(first, first + turn.n - 1, turn.n, out=out, dtype=torch.int32)
    env.iris.barrier()
    wanted = words(turn.n, turn.turn, turn.right)
    for at in {0, turn.n - 1}:
        seen = read_word(env, turn.right, turn.slot + 4 * at)
        findings.equal(
            f"{factory} {turn.turn} of rank {turn.right}, [{at}]", seen, int(wanted[0 if factory == "full" else at])
        )


KINDS = {check.__name__: check for check in (puts, gets, device_barriers, broadcasts, refills)}


def run(env, case):
    (kind, turns, n) = case.arguments
    findings = Findings(env.rank)
    if kind == "device_barriers":
        env.iris.device_barrier()  # the first call allocates, which is a barrier of the hosts
    env.settle()
    with env.acting():
        for turn in range(1, turns + 1):
            env.late((case.late + turn) % env.world_size, case.late_ms)
            KINDS[kind](env, findings, Turn(env, n, turn))
    env.settle()
    return findings.first


def cases(ranks, kind):
    from hypothesis import strategies as st

    arguments = st.tuples(st.just(kind), st.integers(3, 12), st.integers(1, 200))
    return st.builds(
        HostCase, st.just("back_to_back"), arguments, late=st.integers(0, ranks - 1), late_ms=st.integers(0, 4)
    )


@requirement("HOST-REPEAT-001", cases=cases, weight=0.3, kind=tuple(KINDS))
def test_back_to_back(check, case):
    check(run, case)
