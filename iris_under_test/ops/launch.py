"""Host side that the fused ops share: blocks that fit, compiler options, workspaces, the call."""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
import triton

from iris_under_test.ccl.call import run, symmetric_offset
from iris_under_test.device.signals import MAX_PROGRAMS
from iris_under_test.host.streams import is_capturing
from iris_under_test.host.tracing.kernel_artifacts import iris_launch

from .config import FusedConfig
from .operands import Operands
from .workspace import FusedWorkspace

if TYPE_CHECKING:
    from iris_under_test.host.groups import Members
    from iris_under_test.host.instance import Instance

__all__ = ["FusedOp", "Plan", "call", "enqueue", "plan_of", "preamble"]

_NVIDIA_TILES = ((128, 256), (128, 128), (64, 128), (64, 64))
_workspaces: weakref.WeakKeyDictionary[Instance, dict[tuple[Any, ...], FusedWorkspace]] = weakref.WeakKeyDictionary()
"""Workspaces of calls that pass none, by operation, shape, dtype, variant and layout."""


@dataclass(frozen=True)
class FusedOp:
    """One op: ``plan`` checks the operands of a call and returns its needs; ``launch`` enqueues its kernel."""

    name: str
    plan: Callable[[Instance, Members, Operands, FusedConfig | None], Plan]
    launch: Callable[[Instance, Plan, Operands, FusedWorkspace], None]


@dataclass(frozen=True)
class Plan:
    """One op on one shape: needs of its workspace, and launch of its kernel.

    Attributes:
        operation, shape, dtype, variant: see ``FusedWorkspace``.
        members: of the world.
        config: with blocks that fit the device.
        tiles, programs: tiles that one rank computes, and programs of the launch.
        reached: name of the operand that other members access; "" for none.
        buffers: elements of aux_buffer and of locks; 0 for none.
        aux_dtype: of aux_buffer.
        symmetric: whether the buffers are on the heap.
        locks_start: first values of locks; the others are zero.
        alike: further arguments that all ranks must pass alike.
    """

    operation: str
    shape: tuple[int, int, int]
    dtype: torch.dtype
    members: Members
    config: FusedConfig
    tiles: int
    programs: int
    reached: str = ""
    variant: str = ""
    buffers: tuple[int, int] = (0, 0)
    aux_dtype: torch.dtype = torch.float32
    symmetric: bool = True
    locks_start: tuple[int, ...] = ()
    alike: Mapping[str, object] = field(default_factory=dict)

    @property
    def layout(self) -> tuple[int, ...]:
        """Return the layout: two calls with equal layouts can share a workspace."""
        config = self.config
        return (config.block_size_m, config.block_size_n, config.group_size_m, self.programs, *self.buffers)

    def arguments(self, ctx: Instance, given: Operands) -> str:
        """Return the arguments that all ranks must pass alike, as text. ValueError if memory that members access is not
        on the heap.
        """
        m, n, k = self.shape
        alike = {"config": self.config, "programs": self.programs, **self.alike}
        if self.reached:
            tensor = getattr(given, self.reached)
            alike["at"] = symmetric_offset(tensor, f"{self.operation}: {self.reached}", ctx)
            alike["strides"] = tensor.stride()
        return f"({m}, {k}) @ ({k}, {n}) of {self.dtype}, " + ", ".join(f"{name} {one}" for name, one in alike.items())

    def blocks(self, inner: int) -> dict[str, Any]:
        """Return the kernel's constants that follow from the configuration, and the compiler's options."""
        config = self.config
        return {
            "SIZE": self.members.size,
            "BLOCK_M": config.block_size_m,
            "BLOCK_N": config.block_size_n,
            "BLOCK_K": config.block_size_k,
            "EVEN_K": inner % config.block_size_k == 0,
            "GROUP_M": config.group_size_m,
            "CACHE_A": config.cache_modifier_a or "",
            "CACHE_B": config.cache_modifier_b or "",
            "PRECISION": _precision(config),
            **_compiler_options(config, self.dtype),
        }


