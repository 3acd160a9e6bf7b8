"""Descriptions of the atomic operations. Every test matrix of the suite takes its ops from ``ATOMICS``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

SEMS = (None, "relaxed", "release", "acquire", "acq_rel")
SCOPES = (None, "sys", "gpu", "cta")
"""The orders of an atomic; None is the default of the argument."""


@dataclass(frozen=True)
class Atomic:
    """Description of one atomic.

    ``calls`` maps a form to the jitted function that calls the op: see ``conformance.atomics.history``. ``dtypes`` are
    the supported element types, ``some`` those with which the further forms are tested. ``reduction`` is the all_reduce
    that gives the final value of a cell; None for an exchange, which only has the chain of old values. ``masked``: the
    op has a mask argument.
    """

    name: str
    calls: Mapping[str, Any]
    dtypes: tuple[str, ...]
    some: tuple[str, ...]
    reduction: str | None = None
    masked: bool = True


@gluon.jit
def add_by_gluon(ctx, pointer, compare, value, to_rank, mask, sem: gl.constexpr, scope: gl.constexpr):
    return ctx.atomic_add(pointer, value, to_rank, mask=mask, sem=sem, scope=scope)


@triton.jit
def add_by_context(ctx, pointer, compare, value, to_rank, mask, sem: tl.constexpr, scope: tl.constexpr):
    return ctx.atomic_add(pointer, value, to_rank, mask=mask, sem=sem, scope=scope)


@gluon.jit
def sub_by_gluon(ctx, pointer, compare, value, to_rank, mask, sem: gl.constexpr, scope: gl.constexpr):
    return ctx.atomic_sub(pointer, value, to_rank, mask=mask, sem=sem, scope=scope)


@triton.jit
def sub_by_context(ctx, pointer, compare, value, to_rank, mask, sem: tl.constexpr, scope: tl.constexpr):
    return ctx.atomic_sub(pointer, value, to_rank, mask=mask, sem=sem, scope=scope)


@gluon.jit
def xchg_by_gluon(ctx, pointer, compare, value, to_rank, mask, sem: gl.constexpr, scope: gl.constexpr):
    return ctx.atomic_xchg(pointer, value, to_rank, mask=mask, sem=sem, scope=scope)


@triton.jit
def xchg_by_context(ctx, pointer, compare, value, to_rank, mask, sem: tl.constexpr, scope: tl.constexpr):
    return ctx.atomic_xchg(pointer, value, to_rank, mask=mask, sem=sem, scope=scope)


@gluon.jit
def xor_by_gluon(ctx, pointer, compare, value, to_rank, mask, sem: gl.constexpr, scope: gl.constexpr):
    return ctx.atomic_xor(pointer, value, to_rank, mask=mask, sem=sem, scope=scope)


@triton.jit
def xor_by_context(ctx, pointer, compare, value, to_rank, mask, sem: tl.constexpr, scope: tl.constexpr):
    return ctx.atomic_xor(pointer, value, to_rank, mask=mask, sem=sem, scope=scope)


@gluon.jit
def and_by_gluon(ctx, pointer, compare, value, to_rank, mask, sem: gl.constexpr, scope: gl.constexpr):
    return ctx.atomic_and(pointer, value, to_rank, mask=mask, sem=sem, scope=scope)


@triton.jit
def and_by_context(ctx, pointer, compare, value, to_rank, mask, sem: tl.constexpr, scope: tl.constexpr):
    return ctx.atomic_and(pointer, value, to_rank, mask=mask, sem=sem, scope=scope)


@gluon.jit
def or_by_gluon(ctx, pointer, compare, value, to_rank, mask, sem: gl.constexpr, scope: gl.constexpr):
    return ctx.atomic_or(pointer, value, to_rank, mask=mask, sem=sem, scope=scope)


@triton.jit
def or_by_context(ctx, pointer, compare, value, to_rank, mask, sem: tl.constexpr, scope: tl.constexpr):
    return ctx.atomic_or(pointer, value, to_rank, mask=mask, sem=sem, scope=scope)


@gluon.jit
def min_by_gluon(ctx, pointer, compare, value, to_rank, mask, sem: gl.constexpr, scope: gl.constexpr):
    return ctx.atomic_min(pointer, value, to_rank, mask=mask, sem=sem, scope=scope)


@triton.jit
def min_by_context(ctx, pointer, compare, value, to_rank, mask, sem: tl.constexpr, scope: tl.constexpr):
    return ctx.atomic_min(pointer, value, to_rank, mask=mask, sem=sem, scope=scope)


@gluon.jit
def max_by_gluon(ctx, pointer, compare, value, to_rank, mask, sem: gl.constexpr, scope: gl.constexpr):
    return ctx.atomic_max(pointer, value, to_rank, mask=mask, sem=sem, scope=scope)


@triton.jit
def max_by_context(ctx, pointer, compare, value, to_rank, mask, sem: tl.constexpr, scope: tl.constexpr):
    return ctx.atomic_max(pointer, value, to_rank, mask=mask, sem=sem, scope=scope)


@gluon.jit
def cas_by_gluon(ctx, pointer, compare, value, to_rank, mask, sem: gl.constexpr, scope: gl.constexpr):
    return ctx.atomic_cas(pointer, compare, value, to_rank, sem=sem, scope=scope)


@triton.jit
def cas_by_context(ctx, pointer, compare, value, to_rank, mask, sem: tl.constexpr, scope: tl.constexpr):
    return ctx.atomic_cas(pointer, compare, value, to_rank, sem=sem, scope=scope)


@triton.jit
def by_function(
    function: tl.constexpr, heap_bases, rank, pointer, compare, value, to_rank, mask, sem: tl.constexpr,
    scope: tl.constexpr,
):  # fmt: skip
    """Call an atomic function. All of them except atomic_cas have these parameters."""
    return function(pointer, value, rank, to_rank, heap_bases, mask=mask, sem=sem, scope=scope)


@triton.jit
def cas_by_function(
    atomic_cas: tl.constexpr, heap_bases, rank, pointer, compare, value, to_rank, mask, sem: tl.constexpr,
    scope: tl.constexpr,
):  # fmt: skip
    return atomic_cas(pointer, compare, value, rank, to_rank, heap_bases, sem=sem, scope=scope)


def _by_form(by_gluon: Any, by_context: Any, by_function: Any = by_function) -> dict[str, Any]:
    return {"gluon": by_gluon, "context": by_context, "function": by_function}


_SUMMED = {"dtypes": ("int32", "int64", "fp32", "fp64", "fp16", "bf16"), "some": ("int32", "fp64", "bf16")}
_ORDERED = {"dtypes": ("int32", "int64", "fp32", "fp64"), "some": ("int32", "fp64")}
_WHOLE = {"dtypes": ("int32", "int64"), "some": ("int32", "int64")}

ATOMICS: dict[str, Atomic] = {
    op.name: op
    for op in (
        Atomic("add", _by_form(add_by_gluon, add_by_context), **_SUMMED, reduction="sum"),
        Atomic("sub", _by_form(sub_by_gluon, sub_by_context), **_SUMMED, reduction="sum"),
        Atomic("xchg", _by_form(xchg_by_gluon, xchg_by_context), **_ORDERED),
        Atomic("xor", _by_form(xor_by_gluon, xor_by_context), **_WHOLE, reduction="bxor"),
        Atomic("and", _by_form(and_by_gluon, and_by_context), **_WHOLE, reduction="band"),
        Atomic("or", _by_form(or_by_gluon, or_by_context), **_WHOLE, reduction="bor"),
        Atomic("min", _by_form(min_by_gluon, min_by_context), **_ORDERED, reduction="min"),
        Atomic("max", _by_form(max_by_gluon, max_by_context), **_ORDERED, reduction="max"),
        Atomic("cas", _by_form(cas_by_gluon, cas_by_context, cas_by_function), **_WHOLE, masked=False),
    )
}
"""The descriptions by name. The first one also runs on further world sizes."""
