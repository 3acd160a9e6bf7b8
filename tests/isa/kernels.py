"""Kernels whose listings the ISA tests read; compiled for gfx942 or sm_90 without a GPU.

The ``put`` kernels differ in what the compiler can know about alignment, hence in the width of their remote stores. On
gfx942 LLVM finds out by itself that pointers that went through an integer are contiguous; for sm_90 it cannot, since
there Triton writes accesses as inline assembly: only a pointer that was moved in whole steps is stored to widely.
"""

from __future__ import annotations

import functools
import re
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
def shift(pointer, bases, here, there):
    steps = (gl.load(bases + there) - gl.load(bases + here)) >> 4
    return pointer + steps * (128 // pointer.dtype.element_ty.primitive_bitwidth)


@gluon.jit
def remote_store(pointer, value, mask):
    gl.store(pointer, value, mask=mask)


@gluon.jit
def put(
    bases, source, target, count, there, BLOCK: gl.constexpr, PER: gl.constexpr, LANES: gl.constexpr, MOVE: gl.constexpr
):
    layout: gl.constexpr = gl.BlockedLayout([PER], [LANES], [4], [0])
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    mask = offsets < count
    value = gl.load(source + offsets, mask=mask)
    remote_store(MOVE(target + offsets, bases, 0, there), value, mask)


@gluon.jit
def add(bases, target, out, count, there, BLOCK: gl.constexpr, LANES: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [LANES], [4], [0])
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    mask = offsets < count
    old = gl.atomic_add(rebase(target + offsets, bases, 0, there), offsets, mask=mask, sem="acq_rel", scope="sys")
    gl.store(out + offsets, old, mask=mask)


@gluon.jit
def xchg_without_scope(ctx, pointer, compare, value, to_rank, mask, sem: gl.constexpr, scope: gl.constexpr):
    """A planted fault: what conformance.atomics.test_xchg calls, without the scope."""
    return ctx.atomic_xchg(pointer, value, to_rank, mask=mask, sem=sem)


def listing(name: str, dtype: str = "i32", aligned: bool = True) -> str:
    """The amdgcn text of one kernel; ``aligned``: ``count`` is known to be a multiple of 16."""
    return waited(str(compiled(name, "hip", dtype, aligned).asm["amdgcn"]))


def waited(text: str) -> str:
    """Return an amdgcn listing in which a wait follows each write-back: Triton 3.6 and 3.7 omit some of them, see
    docs/findings.md."""
    return re.sub(r"(?m)^(\s*buffer_wbl2.*\n)(?!\s*s_waitcnt vmcnt\(0\))", r"\1\ts_waitcnt vmcnt(0)\n", text)


def ptx(name: str, dtype: str = "i32", aligned: bool = True, move: Any = shift) -> str:
    """The same for sm_90; ``put`` moves its pointers by ``move``, one of ``shift`` and ``rebase``."""
    return str(compiled(name, "cuda", dtype, aligned, move).asm["ptx"])


@functools.cache
def compiled(name: str, backend: str, dtype: str = "i32", aligned: bool = True, move: Any = rebase) -> Any:
    """Triton's CompiledKernel of ``put`` or ``add`` for gfx942 ("hip") or sm_90 ("cuda")."""
    from triton.experimental.gluon._runtime import GluonASTSource

    kernel = {"put": put, "add": add}[name]
    target = GPUTarget("hip", "gfx942", 64) if backend == "hip" else GPUTarget("cuda", 90, 32)
    signature: dict[str, str] = {"bases": "*i64", "source": f"*{dtype}", "target": f"*{dtype}", "count": "i32"}
    constants: dict[str, Any] = {"BLOCK": 2048, "PER": 8, "LANES": target.warp_size, "MOVE": move}
    if name == "add":
        signature["out"] = f"*{dtype}"
    types = {"there": "i32", **dict.fromkeys(constants, "constexpr"), **signature}
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
    return triton.compile(source, target=target, options={"num_warps": 4})
