"""Plans of the collectives that the kernel ``move`` implements: the members that load, store and take part.

To add such a collective, write a file with its ``Plan`` and a function like those in ``rooted``, with its method in
``instance``. Until it has been measured and is named in ``TUNED_OPS``, it has the default configuration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from iris_under_test.device.flagged import MAX_SENDERS
from iris_under_test.host.platform.base import warp_size

from .call import symmetric_offset
from .config import LL_ALGORITHMS, PROTOCOLS, Config
from .kernel_launch import Kind, Plan, launch_plan
from .overlap import is_lazy, lies_on_itself, same_memory, shares_memory
from .reduce_op import ReduceOp
from .tuning import TUNED_OPS, tuned_config

if TYPE_CHECKING:
    from iris_under_test.host.groups import Members
    from iris_under_test.host.instance import Instance

__all__ = [
    "PLANS", "Plan", "check_lanes", "check_memory", "check_output", "check_reduction", "check_tile", "prepare_move",
]  # fmt: skip


PLANS = {
    "all_gather": Plan("all_gather", "own", "all", out_parts="rows"),
    "all_gather partitioned": Plan("all_gather", "own", "one", out_parts="rows"),
    "all_to_all": Plan("all_to_all", "own", "each", in_parts="columns", out_parts="columns", flat=False),
    "reduce_scatter": Plan("reduce_scatter", "all", "own", shared="all", flat=False),
    "all_reduce one_shot": Plan("all_reduce", "all", "own"),
    "all_reduce two_shot": Plan("all_reduce", "all", "all", shared="all"),
    "reduce": Plan("reduce", "all", "root", shared="all"),
    "broadcast": Plan("broadcast", "root", "others", shared="others"),
    "scatter": Plan("scatter", "own", "each", shared="root", in_parts="rows"),
    "gather": Plan("gather", "each", "own", shared="root", out_parts="rows"),
}

_DEFAULT_TILE = (Config.block_size_m, Config.block_size_n)
# Replaces the default tile for Gluon kernels: its rows are long enough for 16-byte accesses by a whole work-group.
_FLAT_TILE = (8, 256)
_LARGEST_TILE = 1 << 20  # Triton's limit for blocks; "ll" divides tiles into smaller ones
_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def prepare_move(
    plan: Plan,
    output: torch.Tensor | None,
    source: torch.Tensor | None,
    ctx: Instance,
    members: Members,
    config: Config | None,
    *,
    op: ReduceOp = ReduceOp.SUM,
    root: int = 0,
) -> tuple[str, Callable[[], None]]:
    """Check the tensors; return the arguments that all members must pass alike, and the launch. For ``call.run``.

    ``root`` is a place in the group. One of the tensors may be None if this member does not need it.

    Raises:
        ValueError: shapes, dtypes, ``op`` or tile do not fit, or a tensor that other members access is not on the heap.
    """
    given = source if source is not None else output
    assert given is not None  # sanity check: the caller has checked the tensor that is needed
    rows, columns = _part(plan, output, source, members.size)
    check_memory(plan.op, ctx, output, source)
    arguments = [f"{(rows, columns)} {given.dtype}", f"root {members.ranks[root]}", repr(op)]
    if output is not None:
        check_output(plan.op, output)
        if plan.writes_members:
            arguments.append(f"output at {symmetric_offset(output, f'{plan.op} output', ctx)} {output.stride()}")
        if source is not None:
            _check_apart(plan, output, source, members)
    if source is not None and plan.reads_members:
        arguments.append(f"input at {symmetric_offset(source, f'{plan.op} input', ctx)} {source.stride()}")
    if plan.reduces:
        check_reduction(plan.op, op, given.dtype)
        if given.dtype == torch.bool:  # as bytes 0 and 1
            op = {ReduceOp.SUM: ReduceOp.MAX, ReduceOp.PRODUCT: ReduceOp.MIN}.get(op, op)
    size = given.element_size()
    if config is None and plan.op not in TUNED_OPS:
        config = Config()
    elif config is None:
        config = tuned_config(
            plan.op, element_size=size, world_size=members.size, nbytes=rows * columns * size * _factor(plan, members)
        )
    if plan.target == "one" and config.comm_sms % members.size:
        raise ValueError(
            f"partitioned all_gather: comm_sms {config.comm_sms} must be a multiple of {members.size} ranks"
        )
    block_m, block_n = check_tile(config, owned=plan.op == "reduce_scatter")
    _check_protocol(plan, config, given.dtype, members.size, block_m * block_n)
    arguments.append(repr(config))
    output, source = _as_words(output, plan), _as_words(source, plan)
    in_place = output is not None and source is not None and same_memory(output, source)
    in_place = in_place and plan.op == "all_reduce" and plan.target == "own"
    arguments.append("in place" * in_place)

    def launch() -> None:
        if rows * columns and not (plan.target == "others" and members.size == 1):
            kind = Kind(int(op) if plan.reduces else 0, root, in_place, given.dtype)
            launch_plan(plan, output, source, (rows, columns), members, config, (block_m, block_n), kind)

    return ", ".join(arguments), launch


def check_memory(op: str, ctx: Instance, *tensors: torch.Tensor | None) -> None:
    """Raise ValueError if a tensor is on another device, or its memory does not hold its values. Checked early, before
    the other members have started.
    """
    for tensor in tensors:
        if tensor is not None and is_lazy(tensor):
            raise ValueError(
                f"{op}: a tensor is a lazy negative or conjugate, which kernels cannot read; pass its resolve_neg() or "
                "resolve_conj()"
            )
        if tensor is not None and tensor.device != ctx.get_device():
            raise ValueError(
                f"{op}: tensors must be on the instance's device {ctx.get_device()}, got one on {tensor.device}"
            )


def check_output(op: str, output: torch.Tensor) -> None:
    """Raise ValueError if elements of the output share memory with each other."""
    if lies_on_itself(output):
        raise ValueError(f"{op}: elements of the output share memory with each other, got strides {output.stride()}")


def _check_apart(plan: Plan, output: torch.Tensor, source: torch.Tensor, members: Members) -> None:
    """Raise ValueError if output and input share memory.

    Allowed are two equal tensors, and an input (or output) that is this member's own rows of the other one.
    """
    if not shares_memory(output, source):
        return
    rows = min(output.shape[0], source.shape[0])
    start = members.rank * rows
    if plan.out_parts == "rows":
        output = output[start : start + rows]
    elif plan.in_parts == "rows":
        source = source[start : start + rows]
    if plan.in_parts == "columns" or not same_memory(output, source):
        raise ValueError(
            f"{plan.op}: output and input overlap; only this member's own part may be the same memory in both"
        )


def check_reduction(op: str, reduce_op: ReduceOp, dtype: torch.dtype) -> None:
    """Raise ValueError if elements of ``dtype`` cannot be reduced by ``reduce_op``."""
    # Compare the type: the members of torch.distributed.ReduceOp equal numbers too, but different ones.
    if not isinstance(reduce_op, ReduceOp):
        raise ValueError(f"{op}: op must be one of {[one.name for one in ReduceOp]}, got {reduce_op!r}")
    if dtype.is_complex or (dtype.is_floating_point and dtype.itemsize < 2):
        raise ValueError(f"{op}: elements of {dtype} cannot be reduced")
    if dtype.is_floating_point and reduce_op >= ReduceOp.BAND:
        raise ValueError(f"{op}: {reduce_op.name} needs integers or bool, got {dtype}")


def check_lanes(config: Config) -> None:
    """Raise ValueError if the device's warps do not have ``config.threads_per_warp`` lanes.

    The default, 64, stands for the device's lane count, so that a default ``Config`` works on every device.
    """
    lanes = warp_size()
    if config.threads_per_warp not in (Config.threads_per_warp, lanes):
        raise ValueError(
            f"threads_per_warp must be {lanes}, the lane count of this device, or the default "
            f"{Config.threads_per_warp}, got {config.threads_per_warp}"
        )


def check_tile(config: Config, owned: bool = False) -> tuple[int, int]:
    """Return the rows and columns of a tile. ValueError if no kernel supports it.

    ``owned``: the tile decides which elements a member receives, so the Gluon default does not replace it.
    """
    check_lanes(config)
    tile = (config.block_size_m, config.block_size_n)
    if min(*tile, config.comm_sms) <= 0:  # fields may be assigned after Config has checked them
        raise ValueError(f"tiles {tile} and comm_sms {config.comm_sms} must be positive")
    block_m, block_n = _FLAT_TILE if config.use_gluon and tile == _DEFAULT_TILE and not owned else tile
    elements, lanes = block_m * block_n, warp_size() * config.num_warps
    if config.use_gluon and (elements < lanes or elements % lanes):
        raise ValueError(
            f"block_size_m * block_size_n = {block_m} * {block_n} = {elements} must be a multiple of "
            f"{lanes} = {warp_size()} lanes * {config.num_warps} warps"
        )
    if elements & (elements - 1):
        raise ValueError(f"block_size_m {block_m} and block_size_n {block_n} must be powers of two")
    return block_m, block_n


def _check_protocol(plan: Plan, config: Config, dtype: torch.dtype, size: int, elements: int) -> None:
    """Raise ValueError if the collective does not support the protocol for these elements, members and tiles."""
    if config.protocol not in PROTOCOLS:  # a field may be assigned after Config has checked it
        raise ValueError(f"protocol must be one of {PROTOCOLS}, got {config.protocol!r}")
    if config.protocol == "simple":
        return
    prefix = f"{plan.op} with protocol 'll'"
    name = next((name for name, one in PLANS.items() if one is plan), plan.op)
    if name not in LL_ALGORITHMS:
        raise ValueError(f"{prefix} is for {', '.join(LL_ALGORITHMS)}, got {name}")
    if dtype.itemsize > 4:
        raise ValueError(f"{prefix} takes elements of 1, 2 or 4 bytes, got {dtype}")
    if size > MAX_SENDERS.value:
        raise ValueError(f"{prefix} is for at most {MAX_SENDERS.value} members, got {size}")
    least = warp_size() if config.use_gluon else 1
    if elements * dtype.itemsize < 4 * least:
        raise ValueError(f"{prefix}: a tile must have {4 * least} bytes or more, got {elements} elements of {dtype}")


def _part(plan: Plan, output: torch.Tensor | None, source: torch.Tensor | None, size: int) -> tuple[int, int]:
    """Return (rows, columns) of one member's contribution or result, the same in input and output."""
    parts = []
    for name, tensor, split in (("input", source, plan.in_parts), ("output", output, plan.out_parts)):
        if tensor is None:
            continue
        if tensor.dim() != 2:
            raise ValueError(f"{plan.op} takes 2-D tensors, got an {name} of shape {tuple(tensor.shape)}")
        if tensor.dtype.itemsize not in _WORDS:
            raise ValueError(f"{plan.op}: elements must have 1, 2, 4 or 8 bytes, got {tensor.dtype}")
        rows, columns = tensor.shape
        if split and tensor.shape[split == "columns"] % size:
            raise ValueError(
                f"{plan.op}: {split} of the {name} must be a multiple of {size} ranks, got {(rows, columns)}"
            )
        parts.append((rows // size if split == "rows" else rows, columns // size if split == "columns" else columns))
    if source is not None and output is not None:
        if len(set(parts)) > 1:
            raise ValueError(
                f"{plan.op} of {size} ranks: input {tuple(source.shape)} and output {tuple(output.shape)} do not fit"
            )
        if source.dtype != output.dtype:
            raise ValueError(f"{plan.op} output is {output.dtype}, but the input is {source.dtype}")
    return parts[0]


def _factor(plan: Plan, members: Members) -> int:
    """Return the number of parts in the larger one of input and output: the tuning table counts the bytes of that."""
    return members.size if plan.in_parts or plan.out_parts else 1


def _as_words(tensor: torch.Tensor | None, plan: Plan) -> torch.Tensor | None:
    """Return a tensor that is only moved as integers of the same width, so that one kernel serves all dtypes of that
    width.
    """
    if tensor is None:
        return None
    if plan.reduces:
        return tensor.view(torch.int8) if tensor.dtype == torch.bool else tensor
    return tensor.view(_WORDS[tensor.dtype.itemsize])
