"""``sem`` and ``scope`` for common patterns, and the failures without them: each pattern under many schedules.

    python examples/memory_model.py
    python examples/memory_model.py --only message --story

Two ranks in one process, on the emulated device's ``weak`` mode, which does everything that the memory model of the
gfx942 allows: stores stay in caches, loads read old lines. Each pattern is run as it should be and with a part left
out; a pattern *holds*, *fails*, or *relies on unspecified behaviour*: it fails only if the write-back of one wavefront
does not cover stores of another that are still in progress, which no manual specifies. Exits with status 1 if a pattern
has an unexpected result. docs/memory-model.md explains, also why with a Triton before 3.8 no pattern is sure to hold.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import torch
import triton
from packaging.version import Version
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from harness import emulator
from harness.emulator.driver.explore import FAILS, HOLDS, UNSPECIFIED, Verdict, explore
from iris_under_test.gluon import IrisDeviceCtx

LANES, POLLS = gl.constexpr(64), gl.constexpr(500)
SEEDS = 60
# Older ones do not wait for a release's write-back on AMD GPUs: what holds may fail there, in one schedule of hundreds.
RELEASES = Version(triton.__version__) >= Version("3.8")


@gluon.jit
def wait_for(ctx, flag, value, SEM: gl.constexpr, SCOPE: gl.constexpr):
    """Wait until this rank's ``flag`` is at least ``value``; stop after POLLS, since a weaker wait may never see it."""
    polls = 0
    while ctx.atomic_add(flag, 0, ctx.cur_rank, sem=SEM, scope=SCOPE) < value and polls < POLLS:
        polls += 1


@gluon.jit
def swapped(ctx, flag, value, SEM: gl.constexpr, SCOPE: gl.constexpr):
    """``wait_for`` by compare-and-swap; afterwards the flag is 0."""
    polls = 0
    while ctx.atomic_cas(flag, value, 0, ctx.cur_rank, sem=SEM, scope=SCOPE) != value and polls < POLLS:
        polls += 1