def plan_of(
    operation: str,
    ctx: Instance,
    members: Members,
    given: Operands,
    config: FusedConfig | None,
    *,
    shards: int = 1,
    stacked: int = 1,
    reached: str = "",
    tuned: bool = True,
) -> Plan:
    """Return a plan without buffers.

    ``shards``, ``stacked``: see ``Operands.checked``. ``tuned``: without a configuration, choose tiles that suit the
    device; else they are ``FusedConfig``'s. ``block_size_k`` is halved until both inputs' blocks fit the memory of a
    work-group.

    Raises:
        ValueError: the operands do not fit each other, a field of the configuration is invalid, or blocks are not
            powers of two of at least 16, or are too large.
    """
    shape, rows = given.checked(operation, ctx.get_device(), shards=shards, stacked=stacked), given.A.shape[0]
    if config is None:
        config = _suited(ctx, rows, shape[1]) if tuned else FusedConfig()
    config.validate(members.size)
    for name in ("block_size_m", "block_size_n", "block_size_k"):
        size = getattr(config, name)
        if size < 16 or size & (size - 1):
            raise ValueError(f"{operation}: {name} must be a power of two, at least 16, got {size}")
    config = _fitting(operation, ctx, config, given.A.dtype)
    tiles = triton.cdiv(rows, config.block_size_m) * triton.cdiv(shape[1], config.block_size_n)
    programs = min(config.num_sms or _device(ctx)["multiprocessor_count"], MAX_PROGRAMS.value)
    return Plan(operation, shape, given.A.dtype, members, config, tiles, max(1, min(programs, tiles)), reached)


def call(
    op: FusedOp,
    ctx: Instance,
    given: Operands,
    async_op: bool,
    config: FusedConfig | None,
    workspace: FusedWorkspace | None,
) -> FusedWorkspace:
    """Run one call of an op. ``ccl.call.run`` describes the steps other than plan, workspace and launch."""
    used: list[FusedWorkspace] = []

    def checked(members: Members) -> tuple[str, Callable[[], None]]:
        plan = op.plan(ctx, members, given, config)
        arguments = plan.arguments(ctx, given)
        ready = _is_ready(ctx, _chosen(ctx, plan, workspace), plan)
        _refuse_in_a_capture(op.name, ctx, ready)

        def launched() -> None:
            used.append(_prepared(ctx, plan, workspace))
            if plan.shape[0] and plan.shape[1]:
                op.launch(ctx, plan, given, used[0])

        return f"{arguments}, ready {ready}", launched

    work = run(op.name, ctx, None, async_op, checked)
    return used[0].finished_by(work)


def preamble(
    op: FusedOp, ctx: Instance, given: Operands, config: FusedConfig | None, workspace: FusedWorkspace | None
) -> FusedWorkspace:
    """Return a prepared workspace for such calls. Collective: an error of one rank is raised on all."""
    made: list[FusedWorkspace] = []

    def checked(members: Members) -> tuple[str, Callable[[], None]]:
        plan = op.plan(ctx, members, given, config)
        ready = _is_ready(ctx, _chosen(ctx, plan, workspace), plan)
        return f"{plan.arguments(ctx, given)}, ready {ready}", lambda: made.append(_prepared(ctx, plan, workspace))

    run(f"{op.name}_preamble", ctx, None, False, checked)
    return made[0]


def enqueue(kernel: Any, ctx: Instance, plan: Plan, given: Operands, *arguments: object, **constants: object) -> None:
    """Launch ``kernel``: ``arguments`` follow those of the group, ``constants`` are added to those of every kernel."""
    members = plan.members
    iris_launch(
        kernel, (plan.programs,), members.context, members.pads, members.rank, *arguments,
        BIASED=given.bias is not None, ALIGNMENT=math.gcd(getattr(given, plan.reached or "output").data_ptr(), 16),
        **plan.blocks(given.A.shape[1]), **constants,
        algorithm=plan.operation, rank=ctx.get_rank(), dtype=plan.dtype,
    )  # fmt: skip


def _prepared(ctx: Instance, plan: Plan, workspace: FusedWorkspace | None) -> FusedWorkspace:
    """Return the workspace, prepared for the plan. Collective on the host, unless it is prepared already."""
    workspace = _chosen(ctx, plan, workspace)
    if _is_ready(ctx, workspace, plan):
        return workspace
    _refuse_in_a_capture(plan.operation, ctx, False)
    if not _fits(ctx, workspace, plan):
        workspace.clear()
        workspace.symmetric, workspace._heap_of = plan.symmetric, weakref.ref(ctx)
        aux, locks = plan.buffers
        workspace.aux_buffer = _memory(ctx, aux, plan.aux_dtype, plan.symmetric)
        workspace.locks = _memory(ctx, locks, torch.int32, plan.symmetric)
    for buffer in (workspace.aux_buffer, workspace.locks):
        if buffer is not None:
            buffer.zero_()
    if workspace.locks is not None and plan.locks_start:
        workspace.locks[: len(plan.locks_start)] = torch.tensor(plan.locks_start, dtype=torch.int32)
    if plan.symmetric and any(plan.buffers):
        ctx.barrier()  # peers may write only after it is zero
    workspace.operation, workspace.shape, workspace.dtype = plan.operation, plan.shape, plan.dtype
    workspace.world_size, workspace.variant, workspace.layout = plan.members.size, plan.variant, plan.layout
    workspace.prepared = True
    return workspace


