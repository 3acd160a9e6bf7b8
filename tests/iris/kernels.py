"""Small kernels around each method of ``IrisDeviceCtx``, and their compilation for gfx942 without a GPU."""

from __future__ import annotations

import functools

import triton
from triton.backends.compiler import GPUTarget
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

from harness.isa import Fingerprint, fingerprint
from harness.isa.compile_only import target
from iris_under_test.gluon import IrisDeviceCtx
from iris_under_test.kernels.move import move_gluon

ITEM_SIZES = {"i1": 1, "i8": 1, "i16": 2, "i32": 4, "i64": 8, "fp16": 2, "bf16": 2, "fp32": 4, "fp64": 8}
_ALIGNED = [["tt.divisibility", 16]]
_SMALL = [*_ALIGNED, ["tt.pointer_range", 32]]
_TARGET = GPUTarget("hip", "gfx942", 64)


@gluon.jit
def rma_kernel(
    Ctx: gl.constexpr, context, a, b, n, peer, BLOCK: gl.constexpr, PER_LANE: gl.constexpr, OP: gl.constexpr,
    LOAD_CACHE: gl.constexpr, STORE_CACHE: gl.constexpr,
):  # fmt: skip
    ctx = Ctx.initialize(context)
    layout: gl.constexpr = gl.BlockedLayout([PER_LANE], [64], [4], [0])
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    mask = offsets < n
    if OP == "load":
        gl.store(b + offsets, ctx.load(a + offsets, peer, mask=mask, cache_modifier=LOAD_CACHE), mask=mask)
    elif OP == "store":
        ctx.store(b + offsets, gl.load(a + offsets, mask=mask), peer, mask=mask, cache_modifier=STORE_CACHE)
    elif OP == "get":
        ctx.get(a + offsets, b + offsets, peer, mask=mask, load_cache_modifier=LOAD_CACHE)
    elif OP == "put":
        ctx.put(a + offsets, b + offsets, peer, mask=mask, store_cache_modifier=STORE_CACHE)
    elif OP == "copy":
        ctx.copy(a + offsets, b + offsets, peer, ctx.cur_rank, mask, None, LOAD_CACHE, STORE_CACHE)
    elif OP == "scalar":
        ctx.store(b, ctx.load(a, peer), peer)


@gluon.jit
def atomic_kernel(
    Ctx: gl.constexpr, context, a, b, n, peer, BLOCK: gl.constexpr, OP: gl.constexpr, SEM: gl.constexpr,
    SCOPE: gl.constexpr,
):  # fmt: skip
    ctx = Ctx.initialize(context)
    layout: gl.constexpr = gl.BlockedLayout([1], [64], [4], [0])
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    mask = offsets < n
    value = gl.load(a + offsets, mask=mask)
    if OP == "add":
        old = ctx.atomic_add(b + offsets, value, peer, mask, SEM, SCOPE)
    elif OP == "sub":
        old = ctx.atomic_sub(b + offsets, value, peer, mask, SEM, SCOPE)
    elif OP == "xchg":
        old = ctx.atomic_xchg(b + offsets, value, peer, mask, SEM, SCOPE)
    elif OP == "xor":
        old = ctx.atomic_xor(b + offsets, value, peer, mask, SEM, SCOPE)
    elif OP == "and":
        old = ctx.atomic_and(b + offsets, value, peer, mask, SEM, SCOPE)
    elif OP == "or":
        old = ctx.atomic_or(b + offsets, value, peer, mask, SEM, SCOPE)
    elif OP == "min":
        old = ctx.atomic_min(b + offsets, value, peer, mask, SEM, SCOPE)
    elif OP == "max":
        old = ctx.atomic_max(b + offsets, value, peer, mask, SEM, SCOPE)
    elif OP == "cas":
        old = ctx.atomic_cas(b + offsets, value, value + 1, peer, SEM, SCOPE)
    gl.store(a + offsets, old, mask=mask)


def compile_for_gfx942(kernel, types: dict, constants: dict, aligned: tuple[str, ...], num_warps: int = 4) -> str:
    """The amdgcn listing. ``aligned`` names the scalar arguments known to be multiples of 16; pointers always are."""
    names = kernel.arg_names
    attributes = {}
    for index, name in enumerate(names):
        if name in aligned:
            attributes[(index,)] = _ALIGNED
        elif types.get(name, "").startswith("*"):
            attributes[(index,)] = _SMALL
    signature = {name: "constexpr" if name in constants else types[name] for name in names}
    places = {(names.index(name),): value for name, value in constants.items()}
    source = GluonASTSource(kernel, signature, places, attributes)
    return triton.compile(source, target=_TARGET, options={"num_warps": num_warps}).asm["amdgcn"]


@functools.cache
def rma(
    op: str, dtype: str, aligned: bool = True, load_cache: str | None = None, store_cache: str | None = None
) -> Fingerprint:
    """A method with a layout of 16 bytes per lane; ``aligned``: ``n`` is known to be a multiple of 16."""
    per_lane = 16 // ITEM_SIZES[dtype]
    types = {"context": "*i64", "a": f"*{dtype}", "b": f"*{dtype}", "n": "i32", "peer": "i32"}
    constants = {
        "Ctx": IrisDeviceCtx, "BLOCK": 256 * per_lane, "PER_LANE": per_lane, "OP": op,
        "LOAD_CACHE": load_cache, "STORE_CACHE": store_cache,
    }  # fmt: skip
    return fingerprint(compile_for_gfx942(rma_kernel, types, constants, ("n",) if aligned else ()))


@functools.cache
def atomic(op: str, dtype: str, sem: str | None = None, scope: str | None = None) -> Fingerprint:
    types = {"context": "*i64", "a": f"*{dtype}", "b": f"*{dtype}", "n": "i32", "peer": "i32"}
    constants = {"Ctx": IrisDeviceCtx, "BLOCK": 256, "OP": op, "SEM": sem, "SCOPE": scope}
    return fingerprint(compile_for_gfx942(atomic_kernel, types, constants, ("n",)))


def all_gather(dtype: str, aligned: bool = True, contiguous: bool = True) -> Fingerprint:
    """See ``all_gather_listing``."""
    return fingerprint(all_gather_listing(dtype, aligned, contiguous))


@functools.cache
def all_gather_listing(dtype: str, aligned: bool = True, contiguous: bool = True) -> str:
    """Four ranks, the default tile; ``aligned``: N and the row strides are known to be multiples of 16."""
    constants = {
        "FROM": "own", "TO": "all", "OP": 0, "SHARED": "none", "STRIDING": False, "IN_PLACE": False, "SIZE": 4,
        "BLOCK_M": 8, "BLOCK_N": 256, "GROUP_M": 4, "NUM_XCDS": 8, "CHUNK": 8,
        "IN_ALIGNMENT": 16, "OUT_ALIGNMENT": 16, "RUN": False,
        "ELEMENTS_PER_LANE": min(8, 16 // ITEM_SIZES[dtype]), "LANES": 64, "WARPS": 4,
    }  # fmt: skip
    if contiguous:
        constants |= {"in_n": 1, "out_n": 1}
    types = dict.fromkeys(move_gluon.arg_names, "i32")
    types |= {"context": "*i64", "pads": "*i64", "input_ptr": f"*{dtype}", "output_ptr": f"*{dtype}"}
    known = ("N", "in_m", "out_m", "out_step") if aligned else ()
    # Signals are written in the target's own instructions, and query the driver for it.
    with target("hip", "gfx942"):
        return compile_for_gfx942(move_gluon, types, constants, known)
