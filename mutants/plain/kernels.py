# mypy: ignore-errors
"""Kernels of the plain suite: one block, a mask that is true everywhere, the ops of one rank on its neighbour."""

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit(do_not_specialize=["rank", "peer"])
def transfer_by_gluon(
    IrisDeviceCtx: gl.constexpr, context, source, target, rank, peer, OP: gl.constexpr, N: gl.constexpr,
    LANES: gl.constexpr,
):  # fmt: skip
    ctx = IrisDeviceCtx.initialize(context)
    offsets = gl.arange(0, N, layout=gl.BlockedLayout([1], [LANES], [N // LANES], [0]))
    mask = offsets < N
    if OP == "put":
        ctx.put(source + offsets, target + offsets, peer, mask=mask)
    elif OP == "get":
        ctx.get(source + offsets, target + offsets, peer, mask=mask)
    elif OP == "copy":
        ctx.copy(source + offsets, target + offsets, peer, rank, mask=mask)
    elif OP == "load":
        gl.store(target + offsets, ctx.load(source + offsets, peer, mask=mask), mask=mask)
    else:
        ctx.store(target + offsets, gl.load(source + offsets, mask=mask), peer, mask=mask)


@triton.jit(do_not_specialize=["rank", "peer"])
def transfer_by_function(op: tl.constexpr, bases, source, target, rank, peer, OP: tl.constexpr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    mask = offsets < N
    if OP == "put" or OP == "get":
        op(source + offsets, target + offsets, rank, peer, bases, mask=mask)
    elif OP == "copy":
        op(source + offsets, target + offsets, peer, rank, rank, bases, mask=mask)
    elif OP == "load":
        tl.store(target + offsets, op(source + offsets, rank, peer, bases, mask=mask), mask=mask)
    else:
        op(target + offsets, tl.load(source + offsets, mask=mask), rank, peer, bases, mask=mask)


@gluon.jit(do_not_specialize=["peer"])
def atomic_by_gluon(
    IrisDeviceCtx: gl.constexpr, context, words, peer, OP: gl.constexpr, N: gl.constexpr, LANES: gl.constexpr
):
    ctx = IrisDeviceCtx.initialize(context)
    offsets = gl.arange(0, N, layout=gl.BlockedLayout([1], [LANES], [N // LANES], [0]))
    mask = offsets < N
    ones = gl.zeros_like(offsets) + 1
    if OP == "add":
        ctx.atomic_add(words + offsets, ones, peer, mask=mask)
    elif OP == "sub":
        ctx.atomic_sub(words + offsets, ones, peer, mask=mask)
    elif OP == "xchg":
        ctx.atomic_xchg(words + offsets, ones, peer, mask=mask)
    elif OP == "xor":
        ctx.atomic_xor(words + offsets, ones, peer, mask=mask)
    elif OP == "and":
        ctx.atomic_and(words + offsets, ones, peer, mask=mask)
    elif OP == "or":
        ctx.atomic_or(words + offsets, ones, peer, mask=mask)
    elif OP == "min":
        ctx.atomic_min(words + offsets, ones, peer, mask=mask)
    elif OP == "max":
        ctx.atomic_max(words + offsets, ones, peer, mask=mask)
    else:
        ctx.atomic_cas(words + offsets, gl.zeros_like(offsets), ones, peer)


@triton.jit(do_not_specialize=["rank", "peer"])
def atomic_by_function(op: tl.constexpr, bases, words, rank, peer, OP: tl.constexpr, N: tl.constexpr):
    offsets = tl.arange(0, N)
    if OP == "cas":
        op(words + offsets, tl.zeros_like(offsets), tl.zeros_like(offsets) + 1, rank, peer, bases)
    else:
        op(words + offsets, 1, rank, peer, bases, mask=offsets < N)
