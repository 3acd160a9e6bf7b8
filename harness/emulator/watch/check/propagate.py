"""Propagation of undefined bits through ALU instructions: a ``Flow`` for each instruction, made while decoding.

The getters and setters of ``build`` are used for the undefined bits as well, so that every encoding (SDWA, DPP, packed
halves, op_sel) means the same for them as for the values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from harness.emulator.listing.instructions import Instruction
from harness.emulator.operations.table import Chain, Op, Undefined
from harness.emulator.program import build
from harness.emulator.program.decode import Decoded
from harness.emulator.watch.check import report
from harness.emulator.watch.check import shadow as registers
from harness.emulator.watch.check.rules import UNSIGNED, Rule, rule_of
from harness.emulator.watch.check.shadow import Shadow
from harness.emulator.wavefront import dpp
from harness.emulator.wavefront.operands import Operand, result_key
from harness.emulator.wavefront.state import DTYPES, EXEC, SCALAR, Wavefronts, key, pack

Getter = Callable[[Wavefronts], np.ndarray]
Setter = Callable[[Wavefronts, np.ndarray], None]
Pairs = list[tuple[str, Any]]
_EXEC64 = key(SCALAR, EXEC, "u64")
_EXEC = registers.scalars(EXEC, 2)
_OUTPUT = {"clamp", "mul", "div"}


@dataclass(frozen=True)
class Flow:
    """Effect of one instruction on the undefined bits. ``reads`` and ``writes`` are sets of registers.

    ``spread(wf, shadow)`` runs before the instruction, when a register that it reads or writes may be undefined.
    ``everywhere``: the vector registers that it reads or writes in inactive lanes too. ``keeps``: registers of which it
    writes a part only. ``first_lane``: with no active lane, it reads lane 0. ``any_register``: its operands do not
    determine its registers. ``high``: a vector register, the upper half of a term of a 64-bit sum, and the results that
    are undefined if it is: the lower half of the sum is not among them.
    """

    reads: int
    writes: int
    spread: Callable[[Wavefronts, Shadow], None]
    everywhere: int = 0
    keeps: int = 0
    first_lane: bool = False
    any_register: bool = False
    high: tuple[int, int] | None = None


@dataclass(frozen=True)
class _Call:
    """One call of the op's function: getters of the undefined bits and of the values, setters of the undefined bits."""

    bits: list[Getter]
    values: list[Getter]
    put: list[Setter]
    move: dpp.Control | None = None


def alu(decoded: Decoded) -> Flow:
    """Return the flow of an op of the table."""
    op, instruction = decoded.entry, decoded.instruction
    assert isinstance(op, Op)  # sanity check
    modifiers = tuple(instruction.modifiers.items())
    flow, spread, decides = _flow(op, decoded.encoding, instruction.operands, modifiers, decoded.accum_offset)
    return replace(flow, spread=partial(spread, instruction=instruction)) if decides else flow


@lru_cache(maxsize=1 << 16)
def _flow(
    op: Op, encoding: str, operands: tuple[str, ...], modifiers: tuple[tuple[str, str], ...], accum_offset: int
) -> tuple[Flow, Callable[..., None], bool]:
    """Return the flow, which has no state: most instructions of a kernel are in others too. Also its ``spread``, which
    takes the instruction as a third argument, and whether it needs it, since the flow decides which lanes are active.

    The calls are made when a bit is undefined for the first time, since most instructions never do.
    """
    alike = Instruction(0, 0, "", op.name, operands, dict(modifiers), ())
    results, sources = build._operands(op, alike, accum_offset)
    reads, writes = (_named(pairs) & ~_EXEC for pairs in (sources, results))
    decides = any(kind == "exec" or registers.registers(operand) & _EXEC for kind, operand in results)
    # For each result, whether its whole register is written in the active lanes.
    whole = encoding not in ("sdwa", "dpp") and not (
        op.packed or op.mixed or op.keeps_high or "op_sel" in alike.modifiers
    )
    made: tuple[list[_Call], Rule] | None = None

    def spread(wf: Wavefronts, shadow: Shadow, instruction: Instruction = alike) -> None:
        nonlocal made
        defined = not shadow.dirty & reads
        if defined and whole:
            shadow.define_all(wf, writes)
            return
        if made is None:
            scalar = op.klass == "salu"
            calls = _scalar_calls(results, sources) if scalar else _calls(op, encoding, alike, results, sources)
            made = calls, rule_of(op, bool(alike.modifiers.keys() & _OUTPUT))
        calls, rule = made
        bits = shadow.aligned(wf)
        outcomes: list[list[np.ndarray] | None] = []
        for call in calls:
            undefined = [] if defined else [get(bits) for get in call.bits]
            if not any(each.any() for each in undefined):
                outcomes.append(None)
                continue
            values = [get(wf) for get in call.values]
            if call.move is not None:
                for arrays in (undefined, values):
                    arrays[0], _ = call.move.apply(np.broadcast_to(arrays[0], wf.exec_mask.shape), wf.exec_mask)
            outcomes.append(rule(undefined, values))
        for call, outcome in zip(calls, outcomes, strict=True):
            if call.move is not None:
                bits.exec_mask, bits.exec_all = call.move.apply(wf.exec_mask, wf.exec_mask)[1], False
            for i, put in enumerate(call.put):
                put(bits, _zeros(wf, results[i][0], op) if outcome is None else outcome[i])
        if decides and any(outcome is not None for outcome in outcomes):
            _check_exec(wf, bits, instruction)
        shadow.settle(writes)

    # A lane move reads other lanes, which may be inactive.
    moved = registers.EVERY_VECTOR & reads if encoding == "dpp" else 0
    keeps = 0 if whole or _fills(op, encoding, alike.modifiers) else writes
    flow = Flow(reads, writes, spread, moved, keeps, high=None if keeps or moved else _high(op, results, sources))
    return flow, spread, decides


