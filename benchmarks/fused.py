"""Fused products compared with torch.matmul followed by torch.distributed, in the same run.

    python -m benchmarks.fused [--device cuda] [--ranks 4] [--repeat 10] [--json FILE]

Each cell is a device graph of four calls (on GPUs), replayed between two events behind an all_reduce that lines the
ranks up; the slowest rank counts. Cells take turns; medians with the 10th and 90th percentile over all rounds. Every
timing's output is compared bit by bit with that of torch: inputs are -1, 0 and 1, of which every part and sum here is
exact in float16. Columns: the op; torch.matmul, then the collective; their ratio (above 1: the fused op is faster);
each of the two alone, of which the larger is the floor for both; the share of the smaller one that the fused op hides,
100 % at the floor. On the emulated device the clock is the wall's and sizes are small: it shows that all this works.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.distributed as dist
from rich.console import Console
from rich.table import Table

from benchmarks import rounds
from command_line.bench.worker import clock_of
from harness.oracles import reference

CALLS = 4
HEAP_BYTES = 6 << 30


@dataclass(frozen=True)
class Shape:
    """The whole product: C (m, n) = A (m, k) @ B (k, n), of which each rank has its part."""

    m: int
    n: int
    k: int

    def __str__(self) -> str:
        return f"{self.m} x {self.n} x {self.k}"


RANKS = (1, 2, 4, 8)
SHAPES = {"cuda": (Shape(8192, 8192, 8192), Shape(128, 8192, 8192)), "emulated": (Shape(128, 64, 64),)}
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

BESIDE = ("both", "matmul", "collective")
"""What torch takes for the product and then the collective, and for each alone: names of a Problem's fields."""

Run = Callable[[], object]


@dataclass
class Problem:
    """One op on one shape, on this rank: the fused op's tensors, and the same by torch. ``right`` returns whether the
    output equals torch's."""

    output: torch.Tensor
    a: torch.Tensor
    b: torch.Tensor
    matmul: Run
    collective: Run
    both: Run
    right: Callable[[], torch.Tensor]


@dataclass(frozen=True)
class Cell:
    """One thing that is timed: a way to run the fused op, or one of ``BESIDE``."""

    op: str
    shape: Shape
    way: str

    def __str__(self) -> str:
        return f"{self.op} {self.shape}: {self.way}"

    def beside(self, way: str) -> Cell:
        """The same product in another way."""
        return replace(self, way=way)


def cells_on(device: str) -> tuple[Cell, ...]:
    """All cells of a device, those of one product side by side."""
    return tuple(
        Cell(op, shape, way) for shape in SHAPES[device] for op, ways in WAYS.items() for way in (*BESIDE, *ways)
    )


def share_axis(shape: Shape, emulated: bool) -> int:
    """Along which axis of C the shares of matmul_reduce_scatter lie side by side: rows, or columns where there is but
    one row of tiles. With these shapes and blocks a share is a whole band, for any of ``RANKS``."""
    return 0 if emulated or shape.m > 256 else 1


