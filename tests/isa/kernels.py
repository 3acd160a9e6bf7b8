"""Kernels whose listings the ISA tests read; compiled for gfx942 without a GPU.

The two ``put`` kernels differ in what the compiler can know about alignment, hence in the width of their remote stores.
"""

from __future__ import annotations

import functools
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def rebase(pointer, bases, here, there):
    delta = gl.load(bases + there) - gl.load(bases + here)
    return (pointer.to(gl.uint64, bitcast=True) + delta.to(gl.uint64)).to(pointer.dtype, bitcast=True)


@gluon.jit
def remote_store(pointer, value, mask):
    gl.store(pointer, value, mask=mask)  # remote


@gluon.jit
def put(bases, source, target, count, there, BLOCK: gl.constexpr, PER: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([PER], [64], [4], [0])
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    mask = offsets < count
    value = gl.load(source + offsets, mask=mask)
    remote_store(rebase(target + offsets, bases, 0, there), value, mask)


@gluon.jit
def add(bases, target, out, count, there, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [64], [4], [0])
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    mask = offsets < count
    old = gl.atomic_add(
        rebase(target + offsets, bases, 0, there), offsets, mask=mask, sem="acq_rel", scope="sys"
    )  # remote
    gl.store(out + offsets, old, mask=mask)


@functools.cache
def listing(name: str, dtype: str = "i32", aligned: bool = True, shift: int = 0) -> str:
    """The amdgcn text of one kernel; ``aligned`` says whether ``count`` is known to be a multiple of 16."""
    from triton.experimental.gluon._runtime import GluonASTSource

    kernel = {"put": put, "add": add}[name]
    signature: dict[str, str] = {"bases": "*i64", "source": f"*{dtype}", "target": f"*{dtype}", "count": "i32"}
    constants: dict[str, Any] = {"BLOCK": 2048, "PER": 8}
    if name == "add":
        signature["out"] = f"*{dtype}"
    types = {"there": "i32", "BLOCK": "constexpr", "PER": "constexpr", **signature}
    names = kernel.arg_names
    divisible = [["tt.divisibility", 16]]
    attributes = {
        (position,): divisible
        for position, argument in enumerate(names)
        if types[argument].startswith("*") or (argument == "count" and aligned)
    }
    source = GluonASTSource(
        kernel,
        {argument: types[argument] for argument in names},
        {(names.index(k),): v for k, v in constants.items() if k in names},
        attributes,
    )
    compiled = triton.compile(source, target=GPUTarget("hip", "gfx942", 64), options={"num_warps": 4})
    return str(compiled.asm["amdgcn"])
