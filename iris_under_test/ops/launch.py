"""What the fused ops have in common on the host: blocks that fit, options of the compiler, workspaces, the call."""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
import triton

from iris_under_test.ccl.launch import run
from iris_under_test.device.signals import MOST_PROGRAMS

from .config import FusedConfig
from .workspace import FusedWorkspace

if TYPE_CHECKING:
    from iris_under_test.host.groups import Members
    from iris_under_test.host.iris import Iris

__all__ = ["Launch", "Plan", "alignment_of", "call", "plan_of", "preamble"]

Launch = Callable[[FusedWorkspace], None]

_NVIDIA_TILES = ((128, 256), (128, 128), (64, 128), (64, 64))
_workspaces: weakref.WeakKeyDictionary[Iris, dict[tuple[Any, ...], FusedWorkspace]] = weakref.WeakKeyDictionary()
"""What calls without a workspace use, by what it is for."""


@dataclass(frozen=True)
class Plan:
    """One op on one shape: what its workspace is for, and how its kernel is launched.

    Attributes:
        operation, shape, dtype, variant: see ``FusedWorkspace``.
        members: of the world.
        config: with blocks that fit the device.
        tiles, programs: of the result, and of the launch.
        buffers: elements of aux_buffer and of locks; 0 for none.
        aux_dtype: of aux_buffer.
        symmetric: whether they are on the heap.
        locks_start: first values of locks; the others are zero.
    """

    operation: str
    shape: tuple[int, int, int]
    dtype: torch.dtype
    members: Members
    config: FusedConfig
    tiles: int
    programs: int
    variant: str = ""
    buffers: tuple[int, int] = (0, 0)
    aux_dtype: torch.dtype = torch.float32
    symmetric: bool = True
    locks_start: tuple[int, ...] = ()

    @property
    def layout(self) -> tuple[int, ...]:
        """Two calls with one layout can share a workspace."""
        config = self.config
        return (config.block_size_m, config.block_size_n, config.group_size_m, self.programs, *self.buffers)

    def told(self, **more: object) -> str:
        """What all ranks must pass alike."""
        m, n, k = self.shape
        given = {"config": self.config, "programs": self.programs, **more}
        return f"({m}, {k}) @ ({k}, {n}) of {self.dtype}, " + ", ".join(f"{name} {one}" for name, one in given.items())

    def blocks(self, inner: int) -> dict[str, Any]:
        """The kernel's constants that follow from the configuration, and the compiler's options."""
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
    ctx: Iris,
    members: Members,
    shape: tuple[int, int, int],
    rows: int,
    dtype: torch.dtype,
    config: FusedConfig | None,
    *,
    tuned: bool = True,
) -> Plan:
    """``rows``: of the result that one rank computes. ``tuned``: without a configuration tiles are of a size that suits
    the device; else they are ``FusedConfig``'s.

    ``block_size_k`` is halved while both inputs' blocks do not fit the memory of a work-group.

    Raises:
        ValueError: the configuration breaks its rules, or blocks are no powers of two of at least 16, or too large.
    """
    if config is None:
        config = _suited(ctx, rows, shape[1]) if tuned else FusedConfig()
    config.validate(members.size)
    for field in ("block_size_m", "block_size_n", "block_size_k"):
        size = getattr(config, field)
        if size < 16 or size & (size - 1):
            raise ValueError(f"{operation}: {field} must be a power of two, at least 16, got {size}")
    config = _fitting(operation, ctx, config, dtype)
    tiles = triton.cdiv(rows, config.block_size_m) * triton.cdiv(shape[1], config.block_size_n)
    most = min(config.num_sms or _device(ctx)["multiprocessor_count"], MOST_PROGRAMS.value)
    return Plan(operation, shape, dtype, members, config, tiles, max(1, min(most, tiles)))


def call(
    operation: str,
    ctx: Iris,
    async_op: bool,
    workspace: FusedWorkspace | None,
    prepare: Callable[[Members], tuple[Plan, str, Launch]],
) -> FusedWorkspace:
    """One call of a fused op: ``prepare`` checks, and gives the plan, what all ranks must pass alike, and the launch.

    The workspace is made, or made to fit, between the two. See ``ccl.launch.run`` for what else happens.
    """
    used: list[FusedWorkspace] = []

    def checked(members: Members) -> tuple[str, Callable[[], None]]:
        plan, told, launch = prepare(members)
        ready = _is_ready(_chosen(ctx, plan, workspace), plan)
        _refuse_in_a_capture(operation, ctx, ready)

        def launched() -> None:
            used.append(_prepared(ctx, plan, workspace))
            if plan.shape[0] and plan.shape[1]:
                launch(used[0])

        return f"{told}, ready {ready}", launched

    work = run(operation, ctx, None, async_op, checked)
    return used[0].finished_by(work)


