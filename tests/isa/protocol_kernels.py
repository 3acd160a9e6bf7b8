"""A kernel that sends a block and waits for another one, compiled without a GPU for the tests of contracts."""

from __future__ import annotations

import functools
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from harness.isa.compile_only import target
from iris_under_test.device.fences import await_count, poke, publish
from iris_under_test.device.flagged import await_words, send_words
from iris_under_test.device.locks import acquire, release

BLOCK = 4096


@triton.jit
def exchange(bases, own, peer, turn, BLOCK: tl.constexpr):
    """Store to the peer, set its flag, wait for its own flag, and copy what came."""
    theirs = tl.load(bases + peer).to(tl.pointer_type(tl.int32))
    mine = tl.load(bases + own).to(tl.pointer_type(tl.int32))
    theirs, mine = tl.multiple_of(theirs, 16), tl.multiple_of(mine, 16)
    offsets = tl.arange(0, BLOCK)
    tl.store(theirs + 16 + offsets, offsets + turn)
    publish()
    poke(theirs, turn)
    await_count(mine, turn)
    tl.store(mine + 16 + BLOCK + offsets, tl.load(mine + 16 + offsets))


@triton.jit
def announced(bases, own, peer, turn, BLOCK: tl.constexpr):
    """Set the peer's flag, and store nothing."""
    theirs = tl.load(bases + peer).to(tl.pointer_type(tl.int32))
    publish()
    poke(theirs, turn)


@triton.jit
def locked(bases, own, peer, turn, BLOCK: tl.constexpr):
    """Add to the peer's block under its lock."""
    theirs = tl.multiple_of(tl.load(bases + peer).to(tl.pointer_type(tl.int32)), 16)
    offsets = tl.arange(0, BLOCK)
    acquire(theirs)
    tl.store(theirs + 16 + offsets, tl.load(theirs + 16 + offsets) + turn)
    release(theirs)


@triton.jit
def largest(bases, own, peer, turn, BLOCK: tl.constexpr):
    """Reduce into the peer's block by atomics, concurrently with other devices."""
    theirs = tl.load(bases + peer).to(tl.pointer_type(tl.int32))
    offsets = tl.arange(0, BLOCK)
    tl.atomic_max(theirs + offsets, offsets + turn, sem="relaxed", scope="sys")


@triton.jit
def words(bases, own, peer, turn, BLOCK: tl.constexpr):
    """Exchange words of data and flag with the peer, and then add something that was there before."""
    offsets = tl.arange(0, BLOCK)
    send_words(tl.load(bases + peer) + offsets * 8, offsets, turn)
    (data,) = await_words((tl.load(bases + own) + offsets * 8,), turn)
    mine = tl.load(bases + own).to(tl.pointer_type(tl.int32)) + BLOCK * 2 + offsets
    tl.store(bases + BLOCK + offsets, (data + tl.load(mine)).to(tl.int64))


@triton.jit
def added(cells, values, BLOCK: tl.constexpr):
    """Add floating-point numbers at system scope, which AMD GPUs do in a loop around a compare-and-swap."""
    offsets = tl.arange(0, BLOCK)
    tl.atomic_add(cells + offsets, tl.load(values + offsets), sem="relaxed", scope="sys")


@functools.cache
def listing(kernel: Any, arch: str) -> str:
    """Return the amdgcn text for gfx942 or gfx950, or the PTX for sm_90."""
    backend, number, lanes = ("cuda", 90, 32) if arch == "sm_90" else ("hip", arch, 64)
    types = {"bases": "*i64", "cells": "*fp32", "values": "*fp32", "BLOCK": "constexpr"}
    signature = {name: types.get(name, "i32") for name in kernel.arg_names}
    divisible = {
        (place,): [["tt.divisibility", 16]] for place, name in enumerate(signature) if types.get(name, "")[:1] == "*"
    }
    source = ASTSource(kernel, signature, {(len(signature) - 1,): BLOCK}, divisible)
    with target(backend, number):
        compiled = triton.compile(source, target=GPUTarget(backend, number, lanes), options={"num_warps": 4})
    return str(compiled.asm["ptx" if backend == "cuda" else "amdgcn"])
