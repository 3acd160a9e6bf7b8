"""All-gather: every member's rows, stacked by group rank, on every member."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from iris_under_test.host.platform.base import warp_size

from .config import ALL_GATHER_VARIANTS, Config
from .utils import extract_group_info, finished

if TYPE_CHECKING:
    from iris_under_test.host.iris import Iris

__all__ = ["all_gather", "all_gather_config"]

_DEFAULT_TILE = (Config.block_size_m, Config.block_size_n)
# What the Gluon kernel's default tile becomes: rows long enough for 16-byte accesses by a whole work-group.
_FLAT_TILE = (8, 256)
_NVIDIA_TILE_BYTES = 8192


def all_gather(
    output_tensor: torch.Tensor,
    input_tensor: torch.Tensor,
    ctx: Iris,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    config: Config | None = None,
) -> None:
    """Gathers ``input_tensor`` (M, N) of W ranks into ``output_tensor`` (W*M, N) on each, as all_gather_into_tensor.

    Any strides; remote stores are 16 bytes wide when both are contiguous along N, aligned to 16 bytes, and N and the
    row strides are multiples of 16 elements (2- and 4-byte dtypes and the default tile); with the Triton kernel and
    contiguous tensors, when M*N is a multiple of 16 elements.

    Collective. No entry barrier: the caller makes sure that every member's output may be overwritten. Ends with a
    barrier of the **world**, also when a group is given, so every rank of the world must make a matching call;
    ``async_op=True`` leaves the barrier out and returns no handle. An error on one rank is raised there, and a
    RuntimeError that names the rank on the others; with ``async_op=True`` only there.

    ``config=None`` means the Triton kernel, with what was measured best on the device. The Gluon kernel has only the
    persistent variant, and its default tile 32 x 64 becomes 8 x 256. ``threads_per_warp`` is replaced by the device's
    lane count.

    Raises:
        ValueError: shapes, dtypes or tile do not fit, the output is off the heap, or ``use_gluon`` is asked for with
            another variant than "persistent".
        RuntimeError: this rank is not in the group.
        NotImplementedError: the group's ranks are not uniformly spaced.
    """
    geometry = extract_group_info(group, ctx)
    finished(lambda: _enqueue(output_tensor, input_tensor, ctx, geometry, config), ctx, async_op)


def _enqueue(
    output_tensor: torch.Tensor,
    input_tensor: torch.Tensor,
    ctx: Iris,
    geometry: tuple[int, int, int, int, int],
    config: Config | None,
) -> None:
    """Checks, then launches; ``geometry`` is what ``extract_group_info`` gives."""
    config = config if config is not None else all_gather_config(input_tensor.element_size())
    rank_in_group, _, group_size, rank_start, rank_stride = geometry
    _check_tensors(output_tensor, input_tensor, group_size, ctx)
    _check_variant(config, group_size)
    block_m, block_n = _tile(config)
    if input_tensor.numel() == 0:
        return
    # Not at import: the one needs Gluon, and only its callers should.
    if config.use_gluon:
        from .gluon.all_gather import launch_all_gather
    else:
        from .triton.all_gather import launch_all_gather

    launch_all_gather(
        output_tensor,
        input_tensor,
        ctx.get_device_context(),
        rank_in_group=rank_in_group,
        group_size=group_size,
        rank_start=rank_start,
        rank_stride=rank_stride,
        block_m=block_m,
        block_n=block_n,
        config=config,
    )


def _check_variant(config: Config, group_size: int) -> None:
    variant = config.all_gather_variant
    if variant not in ALL_GATHER_VARIANTS:  # a field may be assigned after Config has checked it
        raise ValueError(f"all_gather_variant must be one of {ALL_GATHER_VARIANTS}, got {variant!r}")
    if variant == "partitioned" and config.comm_sms % group_size:
        raise ValueError(f"partitioned all_gather: comm_sms {config.comm_sms} must be a multiple of {group_size} ranks")
    if config.use_gluon and variant != "persistent":
        raise ValueError(f"all_gather with Gluon: the variant must be persistent, got {variant}")


def _check_tensors(output_tensor: torch.Tensor, input_tensor: torch.Tensor, group_size: int, ctx: Iris) -> None:
    if input_tensor.dim() != 2 or output_tensor.dim() != 2:
        shapes = f"{tuple(input_tensor.shape)} and {tuple(output_tensor.shape)}"
        raise ValueError(f"all_gather takes 2-D tensors, got input and output of {shapes}")
    rows, columns = input_tensor.shape
    if tuple(output_tensor.shape) != (group_size * rows, columns):
        raise ValueError(
            f"all_gather output must be {(group_size * rows, columns)} for an input of {(rows, columns)} "
            f"on {group_size} ranks, got {tuple(output_tensor.shape)}"
        )
    if output_tensor.dtype != input_tensor.dtype:
        raise ValueError(f"all_gather output is {output_tensor.dtype}, but the input is {input_tensor.dtype}")
    if not ctx.is_symmetric(output_tensor):
        raise ValueError("all_gather output is not on the symmetric heap")


def all_gather_config(element_size: int) -> Config:
    """What ``config=None`` becomes: what was measured best on the device.

    On Hopper: 128 programs of 8 warps and tiles of 8 KiB, at every size from 256 KiB to 512 MiB within a few percent
    of the best of a sweep on 4 H200s. On AMD GPUs nothing has been measured yet: the defaults.
    """
    if warp_size() != 32:
        return Config()
    rows, columns = _NVIDIA_TILE_BYTES // (256 * element_size), 256
    return Config(block_size_m=rows, block_size_n=columns, comm_sms=128, num_warps=8)


def _tile(config: Config) -> tuple[int, int]:
    tile = (config.block_size_m, config.block_size_n)
    block_m, block_n = _FLAT_TILE if config.use_gluon and tile == _DEFAULT_TILE else tile
    elements, lanes = block_m * block_n, warp_size() * config.num_warps
    if config.use_gluon and (elements < lanes or elements % lanes):
        raise ValueError(
            f"block_size_m * block_size_n = {block_m} * {block_n} = {elements} must be a multiple of "
            f"{lanes} = {warp_size()} lanes * {config.num_warps} warps"
        )
    if elements & (elements - 1):
        raise ValueError(f"block_size_m {block_m} and block_size_n {block_n} must be powers of two")
    return block_m, block_n