def _high(op: Op, results: Pairs, sources: Pairs) -> tuple[int, int] | None:
    """Return ``Flow.high`` of a product of 32 bits plus a term of 64."""
    if op.undefined != Undefined("upward") or isinstance(op.function, Chain) or len(sources) != 3:
        return None
    (kind, total), (wide, term) = results[0], sources[2]
    narrow = all(DTYPES[UNSIGNED.get(each, each)].itemsize == 4 for each, _ in sources[:2])
    if UNSIGNED.get(kind, kind) != "u64" or UNSIGNED.get(wide, wide) != "u64" or not narrow or total is None:
        return None
    if term is None or term.space != "v" or total.space != "v":
        return None
    low = registers.vectors(total.register)
    return term.register + 1, _named(results) & ~low


def _fills(op: Op, encoding: str, modifiers: dict[str, str]) -> bool:
    """Return whether an instruction that is not written in one piece writes its whole result in the active lanes."""
    if encoding == "sdwa":
        return modifiers.get("dst_unused", "UNUSED_PAD") != "UNUSED_PRESERVE" or modifiers.get("dst_sel") == "DWORD"
    if encoding == "dpp":
        move = dpp.control(modifiers)
        return bool(move.enabled.all()) and move.zero_invalid and not op.keeps_high
    return op.packed or (op.mixed and op.results == ("f32",))


def _named(pairs: Pairs) -> int:
    """Return the set of registers of operands with their kinds."""
    names = 0
    for kind, operand in pairs:
        names |= registers.SCC if kind == "scc" else registers.registers(operand)
    return names


def _check_exec(wf: Wavefronts, bits: Wavefronts, instruction: Instruction) -> None:
    bad = bits.view[_EXEC64]
    if bad.any():
        wave = int(np.flatnonzero(bad)[0])
        lane = (int(bad[wave]) & -int(bad[wave])).bit_length() - 1
        bad[...] = 0
        report.undefined(wf, instruction, 64 * wave + lane, "which lanes are active depends on an undefined value")


def _zeros(wf: Wavefronts, kind: str, op: Op) -> np.ndarray:
    if op.klass == "salu":
        return np.zeros(len(wf), np.bool_ if kind in ("scc", "exec") else DTYPES[UNSIGNED.get(kind, kind)])
    if kind in ("mask", "exec", "vcc"):
        return np.zeros(wf.exec_mask.shape, np.bool_)
    return np.zeros((len(wf), 1), DTYPES[UNSIGNED.get(kind, kind)])


# -- scalar instructions -----------------------------------------------------------------------------------------------


def _scalar_calls(results: Pairs, sources: Pairs) -> list[_Call]:
    bits, values, put = [], [], []
    for kind, operand in sources:
        k = build._key(kind, operand, True)
        values.append(_viewer(k))
        constant = kind in ("exec", "imm", "uimm") or (operand is not None and operand.space == "const")
        constant |= operand is not None and operand.space == "s" and operand.register == EXEC
        bits.append(_constant(kind) if constant else _unsigned(_viewer(k)))
    for kind, operand in results:
        plain = kind if kind in ("scc", "exec") else UNSIGNED.get(kind, kind)
        put.append(_assign(build._scalar_result(plain, operand)))
    return [_Call(bits, values, put)]


def _viewer(k: int) -> Getter:
    return lambda wf: wf.view[k]


def _assign(k: int) -> Setter:
    def put(wf: Wavefronts, value: np.ndarray) -> None:
        wf.view[k][...] = value

    return put


def _constant(kind: str) -> Getter:
    boolean = kind in ("mask", "exec", "scc", "vcc")
    # An implicit operand that is not a register, such as the float mode, counts as a constant.
    zero = np.zeros((), np.bool_ if boolean else DTYPES.get(UNSIGNED.get(kind, kind), np.uint32))
    return lambda wf: zero


