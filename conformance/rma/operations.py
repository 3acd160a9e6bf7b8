"""Descriptions of the ops that move a block. Every test matrix of the suite takes its ops from ``TRANSFERS``.

A description holds the call of the op in each form that users write, and the properties that tests depend on: the side
of a transfer on which the caller is, where the op loads and stores, and its optional arguments.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from conformance.rma.cases import TransferCase
from harness.cases import ALL, SOME
from harness.cases.covering import covering


@dataclass(frozen=True)
class Transfer:
    """Description of one op.

    ``calls`` maps a form to the jitted function that calls the op; see ``conformance.rma.kernels`` for its parameters.
    ``loads`` and ``stores`` are "local" or "remote", or None if the kernel and not the op reads or writes, in local
    memory. ``other`` and ``volatile``: the op has an argument of that name. ``shows_other``: masked-off lanes return
    ``other``. ``two_ranks``: both ranks are arguments, so that the caller may be either one, and each side keeps its
    own element type. ``requirement``: the prefix of the ids of its requirements, as in "RMA-PUSH", from which
    ``test_operations`` derives its tests; None if the op has its own test file.
    """

    name: str
    calls: Mapping[str, Any]
    loads: str | None
    stores: str | None
    other: bool = True
    shows_other: bool = False
    volatile: bool = False
    two_ranks: bool = False
    requirement: str | None = None

    @property
    def remote(self) -> tuple[str, ...]:
        """The kinds of the op's remote accesses."""
        sides = (("store", self.stores), ("load", self.loads))
        return tuple(kind for kind, side in sides if side == "remote")

    def pushes(self, case: TransferCase) -> bool:
        """Return True if the caller is the sender."""
        return case.direction == "to" if self.two_ranks else self.stores == "remote"

    def ranks(self, case: TransferCase, caller: int, peer: int) -> tuple[int, int]:
        """Return the sending and the receiving rank."""
        return (caller, peer) if self.pushes(case) else (peer, caller)


@gluon.jit
def put_by_gluon(
    ctx, source, target, from_rank, to_rank, mask, OTHER: gl.constexpr, LOAD_MODIFIER: gl.constexpr,
    STORE_MODIFIER: gl.constexpr, VOLATILE: gl.constexpr,
):  # fmt: skip
    ctx.put(
        source, target, to_rank, mask=mask, other=OTHER, load_cache_modifier=LOAD_MODIFIER,
        store_cache_modifier=STORE_MODIFIER,
    )  # fmt: skip