@gluon.jit
def drain(lane):
    """Make every wavefront wait until its own accesses are complete, then synchronise them. AMD GPUs only."""
    gl.inline_asm_elementwise(
        "s_waitcnt vmcnt(0)\ns_barrier\nv_mov_b32 $0, $1",
        "=v,v,~{memory}",
        [lane],
        dtype=gl.int32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def send(
    IrisDeviceCtx: gl.constexpr, context, inbox, flag, ack, rounds,
    SEM: gl.constexpr, SCOPE: gl.constexpr, ACK: gl.constexpr, DRAIN: gl.constexpr, WARPS: gl.constexpr,
    HOLDER: gl.constexpr = 1,
):  # fmt: skip
    """Write round r's payload, r * 1000 + i + 1, into HOLDER's inbox, and add 1 to rank 1's flag.

    Example: round 0: the inbox becomes 1, 2, 3, ..., the flag 1.
    """
    ctx = IrisDeviceCtx.initialize(context)
    lane = gl.arange(0, LANES * WARPS, layout=gl.BlockedLayout([1], [LANES], [WARPS], [0]))
    for turn in range(rounds):
        if ACK and turn > 0:
            wait_for(ctx, ack, turn, "acquire", "sys")
        ctx.store(inbox + lane, turn * 1000 + lane + 1, HOLDER)
        if DRAIN:
            drain(lane)
        ctx.atomic_add(flag, 1, 1, sem=SEM, scope=SCOPE)


@gluon.jit
def receive(
    IrisDeviceCtx: gl.constexpr, context, inbox, flag, ack, out, rounds,
    SEM: gl.constexpr, SCOPE: gl.constexpr, ACK: gl.constexpr, DRAIN: gl.constexpr, WARPS: gl.constexpr,
    HOLDER: gl.constexpr = 1, SWAP: gl.constexpr = False,
):  # fmt: skip
    """Wait for round r's flag, then copy HOLDER's inbox to out[r]; with ACK, signal to rank 0 that it may be
    overwritten.
    """
    ctx = IrisDeviceCtx.initialize(context)
    lane = gl.arange(0, LANES * WARPS, layout=gl.BlockedLayout([1], [LANES], [WARPS], [0]))
    for turn in range(rounds):
        if SWAP:
            swapped(ctx, flag, 1, SEM, SCOPE)
        else:
            wait_for(ctx, flag, turn + 1, SEM, SCOPE)
        if DRAIN:
            drain(lane)
        gl.store(out + turn * LANES * WARPS + lane, ctx.load(inbox + lane, HOLDER))
        if ACK:
            ctx.atomic_add(ack, 1, 0, sem="release", scope="sys")


@gluon.jit
def stored_flag(IrisDeviceCtx: gl.constexpr, context, inbox, flag):
    """``send`` with an ordinary store for a flag."""
    ctx = IrisDeviceCtx.initialize(context)
    lane = gl.arange(0, LANES, layout=gl.BlockedLayout([1], [LANES], [1], [0]))
    ctx.store(inbox + lane, lane + 1, 1)
    ctx.store(flag, 1, 1, cache_modifier=".wt")


@gluon.jit
def put_only(IrisDeviceCtx: gl.constexpr, context, inbox):
    """The payload of ``send``, without a flag."""
    ctx = IrisDeviceCtx.initialize(context)
    lane = gl.arange(0, LANES, layout=gl.BlockedLayout([1], [LANES], [1], [0]))
    ctx.store(inbox + lane, lane + 1, 1)


@gluon.jit
def flag_only(IrisDeviceCtx: gl.constexpr, context, flag):
    """The flag of ``send``, without a payload."""
    ctx = IrisDeviceCtx.initialize(context)
    ctx.atomic_add(flag, 1, 1, sem="release", scope="sys")


@gluon.jit
def count(IrisDeviceCtx: gl.constexpr, context, counter, SCOPE: gl.constexpr):
    """Every lane adds 1 to rank 0's counter."""
    ctx = IrisDeviceCtx.initialize(context)
    lane = gl.arange(0, LANES, layout=gl.BlockedLayout([1], [LANES], [1], [0]))
    ctx.atomic_add(counter + lane * 0, lane * 0 + 1, 0, sem="relaxed", scope=SCOPE)


@gluon.jit
def guarded(IrisDeviceCtx: gl.constexpr, context, lock, account, SEM: gl.constexpr):
    """Acquire rank 0's lock, add 1 to rank 0's account by load and store, release the lock with ``SEM``."""
    ctx = IrisDeviceCtx.initialize(context)
    for _ in range(2):
        while ctx.atomic_xchg(lock, 1, 0, sem="acquire", scope="sys") != 0:
            pass
        ctx.store(account, ctx.load(account, 0) + 1, 0)
        ctx.atomic_xchg(lock, 0, 0, sem=SEM, scope="sys")


class Heaps:
    """Two ranks' heaps in one process: plain tensors, with the context tensor of each."""

    def __init__(self) -> None:
        self.words = torch.zeros(2, 4096, dtype=torch.int32)
        bases = [heap.data_ptr() for heap in self.words]
        # In front of a context tensor lie two entries for debug builds: the heap's size and a zero.
        header = [self.words[0].nbytes, 0]
        self.contexts = [torch.tensor([*header, rank, 2, *bases], dtype=torch.int64)[2:] for rank in (0, 1)]

    def part(self, rank: int, start: int) -> torch.Tensor:
        return self.words[rank, start:]


INBOX, FLAG, ACK = 0, 2048, 3072


def message(
    send_as: tuple[str | None, str | None] = ("release", "sys"),
    wait_as: tuple[str | None, str | None] = ("acquire", "sys"),
    rounds: int = 1,
    ack: bool = False,
    warps: int = 1,
    drained: bool = False,
    holder: int = 1,
    swap: bool = False,
) -> Callable[[emulator.EmulatedDriver], None]:
    """Send ``rounds`` payloads from rank 0 to rank 1 through one inbox in ``holder``'s memory."""

    def program(driver: emulator.EmulatedDriver) -> None:
        heaps, size = Heaps(), 64 * warps
        out = torch.zeros(rounds, size, dtype=torch.int32)
        inboxes, flags, acks = ([heaps.part(rank, at) for rank in (0, 1)] for at in (INBOX, FLAG, ACK))
        with emulator.concurrent_ranks(driver) as ranks:
            with ranks.rank(0):
                send[(1,)](
                    IrisDeviceCtx, heaps.contexts[0], inboxes[0], flags[0], acks[0], rounds,
                    *send_as, ack, drained, warps, holder, num_warps=warps,
                )  # fmt: skip
            with ranks.rank(1):
                receive[(1,)](
                    IrisDeviceCtx, heaps.contexts[1], inboxes[1], flags[1], acks[1], out, rounds,
                    *wait_as, ack, drained, warps, holder, swap, num_warps=warps,
                )  # fmt: skip
        check(out)

    return program


def check(out: torch.Tensor) -> None:
    """Raise AssertionError unless ``out[r]`` is round r's payload."""
    for turn, received in enumerate(out.tolist()):
        for place, value in enumerate(received):
            expected = turn * 1000 + place + 1
            assert value == expected, f"round {turn}: element {place} is {value}, not {expected}"


def launches(*kernels: Callable[[Heaps], None]) -> Callable[[emulator.EmulatedDriver], None]:
    """Launch ``kernels`` one after the other on rank 0; rank 1 receives one payload."""

    def program(driver: emulator.EmulatedDriver) -> None:
        heaps, out = Heaps(), torch.zeros(1, 64, dtype=torch.int32)
        with emulator.concurrent_ranks(driver) as ranks:
            with ranks.rank(0):
                for kernel in kernels:
                    kernel(heaps)
            with ranks.rank(1):
                receive[(1,)](
                    IrisDeviceCtx, heaps.contexts[1], heaps.part(1, INBOX), heaps.part(1, FLAG), heaps.part(1, ACK),
                    out, 1, "acquire", "sys", False, False, 1, num_warps=1,
                )  # fmt: skip
        check(out)

    return program


def _stored(heaps: Heaps) -> None:
    stored_flag[(1,)](IrisDeviceCtx, heaps.contexts[0], heaps.part(0, INBOX), heaps.part(0, FLAG), num_warps=1)


def _put(heaps: Heaps) -> None:
    put_only[(1,)](IrisDeviceCtx, heaps.contexts[0], heaps.part(0, INBOX), num_warps=1)


def _flag(heaps: Heaps) -> None:
    flag_only[(1,)](IrisDeviceCtx, heaps.contexts[0], heaps.part(0, FLAG), num_warps=1)


def both(kernel: Callable[[Heaps, int], None], expected: int) -> Callable[[emulator.EmulatedDriver], None]:
    """Run ``kernel`` on both ranks; the sum of their counts must be ``expected``."""

    def program(driver: emulator.EmulatedDriver) -> None:
        heaps = Heaps()
        with emulator.concurrent_ranks(driver) as ranks:
            for rank in (0, 1):
                with ranks.rank(rank):
                    kernel(heaps, rank)
        total = int(heaps.words[0, INBOX])
        assert total == expected, f"{total} were counted, not {expected}"

    return program


def counting(scope: str) -> Callable[[emulator.EmulatedDriver], None]:
    """Make both ranks add to one counter."""

    def kernel(heaps: Heaps, rank: int) -> None:
        count[(2,)](IrisDeviceCtx, heaps.contexts[rank], heaps.part(rank, INBOX), scope, num_warps=1)

    return both(kernel, 256)


def locking(unlock: str) -> Callable[[emulator.EmulatedDriver], None]:
    """Make both ranks change one account under a lock."""

    def kernel(heaps: Heaps, rank: int) -> None:
        guarded[(1,)](
            IrisDeviceCtx, heaps.contexts[rank], heaps.part(rank, FLAG), heaps.part(rank, INBOX), unlock, num_warps=1
        )

    return both(kernel, 4)


@dataclass(frozen=True)
class Pattern:
    """Program with its expected ``outcome``; before Triton 3.8 only if the outcome is a failure."""

    name: str
    outcome: str
    program: Callable[[emulator.EmulatedDriver], None]

    def admits(self, verdict: Verdict) -> bool:
        return verdict.outcome == self.outcome or (not RELEASES and self.outcome != FAILS)


PATTERNS = [
    Pattern("message", HOLDS, message()),
    Pattern("message, flag relaxed", FAILS, message(send_as=("relaxed", "sys"))),
    Pattern("message, flag released to gpu", FAILS, message(send_as=("release", "gpu"))),
    Pattern("message, wait relaxed", FAILS, message(wait_as=("relaxed", "sys"))),
    Pattern("message, wait acquires from gpu", FAILS, message(wait_as=("acquire", "gpu"))),
    Pattern("message, no sem and scope given", FAILS, message(send_as=(None, None), wait_as=(None, None))),
    Pattern("message, flag stored", FAILS, launches(_stored)),
    Pattern("message, payload by an earlier kernel", HOLDS, launches(_put, _flag)),
    Pattern("message, wait by compare-and-swap", HOLDS, message(swap=True)),
    Pattern("message, pulled", HOLDS, message(holder=0)),
    Pattern("message, pulled, flag relaxed", FAILS, message(send_as=("relaxed", "sys"), holder=0)),
    Pattern("message, pulled, wait relaxed", FAILS, message(wait_as=("relaxed", "sys"), holder=0)),
    Pattern("message by 4 wavefronts", UNSPECIFIED, message(warps=4)),
    Pattern("message by 4 wavefronts, each drained", HOLDS, message(warps=4, drained=True)),
    Pattern("reuse, acknowledged", HOLDS, message(rounds=2, ack=True)),
    Pattern("reuse, not acknowledged", FAILS, message(rounds=2)),
    Pattern("counter", HOLDS, counting("sys")),
    Pattern("counter, scope gpu", FAILS, counting("gpu")),
    Pattern("lock", HOLDS, locking("release")),
    Pattern("lock, unlock relaxed", FAILS, locking("relaxed")),
]


def judge(pattern: Pattern, seeds: int = SEEDS) -> Verdict:
    """Return the outcome of ``pattern``, in up to ``seeds`` schedules of each reading."""
    return explore(pattern.program, seeds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--only", default="", help="patterns whose name begins like this")
    parser.add_argument("--story", action="store_true", help="what memory did in the failing schedule")
    options = parser.parse_args()
    surprises = 0
    for pattern in PATTERNS:
        if not pattern.name.startswith(options.only):
            continue
        verdict = judge(pattern)
        surprises += not pattern.admits(verdict)
        print(f"{pattern.name:40} {verdict.outcome:32} {verdict.error}")
        if options.story:
            print(*verdict.story, sep="\n")
    return 1 if surprises else 0


if __name__ == "__main__":
    raise SystemExit(main())
