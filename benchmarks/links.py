"""Bandwidth of links when every rank sends to one other rank, to two at once, and so on to all others.

    python -m benchmarks.links [--device cuda] [--ranks 8] [--repeat 10] [--json FILE]

In each cell every rank gives as many bytes as it gets, on GPUs some 448 MiB, in equal parts to the next K ranks round
the world. ``put to 1`` is a ring, in which each port of the switch has one source: the most that kernels get of a link
with traffic both ways. ``put to 7`` of 8 ranks is what an all-gather or an all-to-all does: its rate is the floor under
them. ``get from`` is the same by loads.

A time is of one kernel, the mean of several in a device graph that is replayed behind an all_reduce, which lines the
ranks up; the received data is compared each time. On the emulated device the figures mean nothing about any GPU; the
run shows that the kernel and its check work.
"""

from __future__ import annotations

import math
from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from benchmarks import rounds
from command_line.bench.worker import WallClock, clock_of
from harness import devices
from harness.oracles import reference

CALLS = 4
WORDS_PER_LANE = 4


@gluon.jit(do_not_specialize=["peers"])
def exchange_kernel(
    IrisDeviceCtx: gl.constexpr, context, source, target, peers, count,
    PULL: gl.constexpr, SPT: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    """Part d of ``source``, ``count`` words, goes to part d of ``target`` at the rank d + 1 places on, or (PULL) comes
    from there. Programs d, d + peers, d + 2 * peers ... see to it; ``count`` is a multiple of what one moves at a time.

    Example: 3 ranks, 2 peers, 256 words: rank 0 gives words 0 to 255 to rank 1 and words 256 to 511 to rank 2.
    """
    TILE: gl.constexpr = SPT * LANES * WARPS
    ctx = IrisDeviceCtx.initialize(context)
    lanes = gl.arange(0, TILE, layout=gl.BlockedLayout([SPT], [LANES], [WARPS], [0]))
    place = gl.program_id(0) % peers
    peer = (ctx.cur_rank + 1 + place) % ctx.num_ranks
    part = place.to(gl.int64) * count
    for first in range(gl.program_id(0) // peers * TILE, count, gl.num_programs(0) // peers * TILE):
        words = part + first + lanes
        if PULL:
            ctx.get(source + words, target + words, peer)
        else:
            ctx.put(source + words, target + words, peer)


class Links:
    """One rank: what it gives, what it gets, and the cells."""

    def __init__(self, rank: int, ranks: int, device: Any, under_test: Any) -> None:
        self.rank, self.ranks, self.device = rank, ranks, device
        self.warps, self.programs = warps_of(device), 2 if device.name == "emulated" else 256
        self.words = words_of(ranks, device)
        self.context_class = under_test.device_context
        self.iris = under_test.iris(heap_size=2 * 4 * self.words + (4 << 20))
        self.context = self.iris.get_device_context()
        self.source = self.iris.full((self.words,), rank + 1, dtype=torch.int32)
        self.target = self.iris.zeros(self.words, dtype=torch.int32)
        self.clock = clock_of(self.source.device)
        self.ready: dict[str, Callable[[], None]] = {}

    def call(self, name: str) -> Callable[[], None]:
        """Return a function that runs the cell once."""
        way, _, peers = name.split()
        count = self.words // int(peers)
        programs = -(-self.programs // int(peers)) * int(peers)
        return lambda: exchange_kernel[(programs,)](
            self.context_class, self.context, self.source, self.target, int(peers), count,
            way == "get", WORDS_PER_LANE, self.device.lanes, self.warps, num_warps=self.warps,
        )  # fmt: skip

    def right(self, name: str) -> bool:
        """Return whether all data has arrived from the right ranks; clear it."""
        self.device.synchronize()
        reference.barrier()
        way, _, peers = name.split()
        parts = self.target.view(int(peers), -1)
        steps = range(1, int(peers) + 1)
        givers = [(self.rank + (step if way == "get" else -step)) % self.ranks for step in steps]
        wanted = torch.tensor(givers, dtype=torch.int32, device=parts.device)[:, None] + 1
        fine = bool((parts == wanted).all())
        self.target.zero_()
        self.device.synchronize()
        reference.barrier()
        return fine


def warps_of(device: Any) -> int:
    """Of a program."""
    return 1 if device.name == "emulated" else 8


def words_of(ranks: int, device: Any) -> int:
    """Return the number of words that a rank sends.

    Each number of peers divides it, and the words for one peer are a multiple of those that a program moves at a time.
    """
    unit = math.lcm(*range(1, ranks)) * WORDS_PER_LANE * device.lanes * warps_of(device)
    return unit * (2 if device.name == "emulated" else (112 << 20) // unit)


def setup(info: Mapping[str, Any], options: Mapping[str, Any]) -> Links:
    """Called once per rank process."""
    return Links(info["rank"], info["world_size"], *rounds.on_rank(info, options))


def cells(bench: Links, _: object) -> list[str]:
    """Of 3 ranks: put to 1, get from 1, put to 2, get from 2."""
    return [f"{way} {peers}" for peers in range(1, bench.ranks) for way in ("put to", "get from")]


def prepare(bench: Links, name: str) -> None:
    """Compile, check, and capture a cell."""
    call = bench.call(name)
    call()
    if not bench.right(name):
        raise RuntimeError(f"{name} left wrong values")
    bench.ready[name] = call if isinstance(bench.clock, WallClock) else bench.clock.captured(call, CALLS)
    bench.ready[name]()
    bench.device.synchronize()
    reference.barrier()


def measure(bench: Links, name: str) -> float:
    """Seconds of one kernel."""
    seconds, fine = bench.clock.time(bench.ready[name], lambda: torch.tensor(bench.right(name)))
    if not fine:
        raise RuntimeError(f"{name} left wrong values")
    bench.device.drain_launches()
    return seconds / (1 if isinstance(bench.clock, WallClock) else CALLS)


def main() -> None:
    """See the module docstring."""
    given = rounds.options(__doc__, range(2, 9))
    _show(rounds.run("benchmarks.links", given), given)


def _show(figures: rounds.Figures, given: Namespace) -> None:
    words = words_of(given.ranks, devices.known(given.device))
    table = Table("what", "us", "p10-p90", "GB/s", "of put to 1", title=f"{given.ranks} ranks, {given.device}")
    for name, figure in figures.items():
        spread, rate = f"{figure['p10']:.1f}-{figure['p90']:.1f}", 4 * words / figure["median"] / 1e3
        share = f"{figures['put to 1']['median'] / figure['median']:.3f}"
        table.add_row(name, f"{figure['median']:.1f}", spread, f"{rate:.1f}", share)
    Console().print(table)


if __name__ == "__main__":
    main()
