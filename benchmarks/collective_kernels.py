"""The kernels that benchmarks.collectives_isa measures: what each is given, and how often it moves what. One line each.

launch(KERNELS["all_gather"], "gluon", tiles=2)      # on all ranks of a world in this process
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from benchmarks import flat_2d
from benchmarks.one_process import Rank, World
from iris_under_test.ccl import Config
from iris_under_test.ops import FusedConfig

__all__ = ["COLUMNS", "KERNELS", "RANKS", "ROWS", "WARPS", "Kernel", "launch"]

RANKS, ROWS, COLUMNS, WARPS = 8, 8, 256, 4


@dataclass(frozen=True)
class Kernel:
    """``op``: a method of ``ctx.ccl``, or what launches a kernel; ``shapes`` of its tensors in units of (M, N);
    ``fields`` of Config, ``options`` of the call.

    A rank works on one tile at a time, which it loads ``loads`` times (from several ranks, or several parts of the
    input) and stores ``stores`` times; None where that differs from tile to tile. ``sharers`` ranks divide the tiles
    among themselves. When each of them has done one, ``count`` tiles of the larger of input and output are done, which
    is the size as nccl-tests count it.
    """

    op: str | Callable[[Rank, Sequence[torch.Tensor], Config], object]
    shapes: tuple[tuple[float, float], ...]
    loads: int | None
    stores: int | None
    sharers: int = 1
    count: int = RANKS
    fields: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    dtype: torch.dtype = torch.float16
    languages: Sequence[str] = ("triton", "gluon")

    @property
    def programs(self) -> int:
        return int(self.fields.get("comm_sms", 1))

    @property
    def rows(self) -> int:
        """Of a tile; COLUMNS is its width."""
        return int(self.fields.get("block_size_m", ROWS))


def _around(rank: Rank, tensors: Sequence[torch.Tensor], config: Config) -> None:
    """Every rank sends to the next one."""
    to, source = (rank.cur_rank + 1) % RANKS, (rank.cur_rank - 1) % RANKS
    rank.ccl.sendrecv(tensors[1], tensors[0], dst=to, src=source, async_op=True, config=config)


def _fused(op: str, shapes: tuple[tuple[float, float], ...], rows: int, **fields: Any) -> Kernel:
    """Tiles of 16 x 256 elements of C, 256 products for each element."""

    def call(rank: Rank, tensors: Sequence[torch.Tensor], config: Config) -> None:
        output, left = tensors
        right = torch.zeros((COLUMNS, COLUMNS), dtype=left.dtype)
        chosen = FusedConfig(block_size_m=2 * ROWS, block_size_n=COLUMNS, block_size_k=64, num_sms=1, **fields)
        getattr(rank.ops, op)(output, left, right, async_op=True, config=chosen)

    return Kernel(call, shapes, None, None, rows, rows * int(shapes[0][0]), languages=("triton",))


def _all_reduce(variant: str, loads: int | None, stores: int | None, sharers: int = 1, count: int = RANKS) -> Kernel:
    fields = {"all_reduce_variant": variant}
    return Kernel("all_reduce", (_ONE, _ONE), loads, stores, sharers, count, fields)


_ONE, _ROWS, _COLUMNS = (1, 1), (RANKS, 1), (1, RANKS)
_LARGE = {"block_size_m": 4 * ROWS}
_LL = {"protocol": "ll", "block_size_m": 2}  # a word of each peer for each lane

KERNELS = {
    "flat-2D all_gather": Kernel(flat_2d.launch, (_ROWS, _ONE), 1, RANKS, languages=("gluon",)),
    "all_gather": Kernel("all_gather", (_ROWS, _ONE), 1, RANKS),
    "all_gather, 4 x the tile": Kernel("all_gather", (_ROWS, _ONE), 1, RANKS, fields=_LARGE),
    "all_gather, partitioned": Kernel(
        "all_gather",
        (_ROWS, _ONE),
        RANKS,
        RANKS,
        languages=("triton",),
        fields={"all_gather_variant": "partitioned", "comm_sms": RANKS},
    ),
    "all_gather ll": Kernel("all_gather", (_ROWS, _ONE), None, None, fields=_LL),
    "all_to_all": Kernel("all_to_all", (_COLUMNS, _COLUMNS), RANKS, RANKS),
    "reduce_scatter": Kernel("reduce_scatter", (_ONE, _ONE), RANKS, 1, sharers=RANKS),
    "reduce_scatter ll": Kernel("reduce_scatter", (_ONE, _ONE), None, None, sharers=RANKS, fields=_LL),
    "all_reduce one_shot": _all_reduce("one_shot", RANKS, 1, count=1),
    "all_reduce two_shot": _all_reduce("two_shot", RANKS, RANKS, sharers=RANKS),
    "all_reduce ring": _all_reduce("ring", None, None, sharers=RANKS),
    "all_reduce atomic": _all_reduce("atomic", None, None, count=1),
    "all_reduce spinlock": _all_reduce("spinlock", None, None, count=1),
    "reduce": Kernel("reduce", (_ONE, _ONE), RANKS, 1, sharers=RANKS),
    "broadcast": Kernel("broadcast", (_ONE,), 1, RANKS - 1, sharers=RANKS - 1, count=RANKS - 1),
    "broadcast, 4 x the tile": Kernel(
        "broadcast", (_ONE,), 1, RANKS - 1, sharers=RANKS - 1, count=RANKS - 1, fields=_LARGE
    ),
    "broadcast ll": Kernel("broadcast", (_ONE,), None, None, count=1, fields=_LL),
    "scatter": Kernel("scatter", (_ONE, _ROWS), RANKS, RANKS),
    "gather": Kernel("gather", (_ROWS, _ONE), RANKS, RANKS),
    "send and receive": Kernel(_around, (_ONE, _ONE), 1, 1, count=1),
    "matmul_all_gather": _fused("matmul_all_gather", (_ROWS, _ONE), 2),
    "all_gather_matmul": _fused("all_gather_matmul", (_ONE, (1, 1 / RANKS)), 2),
    "matmul_reduce_scatter": _fused("matmul_reduce_scatter", (_ONE, _ONE), 2 * RANKS),
    **{
        f"matmul_all_reduce {variant}": _fused("matmul_all_reduce", (_ONE, _ONE), 2 * RANKS, all_reduce_variant=variant)
        for variant in ("one_shot", "two_shot", "atomic", "spinlock")
    },
}
"""Row of the table -> kernel."""


def launch(kernel: Kernel, language: str, tiles: int) -> None:
    """On every rank of a new world, with ``tiles`` tiles for each program."""
    m, n = kernel.rows * tiles * kernel.sharers, COLUMNS
    shapes = [(int(rows * m), int(columns * n)) for rows, columns in kernel.shapes]
    world = World(RANKS, 4 * sum(rows * columns * kernel.dtype.itemsize for rows, columns in shapes) + (1 << 20))
    tensors = [world.tensors(shape, kernel.dtype) for shape in shapes]
    fields = {"comm_sms": 1, "block_size_m": ROWS, "block_size_n": COLUMNS, "num_warps": WARPS, **kernel.fields}
    config = Config(use_gluon=language == "gluon", **fields)

    def call(rank: Rank) -> None:
        mine = [heaps[rank.cur_rank] for heaps in tensors]
        if callable(kernel.op):
            kernel.op(rank, mine, config)
        else:
            getattr(rank.ccl, kernel.op)(*mine, async_op=True, config=config, **kernel.options)

    world.run(call)