class Products:
    """One rank: its instance, its clock, its problems, and the cells that are ready to be timed."""

    def __init__(self, rank: int, ranks: int, device: Any, under_test: Any) -> None:
        self.rank, self.ranks, self.device = rank, ranks, device
        self.cells = {str(cell): cell for cell in cells_on(device.name)}
        self.config = under_test.module.ops.FusedConfig
        self.emulated = device.name == "emulated"
        self.iris = under_test.iris(heap_size=(16 << 20) if self.emulated else HEAP_BYTES)
        self.clock = clock_of(self.iris.get_device())
        self.problems: dict[tuple[str, Shape], Problem] = {}
        self.runs: dict[str, Callable[[], None]] = {}

    def problem(self, cell: Cell) -> Problem:
        """The tensors of its op and shape, made with its first cell; collective."""
        made = self.problems.get((cell.op, cell.shape))
        if made is None:
            made = self.problems[cell.op, cell.shape] = self._problem(cell.op, cell.shape)
            made.both()
        return made

    def call(self, cell: Cell) -> Run:
        """Return a function that makes the call of a cell; collective."""
        problem = self.problem(cell)
        if cell.way in BESIDE:
            run: Run = getattr(problem, cell.way)
            return run
        fields = {**WAYS[cell.op][cell.way], **(EMULATED if self.emulated else {})}
        config = self.config(**fields) if fields else None
        matrices = (problem.output, problem.a, problem.b)
        workspace = getattr(self.iris.ops, f"{cell.op}_preamble")(*matrices, config=config)
        fused = getattr(self.iris.ops, cell.op)
        return lambda: fused(*matrices, async_op=True, config=config, workspace=workspace)

    def _problem(self, op: str, shape: Shape) -> Problem:
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
        band = share_axis(shape, self.emulated)
        return Problem(
            c, a, b,
            matmul=lambda: torch.matmul(a, b, out=part),
            collective=lambda: dist.reduce_scatter_tensor(mine, part),
            both=lambda: dist.reduce_scatter_tensor(mine, torch.matmul(a, b, out=part)),
            right=lambda: torch.all(c.chunk(ranks, band)[self.rank] == total.chunk(ranks, band)[self.rank]),
        )  # fmt: skip

    def _whole(self, rows: int, columns: int) -> torch.Tensor:
        """-1, 0 and 1."""
        generator = torch.Generator(device=self.iris.get_device()).manual_seed(self.rank)
        return torch.randint(-1, 2, (rows, columns), generator=generator, device=self.iris.get_device()).half()


def setup(info: Mapping[str, Any], options: Mapping[str, Any]) -> Products:
    """Called once per rank process."""
    return Products(info["rank"], info["world_size"], *rounds.on_rank(info, options))


def cells(bench: Products, _: object) -> list[str]:
    """The names of all cells."""
    return list(bench.cells)


def prepare(bench: Products, name: str) -> None:
    """Warm a cell up, and capture it on GPUs."""
    call = bench.call(bench.cells[name])
    for _ in range(2):
        call()
    bench.device.synchronize()
    reference.barrier()

    def calls() -> None:
        for _ in range(CALLS):
            call()

    bench.runs[name] = calls if bench.emulated else bench.clock.captured(call, CALLS)


def measure(bench: Products, name: str) -> float:
    """Seconds of one call of a cell."""
    cell = bench.cells[name]
    problem = bench.problem(cell)
    if cell.way not in BESIDE:
        problem.output.zero_()
    bench.device.synchronize()
    reference.barrier()
    seconds, right = bench.clock.time(bench.runs[name], problem.right)
    bench.device.drain_launches()
    if cell.way not in BESIDE and not right:
        raise RuntimeError(f"{name} gave another result than torch")
    return seconds / CALLS


def main() -> None:
    """See the module docstring."""
    given = rounds.options(__doc__, RANKS)
    _show(rounds.run("benchmarks.fused", given), given)


def _show(figures: rounds.Figures, given: Namespace) -> None:
    heads = ("op", "M x N x K", "way", "us", "p10-p90", "torch us", "ratio", "matmul us", "collective us", "hidden")
    table = Table(*heads, title=f"{given.ranks} ranks, {given.device}, float16: us per call")
    for cell in cells_on(given.device):
        if cell.way in BESIDE:
            continue
        mine = figures[str(cell)]
        both, matmul, collective = (figures[str(cell.beside(way))]["median"] for way in BESIDE)
        hidden = (matmul + collective - mine["median"]) / min(matmul, collective)
        table.add_row(
            cell.op, str(cell.shape), cell.way, f"{mine['median']:.0f}", f"{mine['p10']:.0f}-{mine['p90']:.0f}",
            f"{both:.0f}", f"{both / mine['median']:.2f}", f"{matmul:.0f}", f"{collective:.0f}", f"{hidden:.0%}",
        )  # fmt: skip
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
