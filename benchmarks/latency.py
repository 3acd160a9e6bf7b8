"""Latency of put, get, atomic_add and device_barrier, each with its floor in the same run.

    python -m benchmarks.latency [--device cuda] [--ranks 8] [--repeat 10] [--json FILE]

How it is timed. Every cell is a device graph (on GPUs), replayed between two events behind an all_reduce that lines the
ranks up. A cell is made twice, with few and with many steps; the difference of the two times, divided by the
difference of the steps, is the latency: launch, replay and whatever is paid once fall out. Cells take turns; medians,
with the 10th and 90th percentile, over all rounds. On the emulated device the clock is the wall's and the figures mean
nothing about any GPU; the run shows that the kernels and their checks work.

    get         one step: a load of 4 bytes whose address is what the load before brought; the cells, 256 bytes apart,
                are visited in a drawn order, and no run starts where another did: nothing is read twice or foretold
    atomic_add  one step: the same by atomic_add of 0, relaxed, system scope
    put         one step: N bytes and a signal (release), seen by a poll (acquire); remote, half a round trip of them
    device_barrier  one step: one call, one kernel in the graph

Each of the first three is made with the caller's rank as the target (local) and with the farthest (remote). Next to the
barrier: an empty kernel, and torch.distributed's all_reduce of one element.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from benchmarks import rounds
from command_line.bench.worker import WallClock, clock_of
from harness.oracles import reference

CELLS, SPACING, SEED = 16384, 64, 0
FEW, MANY = 20, 120
PUT_BYTES = (16, 4096)

Steps = Callable[[int], Callable[[], None]]
"""For a number of steps, what makes that many."""


@gluon.jit(do_not_specialize=["peer", "steps"])
def chase_kernel(IrisDeviceCtx: gl.constexpr, context, cells, first, last, peer, steps, ATOMIC: gl.constexpr):
    """Each cell holds the index of the next. Cells [2, 3, 1, 0]: from first = 0, three steps read 2, 1, 3: last = 3."""
    ctx = IrisDeviceCtx.initialize(context)
    at = gl.load(first)
    for _ in range(steps):
        if ATOMIC:
            at = ctx.atomic_add(cells + at, 0, peer, sem="relaxed", scope="sys")
        else:
            at = ctx.load(cells + at, peer, volatile=True)
    gl.store(last, at)


@gluon.jit(do_not_specialize=["peer", "first", "steps"])
def rally_kernel(
    IrisDeviceCtx: gl.constexpr, context, source, target, flag, played, peer, first, steps,
    SPT: gl.constexpr, LANES: gl.constexpr,
):  # fmt: skip
    """``steps`` round trips between two ranks: data, signal, and the same back. A rank with itself has no way back.

    The flags count the signals received and never go back, ``played`` is what they were before: 5 on both sides at the
    start is 5 + steps at the end. (The flag itself may be one ahead already when the slower side starts.)
    """
    ctx = IrisDeviceCtx.initialize(context)
    offsets = gl.arange(0, SPT * LANES, layout=gl.BlockedLayout([SPT], [LANES], [1], [0]))
    count = gl.load(played)
    for _ in range(steps):
        count += 1
        if first != 0:
            ctx.put(source + offsets, target + offsets, peer)
            ctx.atomic_xchg(flag, count, peer, sem="release", scope="sys")
        while ctx.atomic_add(flag, 0, ctx.cur_rank, sem="acquire", scope="sys") < count:
            pass
        if first == 0:
            ctx.put(source + offsets, target + offsets, peer)
            ctx.atomic_xchg(flag, count, peer, sem="release", scope="sys")
    gl.store(played, count)


@gluon.jit
def empty_kernel(nothing):
    pass


class Latency:
    """One rank: the memory of all cells, and the cells. The pair of the rally is rank 0 and the last one."""

    def __init__(self, rank: int, ranks: int, device: Any, under_test: Any) -> None:
        self.rank, self.ranks, self.device = rank, ranks, device
        self.context_class = under_test.device_context
        self.iris = under_test.iris(heap_size=8 << 20)
        self.context = self.iris.get_device_context()
        self.cells = self.iris.zeros(CELLS * SPACING, dtype=torch.int32)
        self.order = torch.randperm(CELLS, generator=torch.Generator().manual_seed(SEED)).to(torch.int32) * SPACING
        self.cells[self.order.to(self.cells.device)] = self.order.roll(-1).to(self.cells.device)
        self.at = 0
        self.source = self.iris.full((max(PUT_BYTES) // 4,), rank + 1, dtype=torch.int32)
        self.target = self.iris.zeros(max(PUT_BYTES) // 4, dtype=torch.int32)
        self.flag = self.iris.zeros(1, dtype=torch.int32)
        where = self.source.device
        self.played = torch.zeros(1, dtype=torch.int32, device=where)
        self.first, self.last = torch.zeros(2, 1, dtype=torch.int32, device=where)
        self.token = torch.zeros(1, device=where)
        self.clock = clock_of(where)
        self.ready: dict[tuple[str, int], Callable[[], None]] = {}

    def cells_of(self) -> dict[str, tuple[Steps, Callable[[int], bool]]]:
        """Name: how to make steps, and whether what they left is right."""
        far = (self.rank + self.ranks // 2) % self.ranks
        steps_of: dict[str, tuple[Steps, Callable[[int], bool]]] = {}
        for where, peer in (("local", self.rank), ("remote", far)):
            for name, atomic in (("get 4 B", False), ("atomic_add", True)):
                steps_of[f"{name} {where}"] = self._chase(peer, atomic), self._chased
        for size in PUT_BYTES:
            steps_of[f"put {size} B local"] = self._rally(size, self.rank), self._rallied(size, self.rank)
            steps_of[f"put {size} B remote"] = self._rally(size, self._partner()), self._rallied(size, self._partner())
        steps_of["device_barrier"] = _times(self.iris.device_barrier), _always
        steps_of["empty kernel"] = _times(lambda: empty_kernel[(1,)](self.token, num_warps=1)), _always
        steps_of["torch all_reduce of 1"] = _times(lambda: dist.all_reduce(self.token)), _always
        return steps_of

    def _partner(self) -> int | None:
        return {0: self.ranks - 1, self.ranks - 1: 0}.get(self.rank)

    def ways(self, name: str) -> int:
        """Return how often a step crosses from rank to rank: a remote put there and back, a local put once."""
        return 2 if name.startswith("put") and name.endswith("remote") and self.ranks > 1 else 1

    def _chase(self, peer: int, atomic: bool) -> Steps:
        def make(steps: int) -> Callable[[], None]:
            return lambda: chase_kernel[(1,)](
                self.context_class, self.context, self.cells, self.first, self.last, peer, steps, atomic, num_warps=1
            )

        return make

    def restart(self) -> None:
        """Forget what was received; the next chase starts at cells that none has read."""
        self.target.zero_()
        self.last.fill_(-1)
        self.at = (self.at + MANY) % CELLS
        self.first.fill_(self.order[self.at])

    def _chased(self, steps: int) -> bool:
        return int(self.last) == int(self.order[(self.at + steps) % CELLS])

    def _rally(self, size: int, peer: int | None) -> Steps:
        lanes = self.device.lanes
        width = max(1, size // 4 // lanes)

        def make(steps: int) -> Callable[[], None]:
            if peer is None:
                return lambda: None  # not one of the pair
            return lambda: rally_kernel[(1,)](
                self.context_class, self.context, self.source, self.target, self.flag, self.played, peer,
                1 if self.rank == 0 or peer == self.rank else 0, steps, width, lanes, num_warps=1,
            )  # fmt: skip

        return make

    def _rallied(self, size: int, peer: int | None) -> Callable[[int], bool]:
        def right(steps: int) -> bool:
            return peer is None or bool((self.target[: size // 4] == peer + 1).all())

        return right


def setup(info: Mapping[str, Any], options: Mapping[str, Any]) -> Latency:
    """Called once per rank process."""
    return Latency(info["rank"], info["world_size"], *rounds.on_rank(info, options))


def cells(bench: Latency, _: object) -> list[str]:
    """The names of all cells."""
    return list(bench.cells_of())


def prepare(bench: Latency, name: str) -> None:
    """Compile, warm up and capture a cell, with few steps and with many."""
    make, right = bench.cells_of()[name]
    for steps in (FEW, MANY):
        run = make(steps)
        bench.restart()
        bench.device.synchronize()
        reference.barrier()
        run()
        bench.device.synchronize()
        reference.barrier()
        if not right(steps):
            raise RuntimeError(f"{name} with {steps} steps left wrong values")
        bench.ready[name, steps] = run if isinstance(bench.clock, WallClock) else bench.clock.captured(run, 1)
        bench.ready[name, steps]()
        bench.device.synchronize()
        reference.barrier()


def measure(bench: Latency, name: str) -> float:
    """Seconds of one step."""
    right = bench.cells_of()[name][1]
    seconds = {}
    for steps in (FEW, MANY):
        bench.ready[name, steps]()  # what comes after something else pays for that, a few microseconds
        bench.restart()
        bench.device.synchronize()
        reference.barrier()

        def check(steps: int = steps) -> torch.Tensor:
            bench.device.synchronize()
            return torch.tensor(right(steps))

        seconds[steps], fine = bench.clock.time(bench.ready[name, steps], check)
        bench.device.synchronize()
        reference.barrier()
        if not fine:
            raise RuntimeError(f"{name} with {steps} steps left wrong values")
    bench.device.drain_launches()
    return (seconds[MANY] - seconds[FEW]) / (MANY - FEW) / bench.ways(name)


def main() -> None:
    """See the module docstring."""
    given = rounds.options(__doc__, range(1, 65))
    _show(rounds.run("benchmarks.latency", given), given)


def _show(figures: rounds.Figures, given: Namespace) -> None:
    title = f"{given.ranks} ranks, {given.device}: us per step"
    table = Table("what", "median", "p10-p90", "ratio", "to", title=title)
    for name, figure in figures.items():
        floor = {"device_barrier": "torch all_reduce of 1"}.get(name, name.replace("remote", "local"))
        ratio = "" if floor == name else f"{figure['median'] / figures[floor]['median']:.2f}"
        spread = f"{figure['p10']:.2f}-{figure['p90']:.2f}"
        table.add_row(name, f"{figure['median']:.2f}", spread, ratio, floor if ratio else "")
    Console().print(table)


def _times(call: Callable[[], Any]) -> Steps:
    def make(steps: int) -> Callable[[], None]:
        def run() -> None:
            for _ in range(steps):
                call()

        return run

    return make


def _always(steps: int) -> bool:
    return True


if __name__ == "__main__":
    main()
