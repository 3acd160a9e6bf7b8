"""Small kernels around each Triton operation, as a method and as a function, and their compilation without a GPU."""

from __future__ import annotations

import functools

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import iris_under_test as iris
from harness.isa import Fingerprint, fingerprint
from iris_under_test.device.triton import atomic_sub
from tests.iris.kernels import _ALIGNED, _SMALL, ITEM_SIZES

FORMS = ("context", "function")
TARGETS = {
    "gfx942": GPUTarget("hip", "gfx942", 64),
    "gfx950": GPUTarget("hip", "gfx950", 64),
    "sm_90": GPUTarget("cuda", 90, 32),
}


@triton.jit
def rma_kernel(
    context, a, b, n, peer, FORM: tl.constexpr, OP: tl.constexpr, BLOCK: tl.constexpr, HINT: tl.constexpr,
    LOAD_CACHE: tl.constexpr, STORE_CACHE: tl.constexpr,
):  # fmt: skip
    """As rank 1 of 4."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    bases = context + 2
    if FORM == "context":
        ctx = iris.DeviceContext.initialize(context, 1, 4)
        if OP == "load":
            value = ctx.load(a + offsets, peer, mask=mask, cache_modifier=LOAD_CACHE, hint=HINT)
            tl.store(b + offsets, value, mask=mask)
        elif OP == "store":
            value = tl.load(a + offsets, mask=mask)
            ctx.store(b + offsets, value, peer, mask=mask, cache_modifier=STORE_CACHE, hint=HINT)
        elif OP == "get":
            ctx.get(a + offsets, b + offsets, peer, mask=mask, load_cache_modifier=LOAD_CACHE, hint=HINT)
        elif OP == "put":
            ctx.put(a + offsets, b + offsets, peer, mask=mask, store_cache_modifier=STORE_CACHE, hint=HINT)
        elif OP == "copy":
            ctx.copy(a + offsets, b + offsets, peer, 1, mask, None, LOAD_CACHE, STORE_CACHE, HINT)
        elif OP == "scalar":
            ctx.store(b, ctx.load(a, peer), peer)
    else:
        if OP == "load":
            value = iris.load(a + offsets, 1, peer, bases, mask=mask, cache_modifier=LOAD_CACHE, hint=HINT)
            tl.store(b + offsets, value, mask=mask)
        elif OP == "store":
            value = tl.load(a + offsets, mask=mask)
            iris.store(b + offsets, value, 1, peer, bases, mask=mask, hint=HINT, cache_modifier=STORE_CACHE)
        elif OP == "get":
            iris.get(a + offsets, b + offsets, 1, peer, bases, mask=mask, load_cache_modifier=LOAD_CACHE, hint=HINT)
        elif OP == "put":
            iris.put(a + offsets, b + offsets, 1, peer, bases, mask=mask, store_cache_modifier=STORE_CACHE, hint=HINT)
        elif OP == "copy":
            iris.copy(a + offsets, b + offsets, peer, 1, 1, bases, mask, None, LOAD_CACHE, STORE_CACHE, HINT)
        elif OP == "scalar":
            iris.store(b, iris.load(a, 1, peer, bases), 1, peer, bases)


@triton.jit
def tile_kernel(context, a, b, stride, peer, ROWS: tl.constexpr, COLUMNS: tl.constexpr, HINTED: tl.constexpr):
    """A tile of rows whose distance Triton knows nothing of."""
    ctx = iris.DeviceContext.initialize(context, 1, 4)
    places = tl.arange(0, ROWS)[:, None] * stride + tl.arange(0, COLUMNS)[None, :]
    if HINTED:
        ctx.put(a + places, b + places, peer, hint=(1, COLUMNS))
    else:
        ctx.put(a + places, b + places, peer)


@triton.jit
def atomic_kernel(
    context, a, b, n, peer, FORM: tl.constexpr, OP: tl.constexpr, BLOCK: tl.constexpr, SEM: tl.constexpr,
    SCOPE: tl.constexpr,
):  # fmt: skip
    """As rank 1 of 4."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(a + offsets, mask=mask)
    places, bases = b + offsets, context + 2
    if FORM == "context":
        ctx = iris.DeviceContext.initialize(context, 1, 4)
        if OP == "add":
            old = ctx.atomic_add(places, value, peer, mask, SEM, SCOPE)
        elif OP == "sub":
            old = ctx.atomic_sub(places, value, peer, mask, SEM, SCOPE)
        elif OP == "xchg":
            old = ctx.atomic_xchg(places, value, peer, mask, SEM, SCOPE)
        elif OP == "xor":
            old = ctx.atomic_xor(places, value, peer, mask, SEM, SCOPE)
        elif OP == "and":
            old = ctx.atomic_and(places, value, peer, mask, SEM, SCOPE)
        elif OP == "or":
            old = ctx.atomic_or(places, value, peer, mask, SEM, SCOPE)
        elif OP == "min":
            old = ctx.atomic_min(places, value, peer, mask, SEM, SCOPE)
        elif OP == "max":
            old = ctx.atomic_max(places, value, peer, mask, SEM, SCOPE)
        elif OP == "cas":
            old = ctx.atomic_cas(places, value, value + 1, peer, SEM, SCOPE)
    else:
        if OP == "add":
            old = iris.atomic_add(places, value, 1, peer, bases, mask, SEM, SCOPE)
        elif OP == "sub":
            old = atomic_sub(places, value, 1, peer, bases, mask, SEM, SCOPE)
        elif OP == "xchg":
            old = iris.atomic_xchg(places, value, 1, peer, bases, mask, SEM, SCOPE)
        elif OP == "xor":
            old = iris.atomic_xor(places, value, 1, peer, bases, mask, SEM, SCOPE)
        elif OP == "and":
            old = iris.atomic_and(places, value, 1, peer, bases, mask, SEM, SCOPE)
        elif OP == "or":
            old = iris.atomic_or(places, value, 1, peer, bases, mask, SEM, SCOPE)
        elif OP == "min":
            old = iris.atomic_min(places, value, 1, peer, bases, mask, SEM, SCOPE)
        elif OP == "max":
            old = iris.atomic_max(places, value, 1, peer, bases, mask, SEM, SCOPE)
        elif OP == "cas":
            old = iris.atomic_cas(places, value, value + 1, 1, peer, bases, SEM, SCOPE)
    tl.store(a + offsets, old, mask=mask)


