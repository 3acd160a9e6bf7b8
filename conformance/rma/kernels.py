"""Kernels that call an op of ``conformance.rma.operations`` on a block, one for each form, and functions to launch
them.

The kernel parameter ``call`` is the op's jitted function of that form:

    gluon        call(ctx, source, target, from_rank, to_rank, mask, OTHER, LOAD_MODIFIER, STORE_MODIFIER, VOLATILE)
    context      the same, and HINT
    function     call(function, heap_bases, rank, source, target, ..., HINT)
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.rma.cases import TransferCase
from conformance.rma.operations import Transfer
from fixtures.worker import Env

OTHER = -3
"""The value passed as ``other``; neighbouring lanes of a payload never hold it."""

PEERS = ["rank", "from_rank", "to_rank"]
"""Kernel parameters that are not specialized, so that all ranks run the same binary."""


def launch(
    env: Env, op: Transfer, case: TransferCase, source: torch.Tensor, slot: torch.Tensor, keep: torch.Tensor, peer: int
) -> None:
    """Move a block to or from ``peer``. The pointers are into this rank's heap, as every Iris method expects."""
    launch_between(env, op, case, source, slot, keep, *op.ranks(case, env.rank, peer))


def launch_between(
    env: Env, op: Transfer, case: TransferCase, source: torch.Tensor, slot: torch.Tensor, keep: torch.Tensor,
    from_rank: int, to_rank: int, hint: Any = None, **options: Any,
) -> None:  # fmt: skip
    """Move a block between any two ranks. ``hint`` replaces the hint of the case; ``options`` are passed to Triton's
    launch."""
    kernel = KERNELS[case.form]
    if case.hinted or not case.aligned:
        kernel = _anywhere(kernel)
    warps = env.warps(case.warps)
    data = (source, slot, keep, case.n, from_rank, to_rank)
    arguments = (
        _mask_form(case), OTHER if case.other else None, case.load_modifier, case.store_modifier, case.volatile,
    )  # fmt: skip
    hint = 16 if case.hinted and hint is None else hint
    if case.form == "gluon":
        first, shape = (env.device_context, env.context), (case.vector, env.device.lanes, warps)
    elif case.form == "context":
        first = (env.under_test.triton_context, env.context, env.rank, env.world_size)
        shape = (hint, case.block)
    else:
        first = (env.under_test.function(op.name), env.iris.get_heap_bases(), env.rank)
        shape = (hint, case.block)
    kernel[(case.grid,)](*first, op.calls[case.form], *data, *arguments, *shape, num_warps=warps, **options)


@gluon.jit(do_not_specialize=["from_rank", "to_rank"])
def transfer_by_gluon(
    IrisDeviceCtx: gl.constexpr, context_tensor, call: gl.constexpr, source, target, keep, n, from_rank, to_rank,
    MASK: gl.constexpr, OTHER: gl.constexpr, LOAD_MODIFIER: gl.constexpr, STORE_MODIFIER: gl.constexpr,
    VOLATILE: gl.constexpr, SPT: gl.constexpr, LANES: gl.constexpr, WARPS: gl.constexpr,
):  # fmt: skip
    ctx = IrisDeviceCtx.initialize(context_tensor)
    BLOCK: gl.constexpr = SPT * LANES * WARPS
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=gl.BlockedLayout([SPT], [LANES], [WARPS], [0]))
    mask = None
    if MASK != "none":
        mask = offsets < n
    if MASK == "pattern":
        mask = mask & (gl.load(keep + offsets, mask=mask, other=0) != 0)
    call(
        ctx, source + offsets, target + offsets, from_rank, to_rank, mask, OTHER, LOAD_MODIFIER, STORE_MODIFIER,
        VOLATILE,
    )  # fmt: skip


@triton.jit(do_not_specialize=PEERS)
def transfer_by_context(
    DeviceContext: tl.constexpr, context_tensor, RANK: tl.constexpr, RANKS: tl.constexpr, call: tl.constexpr,
    source, target, keep, n, from_rank, to_rank, MASK: tl.constexpr, OTHER: tl.constexpr, LOAD_MODIFIER: tl.constexpr,
    STORE_MODIFIER: tl.constexpr, VOLATILE: tl.constexpr, HINT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    ctx = DeviceContext.initialize(context_tensor, RANK, RANKS)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = None
    if MASK != "none":
        mask = _mask_of(keep, n, offsets, MASK)
    call(
        ctx, source + offsets, target + offsets, from_rank, to_rank, mask, OTHER, LOAD_MODIFIER, STORE_MODIFIER,
        VOLATILE, HINT,
    )  # fmt: skip


@triton.jit(do_not_specialize=PEERS)
def transfer_by_function(
    function: tl.constexpr, heap_bases, rank, call: tl.constexpr, source, target, keep, n, from_rank, to_rank,
    MASK: tl.constexpr, OTHER: tl.constexpr, LOAD_MODIFIER: tl.constexpr, STORE_MODIFIER: tl.constexpr,
    VOLATILE: tl.constexpr, HINT: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = None
    if MASK != "none":
        mask = _mask_of(keep, n, offsets, MASK)
    call(
        function, heap_bases, rank, source + offsets, target + offsets, from_rank, to_rank, mask, OTHER, LOAD_MODIFIER,
        STORE_MODIFIER, VOLATILE, HINT,
    )  # fmt: skip


@triton.jit
def _mask_of(keep, n, offsets, MASK: tl.constexpr):
    """Return the mask of the ``_mask_form`` "range" or "pattern"."""
    mask = offsets < n
    if MASK == "pattern":
        mask = mask & (tl.load(keep + offsets, mask=mask, other=0) != 0)
    return mask


KERNELS = {"gluon": transfer_by_gluon, "context": transfer_by_context, "function": transfer_by_function}


@functools.cache
def _anywhere(kernel: Any) -> Any:
    """Return the kernel compiled for pointers and counts of any alignment."""
    jit, unknown = (gluon.jit, PEERS[1:]) if kernel is transfer_by_gluon else (triton.jit, PEERS)
    return jit(kernel.fn, do_not_specialize=[*unknown, "source", "target", "keep", "n"])


def _mask_form(case: TransferCase) -> str:
    """Return the kind of mask that the kernel passes: "none", "range" (offsets < n) or "pattern"."""
    return case.mask if case.mask in ("none", "range") else "pattern"