def _unsigned(get: Getter) -> Getter:
    def bits(wf: Wavefronts) -> np.ndarray:
        value = get(wf)
        return value if value.dtype == np.bool_ else value.view(f"u{value.dtype.itemsize}")

    return bits


# -- vector instructions: as ``build`` makes them ----------------------------------------------------------------------


def _calls(op: Op, encoding: str, instruction: Instruction, results: Pairs, sources: Pairs) -> list[_Call]:
    modifiers = instruction.modifiers
    if op.packed:
        return _packed(instruction, results, sources)
    if encoding == "sdwa":
        picks = [modifiers.get(f"src{i}_sel", "DWORD") for i in range(len(sources))]
        getters = [lambda t, o, pick=pick: build._sdwa_source(t, o, pick) for pick in picks]
        select, unused = modifiers.get("dst_sel", "DWORD"), modifiers.get("dst_unused", "UNUSED_PAD")
        put = [_result(t, o) if t in ("mask", "exec") or o.space == "s"
               else build._sdwa_result(UNSIGNED.get(t, t), o, select, unused) for t, o in results]  # fmt: skip
        return [_call(sources, getters, put)]
    if op.mixed:
        put = [build._mixed_result(replace(op, name=op.name), (UNSIGNED.get(t, t), o)) for t, o in results]
        high = build._bits(modifiers.get("op_sel", ""), len(sources))
        narrow = build._bits(modifiers.get("op_sel_hi", ""), len(sources))
        kinds = [("hf16" if high[i] else "f16") if narrow[i] else "f32" for i in range(len(sources))]
        return [_call([(k, o) for k, (_, o) in zip(kinds, sources, strict=True)], [build._source] * len(sources), put)]
    if encoding == "dpp":
        move = dpp.control(modifiers)
        put = [_result(t, o, op.keeps_high) for t, o in results]
        return [replace(_call(sources, [build._source] * len(sources), put), move=move)]
    # op_sel: a bit for each written source, then one for the result.
    count = len(instruction.operands) - len(results)
    high = build._bits(modifiers.get("op_sel", ""), count + 1) + [False] * len(sources)
    kinds = [build._half(t, high[i] and i < count) if t in build._HIGH else t for i, (t, _) in enumerate(sources)]
    put = [_result(build._half(t, high[count]) if t in build._HIGH else t, o, op.keeps_high) for t, o in results]
    return [_call([(k, o) for k, (_, o) in zip(kinds, sources, strict=True)], [build._source] * len(sources), put)]


def _call(sources: Pairs, getters: list[Callable[..., Getter]], put: list[Setter]) -> _Call:
    bits, values = [], []
    for (kind, operand), get in zip(sources, getters, strict=True):
        values.append(get(kind, operand))
        known = operand is None or operand.space == "const" or (operand.space == "s" and operand.register == EXEC)
        if known and kind != "scc":
            bits.append(_constant(kind))
        else:
            plain = operand and replace(operand, negate=False, absolute=False)
            bits.append(_unsigned(get(kind, plain)))
    return _Call(bits, values, put)


def _result(kind: str, operand: Operand | None, keeps_high: bool = False) -> Setter:
    """Like ``build._result``, but EXEC receives the bits unchanged, to be checked and removed again."""
    if kind == "exec" or (kind == "mask" and operand is not None and operand.register == EXEC):

        def put(wf: Wavefronts, value: np.ndarray) -> None:
            wf.view[_EXEC64][...] = pack(np.broadcast_to(value, wf.exec_mask.shape) & wf.exec_mask)

        return put
    if kind == "mask":
        assert operand is not None  # sanity check
        k = result_key(operand, "u64")

        def put_mask(wf: Wavefronts, value: np.ndarray) -> None:
            wf.view[k][...] = pack(np.broadcast_to(value, wf.exec_mask.shape) & wf.exec_mask)

        return put_mask
    return build._result(UNSIGNED.get(kind, kind), operand, keeps_high)


def _packed(instruction: Instruction, results: Pairs, sources: Pairs) -> list[_Call]:
    modifiers, count = instruction.modifiers, len(sources)
    low = build._bits(modifiers.get("op_sel", ""), count)
    high = build._bits(modifiers.get("op_sel_hi", ""), count, default=True)
    kind, operand = results[0][0], build._operand(results[0])
    narrow = DTYPES[kind].itemsize == 2
    calls = []
    for half, pick in enumerate((low, high)):
        getters = [lambda t, o, up=up: build._packed_source(t, o, up, False) for up in pick]
        if narrow:
            put = build._result("h16" if half else "u16", operand, keeps_high=True)
        else:
            put = build._result("u32", replace(operand, register=operand.register + half, count=1))
        calls.append(_call(sources, getters, [put]))
    return calls
