"""The instruction table: from mnemonic to a small function.

A vector or scalar ALU instruction is a pure function on arrays with a signature, results first::

    @vector("v_and_or_b32", "u32 = u32 u32 u32")
    def and_or(a, b, c):
        return (a & b) | c

    vector("v_add_u32", "u32 = u32 u32")(np.add)          # a ufunc writes its result in place

The same function is compiled by calling it with symbolic arrays (``harness.emulator.compiled``). So it is pure, uses
operators, ufuncs, ``astype``, ``view`` and ``np.where`` rather than ``np.asarray`` or a Python branch on data, and asks
for ``any()`` and ``all()`` only to take a shortcut: compiling takes them for True and False. A function that uses more
than is known to symbolic arrays stays interpreted.

Types are those of ``state.TYPES`` and, in a signature, ``mask`` (one bit a lane: VCC or a scalar pair, given as bool[W,
64]), ``scc``, ``exec``, ``vcc`` and ``mode`` (implicit operands), ``imm`` (a sign-extended 16-bit immediate) and, as a
source, ``@f32`` (the destination's old value) and ``%bitop3`` (the number given by that modifier; of ``op_sel`` its
bits, which then select no halves). The suffixes ``_e32 _e64 _sdwa _dpp`` are encodings, which ``build`` handles alike
for all of them: an op is written once.

Anything else (memory, branches, cross-lane reads) is a builder, called once while decoding, that returns the step::

    @instruction("s_nop", klass="wait")
    def nop(instruction, context):
        return None

An opcode that one arch alone has, or that means something else there, is registered under ``name@arch``::

    vector("v_cvt_f32_fp8@gfx942", "f32 = u32")(fnuz_to_float)
    vector("v_cvt_f32_fp8@gfx950", "f32 = u32")(ocp_to_float)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Step = Callable[[Any], None]
Function = Callable[..., Any]

KLASSES = ("salu", "valu", "smem", "vmem", "atomic", "lds", "branch", "barrier", "wait", "other")


@dataclass(frozen=True)
class Shift:
    """``value shifted by count``, the count first as in the "rev" instructions and taken modulo the width of the value.

    ``build`` runs the ufunc in place, and drops the modulo when the count is a constant.
    """

    ufunc: np.ufunc

    def __call__(self, count: np.ndarray, value: np.ndarray) -> np.ndarray:
        return self.ufunc(value, shift_count(count, value.dtype))


@dataclass(frozen=True)
class Select:
    """The second value where the mask is set, else the first; ``build`` copies in place."""

    def __call__(self, if_clear: np.ndarray, if_set: np.ndarray, mask: np.ndarray) -> np.ndarray:
        return np.where(mask, if_set, if_clear)


@dataclass(frozen=True)
class Chain:
    """``second(first(a, b), c)``: the three-operand integer ops. ``count`` says which source (1 or 2) is a shift count,
    taken modulo
    ``modulo``. ``build`` runs the second ufunc in place, and only it when the shift is a constant 0."""

    first: np.ufunc
    second: np.ufunc
    count: int = 0
    modulo: int = 32

    def __call__(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        if self.count == 1:
            b = (b & b.dtype.type(self.modulo - 1)).astype(a.dtype, copy=False)
        elif self.count == 2:
            c = c & c.dtype.type(self.modulo - 1)
        return self.second(self.first(a, b), c)


def shift_count(count: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """``count`` modulo the bits of ``dtype``, in that dtype."""
    return (count & count.dtype.type(8 * dtype.itemsize - 1)).astype(dtype, copy=False)


@dataclass(frozen=True)
class Op:
    """An ALU op: its function, result and source types, and whether it runs per lane or per wavefront.

    ``keeps_high``: a 16-bit result leaves the upper half of its register alone, where others clear it.
    ``saturated``: the function of an integer op under ``clamp``. ``mixed``: op_sel_hi says which sources are float16
    halves.
    """

    name: str
    function: Function
    results: tuple[str, ...]
    sources: tuple[str, ...]
    klass: str
    packed: bool = False
    keeps_high: bool = False
    saturated: Function | None = None
    mixed: bool = False


@dataclass(frozen=True)
class Builder:
    """An instruction that is no pure function: ``build(instruction, context)`` returns its step, the
    ``access.Effect`` of a memory instruction, or None for no effect."""

    name: str
    build: Callable[..., Any]
    klass: str


TABLE: dict[str, Op | Builder] = {}


def vector(
    names: str,
    signature: str,
    packed: bool = False,
    keeps_high: bool = False,
    saturated: Function | None = None,
    mixed: bool = False,
) -> Callable[[Function], Function]:
    """Register a vector ALU op under each of the blank-separated ``names``.

    ``packed``: a VOP3P op, whose function is called once per 16-bit half (or per 32-bit register of a pair). The rest
    as in ``Op``.
    """
    return _alu(names, signature, "valu", packed, keeps_high, saturated, mixed)


def scalar(names: str, signature: str) -> Callable[[Function], Function]:
    """Register a scalar ALU op; its function sees arrays of shape [W]."""
    return _alu(names, signature, "salu")


def instruction(names: str, klass: str) -> Callable[[Callable], Callable]:
    """Register a builder for each of the blank-separated ``names``."""

    def register(build: Callable) -> Callable:
        for name in names.split():
            _add(name, Builder(name, build, klass))
        return build

    return register


def find(mnemonic: str, arch: str) -> tuple[Op | Builder | None, str]:
    """The op of a mnemonic on ``arch``, and its encoding: ``""``, ``e32``, ``e64``, ``sdwa`` or ``dpp``."""
    if entry := _entry(mnemonic, arch):
        return entry, ""
    base, _, encoding = mnemonic.rpartition("_")
    if encoding == "dpp" and base.endswith("_e64"):
        base = base.removesuffix("_e64")
    if encoding in ("e32", "e64", "sdwa", "dpp"):
        return _entry(base, arch), encoding
    return None, ""


def _entry(name: str, arch: str) -> Op | Builder | None:
    return TABLE.get(name) or TABLE.get(f"{name}@{arch}")


def _alu(
    names: str,
    signature: str,
    klass: str,
    packed: bool = False,
    keeps_high: bool = False,
    saturated: Function | None = None,
    mixed: bool = False,
) -> Callable[[Function], Function]:
    results, _, sources = signature.partition("=")

    def register(function: Function) -> Function:
        for name in names.split():
            _add(
                name,
                Op(
                    name,
                    function,
                    tuple(results.split()),
                    tuple(sources.split()),
                    klass,
                    packed,
                    keeps_high,
                    saturated,
                    mixed,
                ),
            )
        return function

    return register


def _add(name: str, entry: Op | Builder) -> None:
    assert name not in TABLE, f"{name} is registered twice"  # sanity check
    TABLE[name] = entry