@triton.jit
def runtime_rank_kernel(context, rank):
    ctx = iris.DeviceContext.initialize(context, rank, 4)
    tl.store(context, ctx.rank)


def compile_for(target: str, kernel, types: dict, constants: dict, aligned: tuple[str, ...], num_warps: int = 4) -> str:
    """The amdgcn or PTX text. ``aligned`` names the arguments known to be multiples of 16; tensors are below 2 GiB."""
    names = kernel.arg_names
    attributes: dict = {}
    for index, name in enumerate(names):
        known = [*(_ALIGNED if name in aligned else ()), *(_SMALL[1:] if types.get(name, "").startswith("*") else ())]
        if known:
            attributes[(index,)] = known
    signature = {name: "constexpr" if name in constants else types[name] for name in names}
    places = {(names.index(name),): value for name, value in constants.items()}
    source = ASTSource(kernel, signature, places, attributes)
    compiled = triton.compile(source, target=TARGETS[target], options={"num_warps": num_warps}).asm
    return compiled["ptx" if target.startswith("sm") else "amdgcn"]


@functools.cache
def rma(
    form: str, op: str, dtype: str, target: str = "gfx942", aligned: tuple[str, ...] = ("context", "a", "b", "n"),
    hint: int | None = None, load_cache: str | None = None, store_cache: str | None = None,
) -> Fingerprint:  # fmt: skip
    """One operation on blocks of which each lane has 16 bytes."""
    types = {"context": "*i64", "a": f"*{dtype}", "b": f"*{dtype}", "n": "i32", "peer": "i32"}
    constants = {
        "FORM": form, "OP": op, "BLOCK": 256 * 16 // ITEM_SIZES[dtype], "HINT": hint, "LOAD_CACHE": load_cache,
        "STORE_CACHE": store_cache,
    }  # fmt: skip
    return fingerprint(compile_for(target, rma_kernel, types, constants, aligned))


@functools.cache
def tile(hinted: bool, target: str = "gfx942") -> Fingerprint:
    """A put of 32 x 64 fp16."""
    types = {"context": "*i64", "a": "*fp16", "b": "*fp16", "stride": "i32", "peer": "i32"}
    constants = {"ROWS": 32, "COLUMNS": 64, "HINTED": hinted}
    return fingerprint(compile_for(target, tile_kernel, types, constants, ("context", "a", "b")))


@functools.cache
def atomic(form: str, op: str, dtype: str, sem: str | None = None, scope: str | None = None) -> Fingerprint:
    types = {"context": "*i64", "a": f"*{dtype}", "b": f"*{dtype}", "n": "i32", "peer": "i32"}
    constants = {"FORM": form, "OP": op, "BLOCK": 256, "SEM": sem, "SCOPE": scope}
    return fingerprint(compile_for("gfx942", atomic_kernel, types, constants, ("context", "a", "b", "n")))
