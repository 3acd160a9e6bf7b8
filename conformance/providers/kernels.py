"""Kernels that use a table of peer bases and nothing else of the library: the address of a byte of another rank's heap
is that rank's entry plus the byte's offset."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from fixtures.worker import Env

BLOCK = 1024
"""Most elements that a launch moves."""


@triton.jit(do_not_specialize=["peer", "start", "n"])
def store_block(bases, values, peer, start, n, BLOCK: tl.constexpr):
    target = tl.cast(tl.load(bases + peer) + start, tl.pointer_type(values.dtype.element_ty), bitcast=True)
    offsets = tl.arange(0, BLOCK)
    tl.store(target + offsets, tl.load(values + offsets, mask=offsets < n), mask=offsets < n)


@triton.jit(do_not_specialize=["peer", "start", "n"])
def load_block(bases, values, peer, start, n, BLOCK: tl.constexpr):
    source = tl.cast(tl.load(bases + peer) + start, tl.pointer_type(values.dtype.element_ty), bitcast=True)
    offsets = tl.arange(0, BLOCK)
    tl.store(values + offsets, tl.load(source + offsets, mask=offsets < n), mask=offsets < n)


def store(env: Env, bases: torch.Tensor, peer: int, start: int, values: torch.Tensor) -> None:
    """Store ``values`` from byte ``start`` of the heap of ``peer``, by a kernel on this rank."""
    there = _elements(values.to(env.device.torch_device))
    store_block[(1,)](bases, there, peer, start, len(there), BLOCK=BLOCK, num_warps=env.warps(1))


def load(env: Env, bases: torch.Tensor, peer: int, start: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    """Return ``count`` elements from byte ``start`` of the heap of ``peer``, by a kernel on this rank."""
    there = torch.zeros(count, dtype=dtype, device=env.device.torch_device)
    load_block[(1,)](bases, _elements(there), peer, start, count, BLOCK=BLOCK, num_warps=env.warps(1))
    env.device.synchronize()
    return there.cpu()


_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def _elements(values: torch.Tensor) -> Any:
    """Return the values as integers of their size: a provider knows no element types, and each would be a kernel."""
    return values.view(_INTEGERS[values.element_size()])
