"""The instruction table: maps a mnemonic to a small function.

A vector or scalar ALU instruction is a pure function on arrays with a signature, results first::

    @vector("v_and_or_b32", "u32 = u32 u32 u32")
    def and_or(a, b, c):
        return (a & b) | c

    vector("v_add_u32", "u32 = u32 u32")(np.add)          # a ufunc writes its result in place

The same function is compiled by calling it with symbolic arrays (``harness.emulator.program.compiled``). So it is pure,
uses operators, ufuncs, ``astype``, ``view`` and ``np.where`` rather than ``np.asarray`` or a Python branch on data, and
calls ``any()`` and ``all()`` only to take a shortcut: compiling assumes True and False for them. A function that uses
operations unknown to symbolic arrays stays interpreted.

Types are those of ``state.TYPES`` and, in a signature, ``mask`` (one bit per lane: VCC or a scalar pair, passed as
bool[W, 64]), ``scc``, ``exec``, ``vcc`` and ``mode`` (implicit operands), ``imm`` (a sign-extended 16-bit immediate)
and, as a source, ``@f32`` (the destination's old value) and ``%bitop3`` (the number given by that modifier; for
``op_sel`` its bits, which then select no halves). The suffixes ``_e32 _e64 _sdwa _dpp`` are encodings, which ``build``
handles for every op: an op is written once.

Anything else (memory, branches, cross-lane reads) is a builder, called once while decoding, that returns the step::

    @instruction("s_nop", klass="wait")
    def nop(instruction, context):
        return None

All facts about an op that other packages need are fields of its entry: how rounding and denormals apply to it, and for
mode ``check`` which bits of its result depend on undefined bits of its sources::

    vector("v_add_f32", "f32 = f32 f32", rounds="result")(np.add)
    vector("v_lshlrev_b32", "u32 = u32 u32", undefined=moves(0))(Shift(np.left_shift))

An opcode that only one arch has, or that has another meaning there, is registered under ``name@arch``::

    vector("v_cvt_f32_fp8@gfx942", "f32 = u32")(fnuz_to_float)
    vector("v_cvt_f32_fp8@gfx950", "f32 = u32")(ocp_to_float)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Step = Callable[[Any], None]
Function = Callable[..., Any]

KLASSES = ("salu", "valu", "smem", "vmem", "atomic", "lds", "branch", "barrier", "wait", "other")


@dataclass(frozen=True)
class Shift:
    """``value`` shifted by ``count``; the count comes first, as in the "rev" instructions, modulo the value's width.

    ``build`` runs the ufunc in place, and drops the modulo when the count is a constant.
    """

    ufunc: np.ufunc

    def __call__(self, count: np.ndarray, value: np.ndarray) -> np.ndarray:
        return self.ufunc(value, shift_count(count, value.dtype))


@dataclass(frozen=True)
class Select:
    """The second value where the mask is set, otherwise the first; ``build`` copies in place."""

    def __call__(self, if_clear: np.ndarray, if_set: np.ndarray, mask: np.ndarray) -> np.ndarray:
        return np.where(mask, if_set, if_clear)


@dataclass(frozen=True)
class Chain:
    """``second(first(a, b), c)``: the three-operand integer ops.

    ``count`` is the index (1 or 2) of the source that is a shift count, taken modulo ``modulo``. ``build`` runs the
    second ufunc in place, and only that one if the shift is a constant 0.
    """

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
    """Return ``count`` modulo the bits of ``dtype``, in that dtype."""
    return (count & count.dtype.type(8 * dtype.itemsize - 1)).astype(dtype, copy=False)


@dataclass(frozen=True)
class Undefined:
    """Rule of ``watch.check.rules`` for the undefined bits of an op's result, given those of its sources.

    ``control``: the sources that select where bits move to. ``bits``: how many low bits of the first two sources count,
    0 for all. ``first_shift``: places by which the first source is shifted left. ``byte``: the only byte that is read.
    """

    rule: str
    control: tuple[int, ...] = ()
    bits: int = 0
    first_shift: int = 0
    byte: int = 0


BITWISE, EQUALITY, HALVES, UPWARD = (Undefined(rule) for rule in ("bitwise", "equality", "halves", "upward"))


def moves(*control: int) -> Undefined:
    """Return the rule of an op that moves bits; the sources ``control`` select where to."""
    return Undefined("moves", control)


def upward(bits: int = 0, first_shift: int = 0) -> Undefined:
    """Return the rule of a sum or product of integers."""
    return Undefined("upward", bits=bits, first_shift=first_shift)


def byte(number: int) -> Undefined:
    """Return the rule of an op whose result depends on byte ``number`` of the source only."""
    return Undefined("byte", byte=number)


@dataclass(frozen=True)
class Op:
    """An ALU op: its function, result and source types, and whether it runs per lane or per wavefront.

    ``keeps_high``: a 16-bit result keeps the upper half of its register, which other ops clear. ``saturated``: the
    function of an integer op under ``clamp``. ``mixed``: op_sel_hi selects which sources are float16 halves.
    ``rounds``: the effect of MODE.FP_ROUND: on the "result", on "steps" inside the function (only nearest is
    implemented), or none. ``keeps_denormals``: denormal sources are not flushed in any mode. ``undefined``: None if one
    undefined bit of a source makes the whole result undefined. ``constants``: for each source
    "f16", "bf16" or "-", separated by blanks: the format of an inline float in it, if its type does not state it.
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
    rounds: str = ""
    keeps_denormals: bool = False
    undefined: Undefined | None = None
    constants: str = ""