def preamble(
    operation: str, ctx: Iris, workspace: FusedWorkspace | None, plan: Callable[[Members], Plan]
) -> FusedWorkspace:
    """A workspace that is ready for the calls of ``plan``. Collective: one rank's error is one on all."""
    made: list[FusedWorkspace] = []

    def checked(members: Members) -> tuple[str, Callable[[], None]]:
        planned = plan(members)
        ready = _is_ready(_chosen(ctx, planned, workspace), planned)
        return planned.told(ready=ready), lambda: made.append(_prepared(ctx, planned, workspace))

    run(f"{operation}_preamble", ctx, None, False, checked)
    return made[0]


def alignment_of(tensor: torch.Tensor) -> int:
    """Bytes, at most 16, that the tensor's address is a multiple of."""
    return math.gcd(tensor.data_ptr(), 16)


def _prepared(ctx: Iris, plan: Plan, workspace: FusedWorkspace | None) -> FusedWorkspace:
    """The workspace, ready for the plan. Collective, on the host, unless it is ready already."""
    workspace = _chosen(ctx, plan, workspace)
    if _is_ready(workspace, plan):
        return workspace
    _refuse_in_a_capture(plan.operation, ctx, False)
    if not _fits(workspace, plan):
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
        ctx.barrier()  # no peer may write before it is zero
    workspace.operation, workspace.shape, workspace.dtype = plan.operation, plan.shape, plan.dtype
    workspace.world_size, workspace.variant, workspace.layout = plan.members.size, plan.variant, plan.layout
    workspace.prepared = True
    return workspace


def _chosen(ctx: Iris, plan: Plan, workspace: FusedWorkspace | None) -> FusedWorkspace:
    if workspace is not None:
        return workspace
    key = (plan.operation, plan.shape, plan.dtype, plan.variant, plan.layout)
    return _workspaces.setdefault(ctx, {}).setdefault(key, FusedWorkspace())


def _fits(workspace: FusedWorkspace, plan: Plan) -> bool:
    return workspace.matches(plan.operation, plan.shape, plan.dtype, plan.members.size, plan.variant, plan.layout)


def _is_ready(workspace: FusedWorkspace, plan: Plan) -> bool:
    return workspace.prepared and _fits(workspace, plan)


def _refuse_in_a_capture(operation: str, ctx: Iris, ready: bool) -> None:
    if not ready and ctx.get_device().type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise RuntimeError(f"{operation}: prepare the workspace before a graph is captured, by {operation}_preamble")


def _memory(ctx: Iris, elements: int, dtype: torch.dtype, symmetric: bool) -> torch.Tensor | None:
    if not elements:
        return None
    return (
        ctx.empty(elements, dtype=dtype) if symmetric else torch.empty(elements, dtype=dtype, device=ctx.get_device())
    )


def _suited(ctx: Iris, rows: int, columns: int) -> FusedConfig:
    """Tiles for a device: on NVIDIA GPUs the largest ones of which there is one for each multiprocessor."""
    if not _is_nvidia():
        return FusedConfig()
    for block_m, block_n in _NVIDIA_TILES:
        if triton.cdiv(rows, block_m) * triton.cdiv(columns, block_n) >= _device(ctx)["multiprocessor_count"]:
            break
    return FusedConfig(block_m, block_n, group_size_m=8, cache_modifier_a="", cache_modifier_b="")


def _fitting(operation: str, ctx: Iris, config: FusedConfig, dtype: torch.dtype) -> FusedConfig:
    room = _device(ctx)["max_shared_mem"]
    block_k = config.block_size_k
    while _stage_bytes(config, block_k, dtype) > room and block_k > 16:
        block_k //= 2
    if (needed := _stage_bytes(config, block_k, dtype)) > room:
        tile = (config.block_size_m, config.block_size_n)
        raise ValueError(f"{operation}: tiles of {tile} {dtype} need {needed} bytes of {room} in a work-group")
    return replace(config, block_size_k=block_k)


def _device(ctx: Iris) -> Mapping[str, int]:
    """Triton's properties of this rank's device."""
    from triton.runtime import driver

    return _properties(driver.active.utils, ctx.gpu_id)


@functools.cache
def _properties(utils: Any, gpu_id: int) -> Mapping[str, int]:
    properties: Mapping[str, int] = utils.get_device_properties(gpu_id)
    return properties


def _stage_bytes(config: FusedConfig, block_k: int, dtype: torch.dtype) -> int:
    return (config.block_size_m + config.block_size_n) * block_k * dtype.itemsize


def _compiler_options(config: FusedConfig, dtype: torch.dtype) -> dict[str, Any]:
    """Wavefronts for a tile, and how many loads of blocks run ahead: on AMD GPUs one, in registers.

    Two wavefronts at least: where there is but one Triton 3.6 leaves out the barrier behind a scalar atomic, without
    which LLVM may let the other lanes go round a loop on their own.
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
