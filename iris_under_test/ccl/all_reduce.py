"""All-reduce: the reduction of every member's input, on every member. Six algorithms; see ``all_reduce``."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from iris_under_test.device.signals import MOST_PROGRAMS
from iris_under_test.host.tracing.kernel_artifacts import iris_launch

from .config import ALL_REDUCE_VARIANTS, Config
from .launch import compiler_options, lane_layout, run, symmetric_offset
from .overlap import same_memory, shares_memory
from .plans import PLANS, check_device, check_output, check_reduction, check_tile, prepare_move
from .reduce_op import ReduceOp
from .tuning import tuned_config
from .workspace import FLAG_BYTES, AllReduceWorkspace, Needs

if TYPE_CHECKING:
    from iris_under_test.host.groups import Members
    from iris_under_test.host.iris import Iris

__all__ = ["all_reduce", "all_reduce_preamble"]

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_INTEGERS = (torch.int32, torch.int64, torch.uint32, torch.uint64)
_ATOMIC = {
    ReduceOp.SUM: _INTEGERS + _FLOATS,
    **dict.fromkeys((ReduceOp.MIN, ReduceOp.MAX), (*_INTEGERS, torch.float32, torch.float64)),
    **dict.fromkeys((ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR), _INTEGERS),
}
"""What GPUs, and Triton for them, have an atomic of."""


def all_reduce(
    output_tensor: torch.Tensor,
    input_tensor: torch.Tensor,
    ctx: Iris,
    op: ReduceOp = ReduceOp.SUM,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    config: Config | None = None,
    workspace: AllReduceWorkspace | None = None,
) -> AllReduceWorkspace:
    """Both (M, N): the members' inputs, reduced, in every member's output, which may be the input.

    float16 and bfloat16 are reduced in float32, all else in its own type. What ``config.all_reduce_variant`` means:

    =============  =======================================  =============  ===========================================
    variant        what a member does                       on the heap    bits
    =============  =======================================  =============  ===========================================
    one_shot       reads everything from everybody          input          always the same, in the members' order
    two_shot       reduces a share, writes it to everybody  both           the same
    two_shot_push  gives each its share to reduce, writes   output         the same
                   what it has reduced to everybody
    ring           passes slices on to the next member      neither        always the same, in the ring's order
    atomic         adds its own to each output, by atomics  output         exact if no order of the sum rounds, else
                                                                           they may differ from call to call and from
                                                                           member to member; float16 and bfloat16 are
                                                                           rounded after each addition
    spinlock       the same under a lock per tile           output         likewise
    =============  =======================================  =============  ===========================================

    "atomic" has the ops and dtypes that there are atomics for: of 4 and 8 bytes all but PRODUCT, of floats SUM, and
    MIN and MAX of float32 and float64 (-0.0 is below 0.0 then, a NaN beyond the infinity of its sign). The others have
    all seven ops, bitwise ones for integers. "ring" has ``all_reduce_num_rings`` rings in which the members follow each
    other at other distances, where there are such, and slices of ``all_reduce_ring_slice_n`` columns; what it adds in
    which order depends on these, the tile, the shape and the group, not on ``comm_sms``.

    Returns the workspace, which is also the handle of the call: ``wait``, ``synchronize``, ``is_completed`` (an op
    that is not ``async_op`` is complete). Without one "spinlock", "ring" and "two_shot_push" use memory that the
    group keeps; the first call that needs more than there is asks the members on the host, so prepare before a
    graph is captured. For groups, ``async_op``, order and errors see ``ccl``.

    Raises:
        ValueError: shapes, dtypes, ``op`` or tile do not fit; the tensors overlap without being the same; a tensor that
            members reach is off the heap; no such variant, or it has no such op for the dtype; more rings than
            ``comm_sms``; the workspace was prepared for less ("Lock array too small", "Flags array too small").
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
        return call.told(ctx), lambda: call.launch(used[0].scratch(ctx, members))

    work = run("all_reduce", ctx, group, async_op, prepare)
    used[0].called(work)
    return used[0]


def all_reduce_preamble(
    output_tensor: torch.Tensor,
    input_tensor: torch.Tensor,
    ctx: Iris,
    config: Config | None = None,
    workspace: AllReduceWorkspace | None = None,
    group: dist.ProcessGroup | None = None,
) -> AllReduceWorkspace:
    """A workspace that has its memory, for calls with tensors and a config like these: ``workspace`` if that will do.

    Collective over the group, on the host; no other rank takes part. Not needed before a call, except while a graph is
    captured. The output is not touched (the reference clears it here, and wants this before every call).

    Raises:
        ValueError, RuntimeError: as ``all_reduce``, and RuntimeError while a graph is captured.
    """
    used: list[AllReduceWorkspace] = []

    def prepare(members: Members) -> tuple[str, Callable[[], None]]:
        chosen = _chosen(config, input_tensor, members)
        variant, needs, told = chosen.all_reduce_variant, Needs(), repr(chosen)
        if variant not in ("one_shot", "two_shot"):
            call = _Call.of(output_tensor, input_tensor, None, members, chosen)
            needs, told = call.needs, f"{told} {call.needs}"
        ready = _workspace(variant, members, needs, workspace)
        if ready.words < needs.words or ready.num_bytes < needs.num_bytes:
            ready = AllReduceWorkspace(variant, members, needs)
        used.append(ready)
        return told, lambda: (ready.scratch(ctx, members), None)[1]

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
    """``given``, unless it is for another variant or group."""
    return (
        given if given is not None and given.serves(variant, members) else AllReduceWorkspace(variant, members, needs)
    )


