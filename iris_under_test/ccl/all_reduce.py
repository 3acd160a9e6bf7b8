"""All-reduce: the reduction of every member's input, on every member, by one of six algorithms; see ``all_reduce``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from iris_under_test.device.signals import MAX_PROGRAMS
from iris_under_test.host.tracing.kernel_artifacts import iris_launch
from iris_under_test.kernels.all_reduce import accumulate_gluon, accumulate_triton, ring_gluon, ring_triton
from iris_under_test.kernels.all_reduce_push import push_gluon, push_triton

from .call import run, symmetric_offset
from .config import ALL_REDUCE_VARIANTS, Config
from .kernel_launch import compiler_options, lane_layout
from .overlap import same_memory, shares_memory
from .plans import PLANS, check_memory, check_output, check_reduction, check_tile, prepare_move
from .reduce_op import ReduceOp
from .tuning import tuned_config
from .workspace import FLAG_BYTES, AllReduceWorkspace, Needs

if TYPE_CHECKING:
    from iris_under_test.host.groups import Members
    from iris_under_test.host.instance import Instance

__all__ = ["all_reduce", "all_reduce_preamble"]

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_INTEGERS = (torch.int32, torch.int64, torch.uint32, torch.uint64)
_ATOMIC = {
    ReduceOp.SUM: _INTEGERS + _FLOATS,
    **dict.fromkeys((ReduceOp.MIN, ReduceOp.MAX), (*_INTEGERS, torch.float32, torch.float64)),
    **dict.fromkeys((ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR), _INTEGERS),
}
"""Dtypes for which GPUs and Triton have an atomic, by operation."""


def all_reduce(
    output_tensor: torch.Tensor,
    input_tensor: torch.Tensor,
    ctx: Instance,
    op: ReduceOp = ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    config: Config | None = None,
    workspace: AllReduceWorkspace | None = None,
) -> AllReduceWorkspace:
    """Reduce the members' inputs into every member's output. Both are (M, N), and may be the same tensor.

    float16 and bfloat16 are reduced in float32, all other types in their own type. Values of
    ``config.all_reduce_variant``:

    =============  ========================================  =============  ===========================================
    variant        work of a member                          on the heap    result bits
    =============  ========================================  =============  ===========================================
    one_shot       reads all inputs of all members           input          always the same, in the members' order
    two_shot       reduces its part, writes it to all        both           the same
    two_shot_push  sends each member the part to reduce,     output         the same
                   writes its own reduced part to all
    ring           passes slices on to the next member       neither        always the same, in the ring's order
    atomic         adds its input to each output by atomics  output         exact if no order of the sum rounds, else
                                                                            they may differ from call to call and from
                                                                            member to member; float16 and bfloat16 are
                                                                            rounded after each addition
    spinlock       the same, under a lock per tile           output         as atomic
    =============  ========================================  =============  ===========================================

    "atomic" supports the ops and dtypes for which atomics exist: for integers of 4 and 8 bytes all ops but PRODUCT, for
    floats SUM, and MIN and MAX of float32 and float64 (-0.0 is then below 0.0, and a NaN beyond the infinity of its
    sign). The other variants support all seven ops, bitwise ones for integers. "ring" has ``all_reduce_num_rings``
    rings, in which members follow each other at different distances if possible, and slices of
    ``all_reduce_ring_slice_n`` columns; its order of additions depends on these, the tile, the shape and the group, not
    on ``comm_sms``.

    The members of "ring", "atomic", "spinlock" and "two_shot_push" pass inputs with the same strides, and outputs too;
    otherwise tensors that are not on the heap may have other strides on each member.

    Returns the workspace, which is also the handle of the call: ``wait``, ``synchronize``, ``is_completed`` (a call
    without ``async_op`` is complete). Without a workspace "spinlock", "ring" and "two_shot_push" use memory of the
    group; the first call that needs more than the group has allocates it, which is collective on the host, so prepare
    it before a graph is captured. For groups, ``async_op``, order and errors see ``ccl``.

    Raises:
        ValueError: shapes, dtypes, ``op`` or tile do not fit; the tensors overlap without being the same; a tensor that
            members access is not on the heap; an unknown variant, or one that does not support the op for the dtype;
            more rings than ``comm_sms``; the workspace was prepared for less ("Lock array too small", "Flags array too
            small").
        RuntimeError: a graph is being captured, and memory has to be prepared.
    """
    used: list[AllReduceWorkspace] = []

    def prepare(members: Members) -> tuple[str, Callable[[], None]]:
        chosen = _chosen(config, input_tensor, members)
        variant = chosen.all_reduce_variant
        if variant in ("one_shot", "two_shot"):
            used.append(_workspace(variant, members, Needs(), workspace))
            plan = PLANS[f"all_reduce {variant}"]
            return prepare_move(plan, output_tensor, input_tensor, ctx, members, chosen, op=op)
        call = _Call.of(output_tensor, input_tensor, op, members, chosen)
        used.append(_workspace(variant, members, call.needs, workspace))
        used[0].check_room(call.needs)
        return call.arguments(ctx), lambda: call.launch(used[0].scratch(ctx, members))

    work = run("all_reduce", ctx, group, async_op, prepare)
    used[0].called(work)
    return used[0]


def all_reduce_preamble(
    output_tensor: torch.Tensor,
    input_tensor: torch.Tensor,
    ctx: Instance,
    config: Config | None = None,
    workspace: AllReduceWorkspace | None = None,
    group: dist.ProcessGroup | None = None,
) -> AllReduceWorkspace:
    """Return a workspace with its memory, for calls with tensors and a config like these: ``workspace`` itself if it
    suffices.

    Collective over the group, on the host; no other rank takes part. Needed only before a graph capture. The output is
    not touched. (Upstream Iris clears it here, and requires a preamble before every call.)

    Raises:
        ValueError, RuntimeError: as ``all_reduce``, and RuntimeError while a graph is being captured.
    """
    used: list[AllReduceWorkspace] = []

    def prepare(members: Members) -> tuple[str, Callable[[], None]]:
        chosen = _chosen(config, input_tensor, members)
        variant, needs, arguments = chosen.all_reduce_variant, Needs(), repr(chosen)
        if variant not in ("one_shot", "two_shot"):
            call = _Call.of(output_tensor, input_tensor, None, members, chosen)
            needs, arguments = call.needs, f"{arguments} {call.needs}"
        ready = _workspace(variant, members, needs, workspace)
        if ready.words < needs.words or ready.num_bytes < needs.num_bytes:
            ready = AllReduceWorkspace(variant, members, needs)
        used.append(ready)
        return arguments, lambda: (ready.scratch(ctx, members), None)[1]

    run("all_reduce_preamble", ctx, group, False, prepare)
    return used[0]


def _chosen(config: Config | None, source: torch.Tensor, members: Members) -> Config:
    if config is None:
        return tuned_config(
            "all_reduce", element_size=source.element_size(), world_size=members.size, nbytes=source.nbytes
        )
    variant = config.all_reduce_variant
    if variant not in ALL_REDUCE_VARIANTS:  # a field may be assigned after Config has checked it
        raise ValueError(f"all_reduce_variant must be one of {ALL_REDUCE_VARIANTS}, got {variant!r}")
    if config.protocol != "simple" and variant != "one_shot":
        raise ValueError(f"all_reduce with protocol {config.protocol!r} is for one_shot, got {variant}")
    return config


def _workspace(variant: str, members: Members, needs: Needs, given: AllReduceWorkspace | None) -> AllReduceWorkspace:
    """Return ``given``, unless it is for another variant or group."""
    return (
        given if given is not None and given.serves(variant, members) else AllReduceWorkspace(variant, members, needs)
    )


@dataclass(frozen=True)
class _Call:
    """Checked call of the atomic, spinlock, ring or two_shot_push variant.

    ``op``: None if nothing will be reduced yet; ``layout``: rows, columns, strides of the input, strides of the output;
    ``slice_n``: columns that the ring moves at once; ``programs``: number of programs, the same on every member.
    """

    output: torch.Tensor
    source: torch.Tensor
    op: ReduceOp | None
    members: Members
    config: Config
    layout: tuple[int, ...]
    block_m: int
    block_n: int
    slice_n: int
    programs: int
    slot_bytes: int
    needs: Needs

    @staticmethod
    def of(output: torch.Tensor, source: torch.Tensor, op: ReduceOp | None, members: Members, config: Config) -> _Call:
        """Check the arguments, without waiting for other members."""
        variant = config.all_reduce_variant
        _check_tensors(output, source)
        check_output("all_reduce", output)
        if op is not None:
            check_reduction("all_reduce", op, source.dtype)
        if source.dtype == torch.bool:  # as bytes 0 and 1
            output, source = output.view(torch.int8), source.view(torch.int8)
            op = {ReduceOp.SUM: ReduceOp.MAX, ReduceOp.PRODUCT: ReduceOp.MIN}.get(op, op) if op is not None else None
        if variant == "atomic" and op is not None and source.dtype not in _ATOMIC.get(op, ()):
            raise ValueError(
                f"all_reduce: the variant atomic does not support {op.name} of {source.dtype}; "
                f"use one_shot, two_shot, two_shot_push, ring or spinlock"
            )
        rows, columns = source.shape
        block_m, block_n = check_tile(config)
        slice_n = _slice_columns(config, block_n) if variant == "ring" else block_n
        strides = (*source.stride(), *output.stride())
        if source.is_contiguous() and output.is_contiguous():
            rows, columns, block_m, block_n, slice_n = 1, rows * columns, 1, block_m * block_n, block_m * slice_n
            strides = (columns, 1, columns, 1)
        tiles = -(-rows // block_m) * -(-columns // block_n)
        programs, slot_bytes, needs = min(config.comm_sms, MAX_PROGRAMS.value), 0, Needs()
        if variant == "ring":
            rings = config.all_reduce_num_rings
            if not 0 < rings <= programs:
                raise ValueError(f"all_reduce_num_rings must be between 1 and comm_sms {programs}, got {rings}")
            turns = -(-tiles * (block_n // slice_n) // members.size)
            # A multiple of the rings, so that the assignment of slices does not depend on the number of programs.
            programs = max(min(programs, turns) // rings, 1) * rings
            slot_bytes = -(-block_m * slice_n * max(source.element_size(), _widened_size(source.dtype)) // 16) * 16
            needs = Needs(programs, FLAG_BYTES + programs * members.size * slot_bytes)
        elif variant == "two_shot_push":
            programs = min(programs, -(-tiles // members.size))
            needs = Needs(programs, programs * 2 * members.size * block_m * block_n * source.element_size())
        else:
            programs = min(programs, tiles)
            if variant == "spinlock":
                needs = Needs(tiles, tiles * 4)
        return _Call(
            output, source, op, members, config, (rows, columns, *strides), block_m, block_n, slice_n, programs,
            slot_bytes, needs,
        )  # fmt: skip

    def arguments(self, ctx: Instance) -> str:
        """Return the arguments that every member must pass alike, as text.

        Raises:
            ValueError: the tensors are not where kernels and members reach them.
        """
        check_memory("all_reduce", ctx, self.output, self.source)
        place = ""
        if self.config.all_reduce_variant != "ring":
            place = f", output at {symmetric_offset(self.output, 'all_reduce output', ctx)}"
        strides = f"strides {self.output.stride()} and {self.source.stride()}"
        return f"{tuple(self.source.shape)} {self.source.dtype}, {self.op!r}, {strides}{place}, {self.config!r}"

    def launch(self, scratch: Any) -> None:
        """Enqueue the kernel on the current stream."""
        if not self.source.numel():
            return
        config, members = self.config, self.members
        bases = scratch.bases if scratch is not None else members.pads  # the atomic variant looks at none
        assert self.op is not None  # sanity check: all_reduce has one
        tensors = (bases, self.source, self.output, *self.layout, members.rank)
        order = (config.swizzle_size, config.num_xcds, config.chunk_size)
        if config.all_reduce_variant == "ring":
            kernels, moved = (ring_triton, ring_gluon), self.block_m * self.slice_n
            arguments: tuple[Any, ...] = (
                members.pads, *tensors, FLAG_BYTES, self.slot_bytes,
                int(self.op), members.size, config.all_reduce_num_rings,
                self.block_m, self.block_n, self.slice_n, config.swizzle_size,
            )  # fmt: skip
        elif config.all_reduce_variant == "two_shot_push":
            kernels, moved = (push_triton, push_gluon), self.block_m * self.block_n
            arguments = (
                members.context, members.pads, *tensors, int(self.op), members.size,
                math.gcd(self.output.data_ptr(), 16), self.block_m, self.block_n, config.swizzle_size,
            )  # fmt: skip
        else:
            kernels, moved = (accumulate_triton, accumulate_gluon), self.block_m * self.block_n
            arguments = (
                members.context, members.pads, *tensors,
                int(self.op), config.all_reduce_variant == "spinlock", members.size,
                math.gcd(self.output.data_ptr(), 16), self.block_m, self.block_n, *order,
            )  # fmt: skip
        arguments += lane_layout(config, moved, self.source.element_size())
        iris_launch(
            kernels[config.use_gluon], (self.programs,), *arguments,
            algorithm="all_reduce", rank=members.ranks[members.rank], dtype=self.source.dtype,
            **compiler_options(config),
        )  # fmt: skip


def _check_tensors(output: torch.Tensor, source: torch.Tensor) -> None:
    if source.dim() != 2 or output.shape != source.shape:
        shapes = f"{tuple(source.shape)} and {tuple(output.shape)}"
        raise ValueError(f"all_reduce takes 2-D tensors of one shape, got input and output of {shapes}")
    if output.dtype != source.dtype:
        raise ValueError(f"all_reduce output is {output.dtype}, but the input is {source.dtype}")
    if not same_memory(output, source) and shares_memory(output, source):
        raise ValueError("all_reduce output and input overlap; they must be the same tensor or share no memory")


def _slice_columns(config: Config, block_n: int) -> int:
    """Return the columns of a slice from the config, whose fields may have been assigned after its checks."""
    columns = config.all_reduce_ring_slice_n
    if columns is None or columns <= 0 or block_n % columns or columns & (columns - 1):
        raise ValueError(
            f"all_reduce_ring_slice_n: expected a power of two that divides block_size_n = {block_n}, got {columns}"
        )
    return columns


def _widened_size(dtype: torch.dtype) -> int:
    """Return the bytes of an element in the type in which it is reduced."""
    return 4 if dtype.is_floating_point and dtype.itemsize == 2 else dtype.itemsize
