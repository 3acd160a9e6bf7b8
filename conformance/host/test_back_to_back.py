"""Calls that follow each other, with other data each time, nothing cleared in between, and one rank late.

Legend: n words of a turn hold turn * 1000 + rank * 100 + index, so that what is stale, or another rank's, shows. What a
turn writes goes to one of two buffers: a peer may still look at the other one, from the turn before. The one kind of
call under test is all that orders the ranks.
"""

import numpy as np
import torch

from conformance.rma.test_get import launch as get
from conformance.rma.test_load import read_word
from conformance.rma.test_put import launch as put
from fixtures.findings import Findings
from fixtures.requirement import requirement
from harness.cases import HostCase, TransferCase

SOURCE, SLOTS, STRIDE = 8192, 65536, 16384


def words(n, turn, rank):
    """What ``rank`` sends in a turn."""
    return torch.arange(n, dtype=torch.int32) + (1000 * turn + 100 * rank)


class Turn:
    """What a check of one turn works with. ``left`` and ``right`` are the neighbours, ``slot`` the place of the turn's
    buffer in the arena."""

    def __init__(self, env, n, turn):
        self.env, self.n, self.turn = env, n, turn
        self.left, self.right = (env.rank - 1) % env.world_size, (env.rank + 1) % env.world_size
        self.slot = SLOTS + STRIDE * (turn % 2)
        self.case = TransferCase(dtype="int32", n=n)
        self.keep = torch.ones(1, dtype=torch.uint8, device=env.device.torch_device)

    def buffer(self, start):
        """The n words at a place in the arena."""
        return self.env.image.arena[start : start + 4 * self.n].view(torch.int32)

    def mine(self):
        return words(self.n, self.turn, self.env.rank)


def puts(env, found, turn):
    """A put to the right neighbour, a barrier: what came from the left is there."""
    source = turn.buffer(SOURCE + STRIDE // 4 * (turn.turn % 2))
    source.copy_(turn.mine())
    put(env, turn.case, source, turn.buffer(turn.slot), turn.keep, turn.right)
    env.iris.barrier()
    found.same(f"put {turn.turn} from rank {turn.left}", turn.buffer(turn.slot), words(turn.n, turn.turn, turn.left))


def gets(env, found, turn):
    """The own words, a barrier: a get from the right neighbour finds that one's."""
    turn.buffer(turn.slot).copy_(turn.mine())
    env.iris.barrier()
    target = torch.full((turn.n,), -1, dtype=torch.int32, device=env.device.torch_device)
    get(env, turn.case, turn.buffer(turn.slot), target, turn.keep, turn.right)
    env.device.synchronize()
    found.same(f"get {turn.turn} from rank {turn.right}", target, words(turn.n, turn.turn, turn.right))


def device_barriers(env, found, turn):
    """As puts, ordered by barriers of the devices alone, the host waiting only to compare."""
    source = turn.buffer(SOURCE + STRIDE // 4 * (turn.turn % 2))
    source.copy_(turn.mine())
    put(env, turn.case, source, turn.buffer(turn.slot), turn.keep, turn.right)
    env.iris.device_barrier()
    seen = turn.buffer(turn.slot).clone()
    found.same(f"put {turn.turn} from rank {turn.left}", seen, words(turn.n, turn.turn, turn.left))


def broadcasts(env, found, turn):
    """Another source, type and value each time, and nothing between the calls."""
    source = turn.turn % env.world_size
    value = words(turn.n, turn.turn, source)
    form = (lambda v: v, lambda v: v.tolist(), lambda v: v.numpy(), lambda v: {"words": v.tolist()})[turn.turn % 4]
    got = env.iris.broadcast(form(value) if env.rank == source else "not this", src=source)
    if turn.turn % 4 == 3:
        found.equal(f"broadcast {turn.turn}", got, {"words": value.tolist()})
    else:
        found.true(f"broadcast {turn.turn}: {got!r}", np.array_equal(got, value.numpy()))


def refills(env, found, turn):
    """A factory writes into the same tensors again and again; a barrier; the neighbours see the newest."""
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
        found.equal(
            f"{factory} {turn.turn} of rank {turn.right}, [{at}]", seen, int(wanted[0 if factory == "full" else at])
        )


KINDS = {check.__name__: check for check in (puts, gets, device_barriers, broadcasts, refills)}


def run(env, case):
    (kind, turns, n) = case.arguments
    found = Findings(env.rank)
    if kind == "device_barriers":
        env.iris.device_barrier()  # whose first call allocates, and so waits by itself
    env.settle()
    with env.acting():
        for turn in range(1, turns + 1):
            env.late((case.late + turn) % env.world_size, case.late_ms)
            KINDS[kind](env, found, Turn(env, n, turn))
    env.settle()
    return found.first


def cases(ranks, kind):
    from hypothesis import strategies as st

    arguments = st.tuples(st.just(kind), st.integers(3, 12), st.integers(1, 200))
    return st.builds(
        HostCase, st.just("back_to_back"), arguments, late=st.integers(0, ranks - 1), late_ms=st.integers(0, 4)
    )


@requirement("HOST-REPEAT-001", cases=cases, weight=0.3, kind=tuple(KINDS))
def test_back_to_back(check, case):
    check(run, case)