@triton.jit
def put_by_context(
    ctx, source, target, from_rank, to_rank, mask, OTHER: tl.constexpr, LOAD_MODIFIER: tl.constexpr,
    STORE_MODIFIER: tl.constexpr, VOLATILE: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    ctx.put(
        source, target, to_rank, mask=mask, other=OTHER, load_cache_modifier=LOAD_MODIFIER,
        store_cache_modifier=STORE_MODIFIER, hint=HINT,
    )  # fmt: skip


@triton.jit
def put_by_function(
    put: tl.constexpr, heap_bases, rank, source, target, from_rank, to_rank, mask, OTHER: tl.constexpr,
    LOAD_MODIFIER: tl.constexpr, STORE_MODIFIER: tl.constexpr, VOLATILE: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    put(
        source, target, rank, to_rank, heap_bases, mask=mask, other=OTHER, load_cache_modifier=LOAD_MODIFIER,
        store_cache_modifier=STORE_MODIFIER, hint=HINT,
    )  # fmt: skip


@gluon.jit
def store_by_gluon(
    ctx, source, target, from_rank, to_rank, mask, OTHER: gl.constexpr, LOAD_MODIFIER: gl.constexpr,
    STORE_MODIFIER: gl.constexpr, VOLATILE: gl.constexpr,
):  # fmt: skip
    ctx.store(target, gl.load(source, mask=mask), to_rank, mask=mask, cache_modifier=STORE_MODIFIER)


@triton.jit
def store_by_context(
    ctx, source, target, from_rank, to_rank, mask, OTHER: tl.constexpr, LOAD_MODIFIER: tl.constexpr,
    STORE_MODIFIER: tl.constexpr, VOLATILE: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    ctx.store(target, tl.load(source, mask=mask), to_rank, mask=mask, cache_modifier=STORE_MODIFIER, hint=HINT)


@triton.jit
def store_by_function(
    store: tl.constexpr, heap_bases, rank, source, target, from_rank, to_rank, mask, OTHER: tl.constexpr,
    LOAD_MODIFIER: tl.constexpr, STORE_MODIFIER: tl.constexpr, VOLATILE: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    value = tl.load(source, mask=mask)
    store(target, value, rank, to_rank, heap_bases, mask=mask, hint=HINT, cache_modifier=STORE_MODIFIER)


@gluon.jit
def get_by_gluon(
    ctx, source, target, from_rank, to_rank, mask, OTHER: gl.constexpr, LOAD_MODIFIER: gl.constexpr,
    STORE_MODIFIER: gl.constexpr, VOLATILE: gl.constexpr,
):  # fmt: skip
    ctx.get(
        source, target, from_rank, mask=mask, other=OTHER, load_cache_modifier=LOAD_MODIFIER,
        store_cache_modifier=STORE_MODIFIER,
    )  # fmt: skip


@triton.jit
def get_by_context(
    ctx, source, target, from_rank, to_rank, mask, OTHER: tl.constexpr, LOAD_MODIFIER: tl.constexpr,
    STORE_MODIFIER: tl.constexpr, VOLATILE: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    ctx.get(
        source, target, from_rank, mask=mask, other=OTHER, load_cache_modifier=LOAD_MODIFIER,
        store_cache_modifier=STORE_MODIFIER, hint=HINT,
    )  # fmt: skip


@triton.jit
def get_by_function(
    get: tl.constexpr, heap_bases, rank, source, target, from_rank, to_rank, mask, OTHER: tl.constexpr,
    LOAD_MODIFIER: tl.constexpr, STORE_MODIFIER: tl.constexpr, VOLATILE: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    # The calling rank is the first of the two ranks, although the parameter names suggest otherwise.
    get(
        source, target, rank, from_rank, heap_bases, mask=mask, other=OTHER, load_cache_modifier=LOAD_MODIFIER,
        store_cache_modifier=STORE_MODIFIER, hint=HINT,
    )  # fmt: skip


@gluon.jit
def load_by_gluon(
    ctx, source, target, from_rank, to_rank, mask, OTHER: gl.constexpr, LOAD_MODIFIER: gl.constexpr,
    STORE_MODIFIER: gl.constexpr, VOLATILE: gl.constexpr,
):  # fmt: skip
    value = ctx.load(source, from_rank, mask=mask, other=OTHER, cache_modifier=LOAD_MODIFIER, volatile=VOLATILE)
    if OTHER is None:
        gl.store(target, value, mask=mask)
    else:
        gl.store(target, value)


@triton.jit
def load_by_context(
    ctx, source, target, from_rank, to_rank, mask, OTHER: tl.constexpr, LOAD_MODIFIER: tl.constexpr,
    STORE_MODIFIER: tl.constexpr, VOLATILE: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    value = ctx.load(
        source, from_rank, mask=mask, other=OTHER, cache_modifier=LOAD_MODIFIER, volatile=VOLATILE, hint=HINT
    )
    if OTHER is None:
        tl.store(target, value, mask=mask)
    else:
        tl.store(target, value)


@triton.jit
def load_by_function(
    load: tl.constexpr, heap_bases, rank, source, target, from_rank, to_rank, mask, OTHER: tl.constexpr,
    LOAD_MODIFIER: tl.constexpr, STORE_MODIFIER: tl.constexpr, VOLATILE: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    # The calling rank is the first of the two ranks, although the parameter names suggest otherwise.
    value = load(
        source, rank, from_rank, heap_bases, mask=mask, other=OTHER, cache_modifier=LOAD_MODIFIER, volatile=VOLATILE,
        hint=HINT,
    )  # fmt: skip
    if OTHER is None:
        tl.store(target, value, mask=mask)
    else:
        tl.store(target, value)


@gluon.jit
def copy_by_gluon(
    ctx, source, target, from_rank, to_rank, mask, OTHER: gl.constexpr, LOAD_MODIFIER: gl.constexpr,
    STORE_MODIFIER: gl.constexpr, VOLATILE: gl.constexpr,
):  # fmt: skip
    ctx.copy(
        source, target, from_rank, to_rank, mask=mask, other=OTHER, load_cache_modifier=LOAD_MODIFIER,
        store_cache_modifier=STORE_MODIFIER,
    )  # fmt: skip


@triton.jit
def copy_by_context(
    ctx, source, target, from_rank, to_rank, mask, OTHER: tl.constexpr, LOAD_MODIFIER: tl.constexpr,
    STORE_MODIFIER: tl.constexpr, VOLATILE: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    ctx.copy(
        source, target, from_rank, to_rank, mask=mask, other=OTHER, load_cache_modifier=LOAD_MODIFIER,
        store_cache_modifier=STORE_MODIFIER, hint=HINT,
    )  # fmt: skip


@triton.jit
def copy_by_function(
    copy: tl.constexpr, heap_bases, rank, source, target, from_rank, to_rank, mask, OTHER: tl.constexpr,
    LOAD_MODIFIER: tl.constexpr, STORE_MODIFIER: tl.constexpr, VOLATILE: tl.constexpr, HINT: tl.constexpr,
):  # fmt: skip
    copy(
        source, target, from_rank, to_rank, rank, heap_bases, mask=mask, other=OTHER,
        load_cache_modifier=LOAD_MODIFIER, store_cache_modifier=STORE_MODIFIER, hint=HINT,
    )  # fmt: skip


def _by_form(by_gluon: Any, by_context: Any, by_function: Any) -> dict[str, Any]:
    return {"gluon": by_gluon, "context": by_context, "function": by_function}


TRANSFERS: dict[str, Transfer] = {
    op.name: op
    for op in (
        Transfer("put", _by_form(put_by_gluon, put_by_context, put_by_function), loads="local", stores="remote"),
        Transfer(
            "store",
            _by_form(store_by_gluon, store_by_context, store_by_function),
            loads=None,
            stores="remote",
            other=False,
        ),
        Transfer("get", _by_form(get_by_gluon, get_by_context, get_by_function), loads="remote", stores="local"),
        Transfer(
            "load",
            _by_form(load_by_gluon, load_by_context, load_by_function),
            loads="remote",
            stores=None,
            shows_other=True,
            volatile=True,
        ),
        Transfer(
            "copy",
            _by_form(copy_by_gluon, copy_by_context, copy_by_function),
            loads="remote",
            stores="remote",
            two_ranks=True,
        ),
    )
}
"""The descriptions by name. The first one also runs on further world sizes."""


@functools.cache
def _wide(form: str) -> tuple[dict[str, Any], ...]:
    ways = [(name, way) for name, op in TRANSFERS.items() for way in ("to", "from")[: 1 + op.two_ranks]]
    dtypes, hints = (ALL, (False,)) if form == "gluon" else (SOME, (False, True))
    return covering(
        {"op": ways, "dtype": dtypes, "mask": ("none", "range"), "hinted": hints},
        valid=lambda row: not (row["hinted"] and row["mask"] == "range"),
    )


def wide(op: str, form: str) -> list[Mapping[str, Any]]:
    """Return the rows of one op in a covering array of aligned transfers of 16 bytes per lane in one form.

    A row has the "op" with the direction (only an op that names both ranks has two), the "dtype", the "mask", and
    whether the call is "hinted".
    """
    return [row for row in _wide(form) if row["op"][0] == op]
