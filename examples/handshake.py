"""Two ranks in one process, and a missing fence: reports of the emulator's checking modes.

    python examples/handshake.py

Rank 0 writes a payload into rank 1's memory and raises a flag; rank 1 waits for the flag and reads. One kernel raises
the flag with release semantics, the other without. On a GPU the second one works most of the time. Exits with status 1
unless the first one holds and both modes catch the second one.
"""

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from harness import emulator
from harness.emulator.driver.explore import explore


@gluon.jit
def produce(inbox, flag, RELEASE: gl.constexpr):
    """Write inbox[i] = i + 1, then the flag."""
    offsets = gl.arange(0, 64, layout=gl.BlockedLayout([1], [64], [1], [0]))
    gl.store(inbox + offsets, offsets + 1)
    gl.atomic_xchg(flag, 1, sem=RELEASE, scope="sys")


@gluon.jit
def consume(inbox, flag, out):
    """Wait for the flag, then copy the inbox."""
    offsets = gl.arange(0, 64, layout=gl.BlockedLayout([1], [64], [1], [0]))
    while gl.atomic_xchg(flag, 0, sem="acquire", scope="sys") != 1:
        pass
    gl.store(out + offsets, gl.load(inbox + offsets))


def handshake(driver: emulator.EmulatedDriver, release: str) -> None:
    """Run both ranks' kernels under one scheduler; AssertionError if rank 1 read old data."""
    inbox, out = torch.zeros(2, 64, dtype=torch.int32)
    flag = torch.zeros(1, dtype=torch.int32)
    with emulator.concurrent_ranks(driver) as ranks:
        with ranks.rank(0):
            produce[(1,)](inbox, flag, release, num_warps=1)
        with ranks.rank(1):
            consume[(1,)](inbox, flag, out, num_warps=1)
    assert torch.equal(out, torch.arange(1, 65, dtype=torch.int32)), f"rank 1 read {out.tolist()[:4]}..."


def main() -> int:
    correct = explore(lambda driver: handshake(driver, "release"), seeds=200)
    print("release:", correct)
    broken = explore(lambda driver: handshake(driver, "relaxed"), seeds=200)
    print("relaxed:", broken)

    handshake(emulator.activate(mode="race"), "release")
    caught = False
    try:
        handshake(emulator.activate(mode="race"), "relaxed")
    except emulator.DataRace as race:
        print("race:", race)
        caught = True
    return 0 if correct.outcome == "holds" and broken.outcome == "fails" and caught else 1


if __name__ == "__main__":
    raise SystemExit(main())