@dataclass(frozen=True)
class Native:
    """The native function of a step and its parameters, int64 each; see ``native.steps``.

    ``keeps``: objects whose addresses are among the parameters. ``then``: a step with a native function, which follows.
    """

    function: Any
    parameters: tuple[int, ...]
    keeps: tuple[Any, ...] = ()
    then: Step | None = None


def with_native(
    step: Step, function: Any, *parameters: int, keeps: tuple[Any, ...] = (), then: Step | None = None
) -> Step:
    """Return ``step``, with a native function that translated code calls instead of it; ``then`` as in ``Native``."""
    step.native = Native(function, tuple(int(p) for p in parameters), keeps, then)  # type: ignore[attr-defined]
    return step


@dataclass(frozen=True)
class Builder:
    """Entry of an instruction that is not a pure function.

    ``build(instruction, context)``, called once when a listing is decoded, returns the step, a function that executes
    the instruction; or the ``access.Effect`` of a memory instruction; or None for no effect.
    """

    name: str
    build: Callable[..., Any]
    klass: str


TABLE: dict[str, Op | Builder] = {}


def vector(names: str, signature: str, **properties: Any) -> Callable[[Function], Function]:
    """Register a vector ALU op under each of the blank-separated ``names``. ``properties`` are fields of ``Op``.

    ``packed``: a VOP3P op, whose function is called once per 16-bit half (or per 32-bit register of a pair).
    """
    return _alu(names, signature, "valu", properties)


def scalar(names: str, signature: str, **properties: Any) -> Callable[[Function], Function]:
    """Register a scalar ALU op; its function gets arrays of shape [W], one value for each of W wavefronts.

    ``properties`` are fields of ``Op``.
    """
    return _alu(names, signature, "salu", properties)


def instruction(names: str, klass: str) -> Callable[[Callable], Callable]:
    """Register a builder for each of the blank-separated ``names``."""

    def register(build: Callable) -> Callable:
        for name in names.split():
            _add(name, Builder(name, build, klass))
        return build

    return register


def find(mnemonic: str, arch: str) -> tuple[Op | Builder | None, str]:
    """Return the op of a mnemonic on ``arch``, and its encoding: ``""``, ``e32``, ``e64``, ``sdwa`` or ``dpp``."""
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


def _alu(names: str, signature: str, klass: str, properties: Mapping[str, Any]) -> Callable[[Function], Function]:
    results, _, sources = signature.partition("=")

    def register(function: Function) -> Function:
        for name in names.split():
            _add(name, Op(name, function, tuple(results.split()), tuple(sources.split()), klass, **properties))
        return function

    return register


def _add(name: str, entry: Op | Builder) -> None:
    assert name not in TABLE, f"{name} is registered twice"  # sanity check
    TABLE[name] = entry
