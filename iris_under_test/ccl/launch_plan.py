"""From a checked call of one of ``plans.PLANS`` to the launch of its kernel: ``move``, or that of the "ll" protocol."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from iris_under_test.device.flagged import EPOCH_WORDS, slot_words
from iris_under_test.device.signals import MOST_PROGRAMS
from iris_under_test.host.platform.base import warp_size
from iris_under_test.host.tracing.kernel_artifacts import iris_launch

from .launch import compiler_options, lane_layout

if TYPE_CHECKING:
    from iris_under_test.host.groups import Members

    from .config import Config

__all__ = ["Kind", "Plan", "launch_plan"]


@dataclass(frozen=True)
class Plan:
    """One collective. ``source``, ``target`` and ``shared`` are FROM, TO and SHARED of the kernel.

    ``in_parts`` and ``out_parts``: "rows" or "columns" if the input (the output) is one such part per member.
    ``flat``: contiguous tensors may be moved as one run, since no one can see which member moves which tile.
    """

    op: str
    source: str
    target: str
    shared: str = "none"
    in_parts: str = ""
    out_parts: str = ""
    flat: bool = True

    @property
    def reads_members(self) -> bool:
        """Whether inputs of other members are read."""
        return self.source != "own"

    @property
    def writes_members(self) -> bool:
        """Whether outputs of other members are written."""
        return self.target != "own"

    @property
    def reduces(self) -> bool:
        """Whether several inputs become one."""
        return self.source == "all"


@dataclass(frozen=True)
class Kind:
    """What a call asks for besides tensors: ``op`` is the code of its ``ReduceOp``, ``root`` a place in the group."""

    op: int
    root: int
    in_place: bool
    dtype: torch.dtype


def launch_plan(
    plan: Plan,
    output: torch.Tensor | None,
    source: torch.Tensor | None,
    part: tuple[int, int],
    members: Members,
    config: Config,
    tile: tuple[int, int],
    kind: Kind,
) -> None:
    """Enqueues the kernel on the current stream. ``part``: rows and columns, not 0, of what a member gives or gets."""
    rows, columns = part
    in_step = _step(source, plan.in_parts, part)
    out_step = _step(output, plan.out_parts, part)
    given = source if source is not None else output
    assert given is not None  # sanity check
    # A tensor that this member has no use for is never touched: its tiles are others'.
    source, output = source if source is not None else given, output if output is not None else given
    strides = (*source.stride(), *output.stride())
    # All members must launch the same number of programs: it follows from what they reach, which is alike on all. The
    # strides of a tensor that only one member uses are its own affair: that one may have other tiles for them.
    reached = [tensor for tensor, by in ((source, plan.reads_members), (output, plan.writes_members)) if by]
    runs = plan.flat and all(tensor.is_contiguous() for tensor in reached)
    one_run = runs and source.is_contiguous() and output.is_contiguous()
    elements = tile[0] * tile[1]
    tiles_m, tiles_n = -(-rows // tile[0]), -(-columns // tile[1])
    tiles = -(-rows * columns // elements) if runs else tiles_m * tiles_n
    flagged = config.protocol == "ll"
    if one_run or (runs and flagged):
        # Words are told apart by their numbers, so that all members must have the same elements in a tile.
        tiles_m, tiles_n = 1, tiles
    if one_run:
        rows, columns, tile = 1, rows * columns, (1, elements)
        strides = (columns, 1, columns, 1)
    sizes = (rows, columns, *strides, in_step, out_step, tiles_m, tiles_n, members.rank, kind.root)
    what = (plan.source, plan.target, kind.op, plan.shared, config.all_reduce_distribution == 0)
    sharers = {"all": members.size, "others": 1 if flagged else members.size - 1}.get(plan.shared, 1)
    # Programs beyond the number of tiles would have nothing to do.
    most = min(config.comm_sms, -(-tiles // sharers))
    options = {"algorithm": plan.op, "rank": members.ranks[members.rank], "dtype": kind.dtype}
    options.update(compiler_options(config))
    # Not at import: the one needs Gluon, and only its callers should.
    if flagged:
        assert members.slots is not None  # sanity check: there are few enough of them
        if config.use_gluon:
            from .gluon.flagged import flagged_kernel
        else:
            from .triton.flagged import flagged_kernel
        # A word for each lane. Larger tiles are done in pieces; for smaller ones there are fewer wavefronts, since one
        # without words of its own would give those of another once more, at any time.
        all_words, lanes = elements * source.element_size() // 4, warp_size()
        options["num_warps"] = warps = min(config.num_warps, max(all_words // lanes, 1))
        words = min(all_words, lanes * warps)
        pieces = all_words // words
        programs = min(
            config.comm_sms, -(-tiles // sharers) * pieces, EPOCH_WORDS.value, slot_words(members.size) // words
        )
        iris_launch(
            flagged_kernel, (programs,), members.slots.own, members.slots.bases, source, output, *sizes,
            *what, members.size, *tile, config.swizzle_size, "line" if one_run else "run" if runs else "tiles",
            words, _wide(source, strides[:2], columns, tile[1], in_step),
            _wide(output, strides[2:], columns, tile[1], out_step),
            *((lanes, warps) if config.use_gluon else ()), **options,
        )  # fmt: skip
        return
    if config.use_gluon:
        from .gluon.move import move_kernel
    else:
        from .triton.move import move_kernel
    lanes = members.size if plan.target == "one" else 1
    programs = min(config.comm_sms // lanes, most, MOST_PROGRAMS.value // lanes) * lanes
    iris_launch(
        move_kernel, (programs,), members.context, members.pads, source, output, *sizes,
        *what, kind.in_place, members.size, *tile, config.swizzle_size, config.num_xcds, config.chunk_size,
        math.gcd(source.data_ptr(), 16), math.gcd(output.data_ptr(), 16), one_run,
        *lane_layout(config, elements, source.element_size()), **options,
    )  # fmt: skip


def _wide(tensor: torch.Tensor, strides: tuple[int, ...], columns: int, tile_columns: int, step: int) -> bool:
    """Whether the elements of each 4 bytes of a row lie in memory as one aligned word."""
    bytes_of = [number * tensor.element_size() for number in (strides[0], columns, tile_columns, step)]
    return strides[1] == 1 and all(number % 4 == 0 for number in (tensor.data_ptr(), *bytes_of))


def _step(tensor: torch.Tensor | None, parts: str, part: tuple[int, int]) -> int:
    """Elements from one member's part to the next one's."""
    if tensor is None or not parts:
        return 0
    return part[0] * tensor.stride(0) if parts == "rows" else part[1] * tensor.stride(1)
