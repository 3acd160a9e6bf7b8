"""Kernel launches: compiler options, the layout of Gluon blocks, and the launch of a checked call of ``plans.PLANS``.

The kernel is ``move``, or that of the "ll" protocol.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from iris_under_test.device.flagged import EPOCH_WORDS, slot_words
from iris_under_test.device.signals import MAX_PROGRAMS
from iris_under_test.host.platform.base import warp_size
from iris_under_test.host.tracing.kernel_artifacts import iris_launch
from iris_under_test.kernels.ll import flagged_gluon, flagged_triton
from iris_under_test.kernels.move import move_gluon, move_triton

if TYPE_CHECKING:
    from iris_under_test.host.groups import Members

    from .config import Config

__all__ = ["Kind", "Plan", "compiler_options", "lane_layout", "launch_plan"]


@dataclass(frozen=True)
class Plan:
    """One collective. ``source``, ``target`` and ``shared`` are FROM, TO and SHARED of the kernel.

    ``in_parts`` and ``out_parts``: "rows" or "columns" if the input (the output) is one such part per member. ``flat``:
    contiguous tensors may be moved as one run, because the result does not show which member moves which tile.
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
        """Return whether inputs of other members are read."""
        return self.source != "own"

    @property
    def writes_members(self) -> bool:
        """Return whether outputs of other members are written."""
        return self.target != "own"

    @property
    def reduces(self) -> bool:
        """Return whether several inputs are reduced to one."""
        return self.source == "all"


@dataclass(frozen=True)
class Kind:
    """Properties of a call besides its tensors: ``op`` is the code of its ``ReduceOp``, ``root`` a place in the
    group.
    """

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
    """Enqueue the kernel on the current stream. ``part``: rows and columns, not 0, that a member contributes or
    receives.
    """
    rows, columns = part
    in_step = _step(source, plan.in_parts, part)
    out_step = _step(output, plan.out_parts, part)
    given = source if source is not None else output
    assert given is not None  # sanity check
    # A tensor that this member does not need is never accessed: its tiles belong to others.
    source, output = source if source is not None else given, output if output is not None else given
    strides = (*source.stride(), *output.stride())
    # All members must launch the same number of programs, so it follows only from tensors that several members access,
    # which are alike on all. The strides of a tensor that one member alone accesses may change that member's tiles.
    reached = [tensor for tensor, by in ((source, plan.reads_members), (output, plan.writes_members)) if by]
    runs = plan.flat and all(tensor.is_contiguous() for tensor in reached)
    one_run = runs and source.is_contiguous() and output.is_contiguous()
    elements = tile[0] * tile[1]
    tiles_m, tiles_n = -(-rows // tile[0]), -(-columns // tile[1])
    tiles = -(-rows * columns // elements) if runs else tiles_m * tiles_n
    flagged = config.protocol == "ll"
    if one_run or (runs and flagged):
        # Words are identified by their numbers, so all members must have the same elements in a tile.
        tiles_m, tiles_n = 1, tiles
    if one_run:
        rows, columns, tile = 1, rows * columns, (1, elements)
        strides = (columns, 1, columns, 1)
    sizes = (rows, columns, *strides, in_step, out_step, tiles_m, tiles_n, members.rank, kind.root)
    constants = (plan.source, plan.target, kind.op, plan.shared, config.all_reduce_distribution == 0)
    workers = {"all": members.size, "others": 1 if flagged else members.size - 1}.get(plan.shared, 1)
    # Programs beyond the number of tiles would have nothing to do.
    needed = min(config.comm_sms, -(-tiles // workers))
    options: dict[str, Any] = {"algorithm": plan.op, "rank": members.ranks[members.rank], "dtype": kind.dtype}
    options.update(compiler_options(config))
    if flagged:
        assert members.slots is not None  # sanity check: there are few enough of them
        # One word per lane. Larger tiles are done in pieces. Smaller ones have fewer wavefronts, because a wavefront
        # without words of its own would send those of another one again, at any time.
        all_words, lanes = elements * source.element_size() // 4, warp_size()
        options["num_warps"] = warps = min(config.num_warps, max(all_words // lanes, 1))
        words = min(all_words, lanes * warps)
        pieces = all_words // words
        programs = min(
            config.comm_sms, -(-tiles // workers) * pieces, EPOCH_WORDS.value, slot_words(members.size) // words
        )
        iris_launch(
            flagged_gluon if config.use_gluon else flagged_triton, (programs,),
            members.slots.own, members.slots.bases, source, output, *sizes,
            *constants, members.size, *tile, config.swizzle_size, "line" if one_run else "run" if runs else "tiles",
            words, _wide(source, strides[:2], columns, tile[1], in_step),
            _wide(output, strides[2:], columns, tile[1], out_step),
            *((lanes, warps) if config.use_gluon else ()), **options,
        )  # fmt: skip
        return
    lanes = members.size if plan.target == "one" else 1
    programs = min(config.comm_sms // lanes, needed, MAX_PROGRAMS.value // lanes) * lanes
    iris_launch(
        move_gluon if config.use_gluon else move_triton, (programs,),
        members.context, members.pads, source, output, *sizes,
        *constants, kind.in_place, members.size, *tile, config.swizzle_size, config.num_xcds, config.chunk_size,
        math.gcd(source.data_ptr(), 16), math.gcd(output.data_ptr(), 16), one_run,
        *lane_layout(config, elements, source.element_size()), **options,
    )  # fmt: skip


def compiler_options(config: Config) -> dict[str, Any]:
    """Return the compiler options of a launch. ``waves_per_eu`` only for AMD GPUs: Triton refuses it for others."""
    from triton.runtime import driver

    options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
    if config.waves_per_eu and driver.active.get_current_target().backend == "hip":
        options["waves_per_eu"] = config.waves_per_eu
    return options


def lane_layout(config: Config, elements: int, element_size: int) -> tuple[int, ...]:
    """Return the last arguments of a Gluon kernel: elements per lane (up to 16 bytes), lanes, wavefronts. Empty for
    Triton.
    """
    if not config.use_gluon:
        return ()
    lanes = warp_size()
    per_lane = max(elements // (lanes * config.num_warps), 1)
    return min(per_lane, max(16 // element_size, 1)), lanes, config.num_warps


def _wide(tensor: torch.Tensor, strides: tuple[int, ...], columns: int, tile_columns: int, step: int) -> bool:
    """Return whether the elements of each 4 bytes of a row lie in memory as one aligned word."""
    bytes_of = [number * tensor.element_size() for number in (strides[0], columns, tile_columns, step)]
    return strides[1] == 1 and all(number % 4 == 0 for number in (tensor.data_ptr(), *bytes_of))


def _step(tensor: torch.Tensor | None, parts: str, part: tuple[int, int]) -> int:
    """Return the elements from one member's part to the next one's. A tensor that this member does not need counts as a
    contiguous one, so that all members run one binary if the others' is."""
    if not parts:
        return 0
    if tensor is None:
        return part[0] * part[1] if parts == "rows" else part[1]
    return part[0] * tensor.stride(0) if parts == "rows" else part[1] * tensor.stride(1)