def _chosen(ctx: Instance, plan: Plan, workspace: FusedWorkspace | None) -> FusedWorkspace:
    if workspace is not None:
        return workspace
    key = (plan.operation, plan.shape, plan.dtype, plan.variant, plan.layout)
    return _workspaces.setdefault(ctx, {}).setdefault(key, FusedWorkspace())


def _fits(ctx: Instance, workspace: FusedWorkspace, plan: Plan) -> bool:
    made_here = workspace._heap_of is not None and workspace._heap_of() is ctx
    wanted = (plan.operation, plan.shape, plan.dtype, plan.members.size, plan.variant, plan.layout)
    return made_here and workspace.matches(*wanted)


def _is_ready(ctx: Instance, workspace: FusedWorkspace, plan: Plan) -> bool:
    return workspace.prepared and _fits(ctx, workspace, plan)


def _refuse_in_a_capture(operation: str, ctx: Instance, ready: bool) -> None:
    if not ready and is_capturing(ctx.get_device()):
        raise RuntimeError(
            f"{operation}: the workspace is not prepared; call {operation}_preamble before the graph capture"
        )


def _memory(ctx: Instance, elements: int, dtype: torch.dtype, symmetric: bool) -> torch.Tensor | None:
    if not elements:
        return None
    return (
        ctx.empty(elements, dtype=dtype) if symmetric else torch.empty(elements, dtype=dtype, device=ctx.get_device())
    )


def _suited(ctx: Instance, rows: int, columns: int) -> FusedConfig:
    """Return tiles for the device: on NVIDIA GPUs the largest ones that give at least one tile to each
    multiprocessor.
    """
    if not _is_nvidia():
        return FusedConfig()
    for block_m, block_n in _NVIDIA_TILES:
        if triton.cdiv(rows, block_m) * triton.cdiv(columns, block_n) >= _device(ctx)["multiprocessor_count"]:
            break
    return FusedConfig(block_m, block_n, group_size_m=8, cache_modifier_a="", cache_modifier_b="")


def _fitting(operation: str, ctx: Instance, config: FusedConfig, dtype: torch.dtype) -> FusedConfig:
    room = _device(ctx)["max_shared_mem"]
    block_k = config.block_size_k
    while _stage_bytes(config, block_k, dtype) > room and block_k > 16:
        block_k //= 2
    if (needed := _stage_bytes(config, block_k, dtype)) > room:
        tile = (config.block_size_m, config.block_size_n)
        raise ValueError(
            f"{operation}: tiles of {tile} {dtype} need {needed} bytes of shared memory, a work-group has {room}; use "
            "smaller blocks"
        )
    return replace(config, block_size_k=block_k)


def _device(ctx: Instance) -> Mapping[str, int]:
    """Return Triton's properties of this rank's device."""
    from triton.runtime import driver

    return _properties(driver.active.utils, ctx.gpu_id)


@functools.cache
def _properties(utils: Any, gpu_id: int) -> Mapping[str, int]:
    properties: Mapping[str, int] = utils.get_device_properties(gpu_id)
    return properties


def _stage_bytes(config: FusedConfig, block_k: int, dtype: torch.dtype) -> int:
    return (config.block_size_m + config.block_size_n) * block_k * dtype.itemsize


def _compiler_options(config: FusedConfig, dtype: torch.dtype) -> dict[str, Any]:
    """Return the number of wavefronts for a tile, and how many loads of blocks run ahead: on AMD GPUs one, in
    registers.

    At least two wavefronts: for a single one Triton 3.6 leaves out the barrier after a scalar atomic, without which
    LLVM may let the other lanes continue a loop on their own.
    """
    elements = config.block_size_m * config.block_size_n
    if not _is_nvidia():
        return {"num_warps": 8 if elements >= 1 << 15 else 4 if elements >= 1 << 11 else 2, "num_stages": 2}
    stages = (160 << 10) // _stage_bytes(config, config.block_size_k, dtype)
    return {"num_warps": 8 if elements >= 1 << 14 else 4, "num_stages": max(1, min(4, stages))}


def _precision(config: FusedConfig) -> str:
    from triton.runtime import driver

    target = driver.active.get_current_target()
    return "tf32" if config.allow_tf32 and (target.backend == "cuda" or target.arch == "gfx942") else "ieee"


def _is_nvidia() -> bool:
    from triton.runtime import driver

    return bool(driver.active.get_current_target().backend == "cuda")
