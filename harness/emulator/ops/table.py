"""The instruction table: from mnemonic to a small function.

A vector or scalar ALU instruction is a pure function on arrays with a signature, results first::

    @vector("v_and_or_b32", "u32 = u32 u32 u32")
    def and_or(a, b, c):
        return (a & b) | c

    vector("v_add_u32", "u32 = u32 u32")(np.add)          # a ufunc writes its result in place

Types are those of ``state.TYPES`` and, in a signature, ``mask`` (one bit a lane: VCC or a scalar pair, given as bool[W, 64]),
``scc`` and ``exec`` (implicit operands), ``imm`` (a sign-extended 16-bit immediate). The suffixes ``_e32 _e64 _sdwa _dpp`` are encodings, which
``build`` handles alike for all of them: an op is written once.

Anything else (memory, branches, cross-lane reads) is a builder, called once while decoding, that returns the step::

    @instruction("s_nop", klass="wait")
    def nop(instruction, context):
        return None
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Step = Callable[[Any], None]
Function = Callable[..., Any]

KLASSES = ("salu", "valu", "smem", "vmem", "atomic", "lds", "branch", "barrier", "wait", "other")


@dataclass(frozen=True)
class Op:
    """An ALU op: its function, result and source types, and whether it runs per lane or per wavefront."""

    name: str
    function: Function
    results: tuple[str, ...]
    sources: tuple[str, ...]
    klass: str
    packed: bool = False


@dataclass(frozen=True)
class Builder:
    """An instruction that is no pure function: ``build(instruction, context)`` returns its step, or None for no effect."""

    name: str
    build: Callable[..., Step | None]
    klass: str


TABLE: dict[str, Op | Builder] = {}


def vector(names: str, signature: str, packed: bool = False) -> Callable[[Function], Function]:
    """Register a vector ALU op under each of the blank-separated ``names``.

    ``packed``: a VOP3P op, whose function is called once per 16-bit half (or per 32-bit register of a pair).
    """
    return _alu(names, signature, "valu", packed)


def scalar(names: str, signature: str) -> Callable[[Function], Function]:
    """Register a scalar ALU op; its function sees arrays of shape [W]."""
    return _alu(names, signature, "salu", False)


def instruction(names: str, klass: str) -> Callable[[Callable], Callable]:
    """Register a builder for each of the blank-separated ``names``."""

    def register(build: Callable) -> Callable:
        for name in names.split():
            _add(name, Builder(name, build, klass))
        return build

    return register


def find(mnemonic: str) -> tuple[Op | Builder | None, str]:
    """The op of a mnemonic and its encoding: ``""``, ``e32``, ``e64``, ``sdwa`` or ``dpp``."""
    if mnemonic in TABLE:
        return TABLE[mnemonic], ""
    base, _, encoding = mnemonic.rpartition("_")
    if encoding == "dpp" and base.endswith("_e64"):
        base = base.removesuffix("_e64")
    if encoding in ("e32", "e64", "sdwa", "dpp"):
        return TABLE.get(base), encoding
    return None, ""


def _alu(names: str, signature: str, klass: str, packed: bool) -> Callable[[Function], Function]:
    results, _, sources = signature.partition("=")

    def register(function: Function) -> Function:
        for name in names.split():
            _add(name, Op(name, function, tuple(results.split()), tuple(sources.split()), klass, packed))
        return function

    return register


def _add(name: str, entry: Op | Builder) -> None:
    assert name not in TABLE, f"{name} is registered twice"  # sanity check
    TABLE[name] = entry
