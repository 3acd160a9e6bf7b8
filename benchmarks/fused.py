"""Fused products beside torch.matmul followed by torch.distributed, in the same run.

    python -m benchmarks.fused [--device cuda] [--ranks 4] [--repeat 10] [--json FILE]

Each cell is a device graph of four calls (on GPUs), replayed between two events behind an all_reduce that lines the
ranks up; the slowest rank counts. Cells take turns; medians with the 10th and 90th percentile over all rounds. Every
timing's output is compared bit by bit with that of torch: inputs are -1, 0 and 1, of which every part and sum here is
exact in float16. Columns: the op; torch.matmul, then the collective; their ratio (above 1: the fused op is faster);
each of the two alone, of which the larger is the floor for both; the share of the smaller one that the fused op hides,
100 % at the floor. On the emulated device the clock is the wall's and sizes are small: it shows that all this works.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table

from benchmarks.latency import _gpus as gpus
from benchmarks.latency import _spread as spread
from fixtures import implementation
from fixtures.bench import DeviceClock, WallClock
from harness import devices
from harness.oracles import reference
from harness.ranks import RankGroup

CALLS = 4
HEAP_BYTES = 6 << 30


@dataclass(frozen=True)
class Shape:
    """The whole product: C (m, n) = A (m, k) @ B (k, n), of which each rank has its part."""

    m: int
    n: int
    k: int


SHAPES = {"cuda": (Shape(8192, 8192, 8192), Shape(128, 8192, 8192)), "emulated": (Shape(64, 64, 64),)}
SHAPES["rocm"] = SHAPES["cuda"]
WIDE = {"block_size_m": 128, "block_size_n": 256, "group_size_m": 8, "cache_modifier_a": "", "cache_modifier_b": ""}
EMULATED = {"block_size_m": 16, "block_size_n": 32, "block_size_k": 16, "group_size_m": 1}
WAYS: dict[str, dict[str, dict[str, Any]]] = {
    "matmul_all_gather": {"default": {}},
    "all_gather_matmul": {"default": {}},
    "matmul_reduce_scatter": {"default": {}, "128 x 256": WIDE},
    "matmul_all_reduce": {"default": {}, **{v: {**WIDE, "all_reduce_variant": v} for v in ("one_shot", "atomic")}},
}
"""Op -> name of a way to run it -> fields of its FusedConfig; without any, none is passed."""

Run = Callable[[], object]


@dataclass
class Problem:
    """One op on one shape, on this rank: the fused op's tensors, and the same by torch. ``right`` says of the output
    whether it is what torch gives."""

    output: torch.Tensor
    a: torch.Tensor
    b: torch.Tensor
    matmul: Run
    collective: Run
    both: Run
    right: Callable[[], torch.Tensor]


class Products:
    """One rank: its instance, its clock, and the cells that are ready to be timed."""

    def __init__(self, rank: int, ranks: int, device: Any, under_test: Any) -> None:
        self.rank, self.ranks, self.device = rank, ranks, device
        self.config = under_test.module.ops.FusedConfig
        self.emulated = device.name == "emulated"
        self.iris = under_test.iris(heap_size=(16 << 20) if self.emulated else HEAP_BYTES)
        self.clock: Any = WallClock() if self.emulated else DeviceClock(self.iris.get_device())
        self.runs: dict[str, tuple[Callable[[], None], Problem | None]] = {}

    def problem(self, op: str, shape: Shape) -> Problem:
        """The tensors of an op on a shape, filled; collective."""
        m, n, k, ranks = shape.m, shape.n, shape.k, self.ranks
        if op == "matmul_all_gather":
            a, b = self._whole(m // ranks, k), self._whole(k, n)
            c, part = self.iris.zeros(m, n, dtype=torch.float16), a @ b
            wanted = torch.empty_like(c)
            return Problem(
                c, a, b,
                matmul=lambda: torch.matmul(a, b, out=part),
                collective=lambda: dist.all_gather_into_tensor(wanted, part),
                both=lambda: dist.all_gather_into_tensor(wanted, torch.matmul(a, b)),
                right=lambda: torch.all(c == wanted),
            )  # fmt: skip
        if op == "all_gather_matmul":
            a, b = self.iris.empty(m, k // ranks, dtype=torch.float16), self._whole(k, n // ranks)
            a.copy_(self._whole(m, k // ranks))
            c, shards = (
                torch.zeros(m, n // ranks, dtype=torch.float16, device=a.device),
                a.new_empty(ranks * m, k // ranks),
            )
            wanted = torch.empty_like(c)

            def whole() -> torch.Tensor:
                return shards.view(ranks, m, k // ranks).transpose(0, 1).reshape(m, k)

            def both() -> None:
                dist.all_gather_into_tensor(shards, a)
                torch.matmul(whole(), b, out=wanted)

            dist.all_gather_into_tensor(shards, a)
            full = whole()
            return Problem(
                c, a, b,
                matmul=lambda: torch.matmul(full, b, out=wanted),
                collective=lambda: dist.all_gather_into_tensor(shards, a),
                both=both,
                right=lambda: torch.all(c == wanted),
            )  # fmt: skip
        a, b = self._whole(m, k // ranks), self._whole(k // ranks, n)
        c, part = self.iris.zeros(m, n, dtype=torch.float16), a @ b
        total = part.clone()
        dist.all_reduce(total)
        if op == "matmul_all_reduce":
            return Problem(
                c, a, b,
                matmul=lambda: torch.matmul(a, b, out=part),
                collective=lambda: dist.all_reduce(part),
                both=lambda: dist.all_reduce(torch.matmul(a, b, out=part)),
                right=lambda: torch.all(c == total),
            )  # fmt: skip
        mine = part.new_empty(m // ranks, n)
        # Rows, or columns where there is but one row of tiles: with these blocks a share is a whole band of the output.
        band = 0 if m > 256 or self.emulated else 1
        scatter = _reduce_scatter if not self.emulated else lambda into, given: dist.all_reduce(given)
        return Problem(
            c, a, b,
            matmul=lambda: torch.matmul(a, b, out=part),
            collective=lambda: scatter(mine, part),
            both=lambda: scatter(mine, torch.matmul(a, b, out=part)),
            right=lambda: torch.all(c.chunk(ranks, band)[self.rank] == total.chunk(ranks, band)[self.rank]),
        )  # fmt: skip

    def ready(self, name: str, call: Run, problem: Problem | None = None) -> None:
        """Warms a cell up, and captures it on GPUs."""
        for _ in range(2):
            call()
        self.device.synchronize()
        reference.meet()

        def calls() -> None:
            for _ in range(CALLS):
                call()

        self.runs[name] = (calls if self.emulated else self.clock.captured(call, CALLS), problem)

    def _whole(self, rows: int, columns: int) -> torch.Tensor:
        """-1, 0 and 1."""
        generator = torch.Generator(device=self.iris.get_device()).manual_seed(self.rank)
        return torch.randint(-1, 2, (rows, columns), generator=generator, device=self.iris.get_device()).half()


def setup(info: Mapping[str, Any], options: Mapping[str, Any]) -> Products:
    """Called once per rank process."""
    device = devices.known(options["device"], options["arch"])
    device.activate(info["local_rank"])
    torch.set_num_threads(1)
    return Products(info["rank"], info["world_size"], device, implementation.load(options["implementation"]))


def prepare(bench: Products, _: object) -> list[tuple[str, str, str]]:
    """Makes every cell; (op, shape, way) of those of the fused ops."""
    found = []
    for shape in SHAPES["emulated" if bench.emulated else "cuda"]:
        for op, ways in WAYS.items():
            problem, what = bench.problem(op, shape), f"{op} {shape.m} x {shape.n} x {shape.k}"
            problem.both()
            for name in ("both", "matmul", "collective"):
                bench.ready(f"{what}: {name}", getattr(problem, name))
            problem.both()
            for way, fields in ways.items():
                small = EMULATED if bench.emulated else {}
                config = bench.config(**{**fields, **small}) if fields or small else None
                matrices = (problem.output, problem.a, problem.b)
                workspace = getattr(bench.iris.ops, f"{op}_preamble")(*matrices, config=config)
                fused = getattr(bench.iris.ops, op)

                def call(
                    fused: Any = fused, config: Any = config, given: Any = matrices, held: Any = workspace
                ) -> None:
                    fused(*given, async_op=True, config=config, workspace=held)

                bench.ready(f"{what}: {way}", call, problem)
                found.append((op, what.removeprefix(f"{op} "), way))
    return found


def measure(bench: Products, name: str) -> float:
    """Seconds of one call of a cell."""
    run, problem = bench.runs[name]
    if problem is not None:
        problem.output.zero_()
    run_check = problem.right if problem is not None else lambda: torch.tensor(True)
    bench.device.synchronize()
    reference.meet()
    seconds, right = bench.clock.time(run, run_check)
    bench.device.drain_launches()
    if not right:
        sys.exit(f"rank {bench.rank}: {name} gave another result than torch")
    return float(seconds) / CALLS


def main() -> None:
    """See the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="emulated", choices=("emulated", "cuda", "rocm"))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    arguments = parser.parse_args()
    device = devices.known(arguments.device)
    options = {
        "device": device.name,
        "arch": device.arch,
        "implementation": "iris_under_test",
        "backend": device.backend,
    }
    with (
        gpus(device, arguments.ranks) as held,
        RankGroup(arguments.ranks, setup="benchmarks.fused:setup", options=options, **held) as group,
    ):
        cells = group.call("benchmarks.fused:prepare", None, deadline=300)[0]
        wanted = [f"{op} {shape}: {way}" for op, shape, way in cells]
        wanted += sorted({f"{op} {shape}: {way}" for op, shape, _ in cells for way in ("both", "matmul", "collective")})
        times: dict[str, list[float]] = {name: [] for name in wanted}
        for _ in range(arguments.repeat):
            for name in wanted:
                times[name].append(max(group.call("benchmarks.fused:measure", name, deadline=60)))
    figures = {name: spread(seconds) for name, seconds in times.items()}
    _show(cells, figures, arguments.ranks)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"device": device.name, "ranks": arguments.ranks, "microseconds": figures}, file, indent=1)


def _show(cells: list[tuple[str, str, str]], figures: Mapping[str, Mapping[str, float]], ranks: int) -> None:
    heads = ("op", "M x N x K", "way", "us", "p10-p90", "torch us", "ratio", "matmul us", "collective us", "hidden")
    table = Table(*heads, title=f"{ranks} ranks, float16: us per call")
    for op, shape, way in cells:
        mine = figures[f"{op} {shape}: {way}"]
        both, matmul, collective = (
            figures[f"{op} {shape}: {name}"]["median"] for name in ("both", "matmul", "collective")
        )
        hidden = (matmul + collective - mine["median"]) / min(matmul, collective)
        table.add_row(
            op, shape, way, f"{mine['median']:.0f}", f"{mine['p10']:.0f}-{mine['p90']:.0f}", f"{both:.0f}",
            f"{both / mine['median']:.2f}", f"{matmul:.0f}", f"{collective:.0f}", f"{hidden:.0%}",
        )  # fmt: skip
    Console(width=140).print(table)


def _reduce_scatter(into: torch.Tensor, given: torch.Tensor) -> object:
    return dist.reduce_scatter_tensor(into, given)


if __name__ == "__main__":
    main()