@dataclass(frozen=True)
class _Call:
    """A checked call of the atomic, spinlock or ring variant. ``op``: None where nothing will be reduced yet;
    ``layout``: rows, columns, strides of the input, strides of the output; ``slice_n``: columns of what the ring moves
    at once; ``programs``: that are launched, the same on every member."""

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
        """Checks the arguments, waits for nobody."""
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
                f"all_reduce: there is no atomic {op.name} of {source.dtype}; "
                f"the variants one_shot, two_shot, two_shot_push, ring and spinlock have it"
            )
        rows, columns = source.shape
        block_m, block_n = check_tile(config)
        slice_n = _slice_columns(config, block_n) if variant == "ring" else block_n
        strides = (*source.stride(), *output.stride())
        if source.is_contiguous() and output.is_contiguous():
            rows, columns, block_m, block_n, slice_n = 1, rows * columns, 1, block_m * block_n, block_m * slice_n
            strides = (columns, 1, columns, 1)
        tiles = -(-rows // block_m) * -(-columns // block_n)
        most, slot_bytes, needs = min(config.comm_sms, MOST_PROGRAMS.value), 0, Needs()
        if variant == "ring":
            rings = config.all_reduce_num_rings
            if not 0 < rings <= most:
                raise ValueError(f"all_reduce_num_rings must be between 1 and comm_sms {most}, got {rings}")
            turns = -(-tiles * (block_n // slice_n) // members.size)
            # A multiple of the rings, so that it is not the number of programs that says which slice is whose.
            most = max(min(most, turns) // rings, 1) * rings
            slot_bytes = -(-block_m * slice_n * max(source.element_size(), _widened_size(source.dtype)) // 16) * 16
            needs = Needs(most, FLAG_BYTES + most * members.size * slot_bytes)
        elif variant == "two_shot_push":
            most = min(most, -(-tiles // members.size))
            needs = Needs(most, most * 2 * members.size * block_m * block_n * source.element_size())
        else:
            most = min(most, tiles)
            if variant == "spinlock":
                needs = Needs(tiles, tiles * 4)
        return _Call(
            output, source, op, members, config, (rows, columns, *strides), block_m, block_n, slice_n, most, slot_bytes,
            needs,
        )  # fmt: skip

    def told(self, ctx: Iris) -> str:
        """What every member must pass alike. ValueError if the tensors are not where kernels and members reach them."""
        check_device("all_reduce", ctx, self.output, self.source)
        place = ""
        if self.config.all_reduce_variant != "ring":
            place = f", output at {symmetric_offset(self.output, 'all_reduce output', ctx)}"
        strides = f"strides {self.output.stride()} and {self.source.stride()}"
        return f"{tuple(self.source.shape)} {self.source.dtype}, {self.op!r}, {strides}{place}, {self.config!r}"

    def launch(self, scratch: Any) -> None:
        """Enqueues the kernel on the current stream."""
        if not self.source.numel():
            return
        # Not at import: the one needs Gluon, and only its callers should.
        if self.config.use_gluon:
            from .gluon.all_reduce import accumulate_kernel, push_kernel, ring_kernel
        else:
            from .triton.all_reduce import accumulate_kernel, push_kernel, ring_kernel  # type: ignore[assignment]
        config, members = self.config, self.members
        bases = scratch.bases if scratch is not None else members.pads  # the atomic variant looks at none
        assert self.op is not None  # sanity check: all_reduce has one
        tensors = (bases, self.source, self.output, *self.layout, members.rank)
        order = (config.swizzle_size, config.num_xcds, config.chunk_size)
        if config.all_reduce_variant == "ring":
            kernel, moved = ring_kernel, self.block_m * self.slice_n
            arguments: tuple[Any, ...] = (
                members.pads, *tensors, FLAG_BYTES, self.slot_bytes,
                int(self.op), members.size, config.all_reduce_num_rings,
                self.block_m, self.block_n, self.slice_n, config.swizzle_size,
            )  # fmt: skip
        elif config.all_reduce_variant == "two_shot_push":
            kernel, moved = push_kernel, self.block_m * self.block_n
            arguments = (
                members.context, members.pads, *tensors, int(self.op), members.size,
                math.gcd(self.output.data_ptr(), 16), self.block_m, self.block_n, config.swizzle_size,
            )  # fmt: skip
        else:
            kernel, moved = accumulate_kernel, self.block_m * self.block_n
            arguments = (
                members.context, members.pads, *tensors,
                int(self.op), config.all_reduce_variant == "spinlock", members.size,
                math.gcd(self.output.data_ptr(), 16), self.block_m, self.block_n, *order,
            )  # fmt: skip
        arguments += lane_layout(config, moved, self.source.element_size())
        iris_launch(
            kernel, (self.programs,), *arguments,
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
        raise ValueError("all_reduce output and input overlap, and are not the same")


def _slice_columns(config: Config, block_n: int) -> int:
    """Columns of a slice: the config's, which fields assigned later may have made wrong; it is not changed."""
    columns = config.all_reduce_ring_slice_n
    if columns is None or columns <= 0 or block_n % columns or columns & (columns - 1):
        raise ValueError(f"all_reduce_ring_slice_n must be a power of two that divides {block_n}, got {columns}")
    return columns


def _widened_size(dtype: torch.dtype) -> int:
    """Bytes of an element of what is being reduced."""
    return 4 if dtype.is_floating_point and dtype.itemsize == 2 else dtype.itemsize
