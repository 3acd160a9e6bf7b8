"""Builds a step from an ALU instruction and its op: a closure that executes it for all wavefronts at that instruction.

Everything that the encodings add is handled here, for every op alike: EXEC, constants, input modifiers (neg, abs,
sext), output modifiers (clamp, omod), SDWA selects, DPP lane moves, packed halves. The plain form, a NumPy ufunc on
registers, runs in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.listing.instructions import Instruction
from harness.emulator.operations.table import Op, Step
from harness.emulator.program import inplace, modes
from harness.emulator.wavefront import dpp, operands
from harness.emulator.wavefront.operands import Operand, constant_word, result_key, source_key
from harness.emulator.wavefront.state import (
    DTYPES,
    DX10_CLAMP,
    EXEC,
    IEEE,
    SCALAR,
    SCC,
    VECTOR,
    Wavefronts,
    constant_key,
    key,
    pack,
    unpack,
)

Getter = Callable[[Wavefronts], np.ndarray]
Setter = Callable[[Wavefronts, np.ndarray], None]
_IMPLICIT = ("scc", "exec", "vcc", "mode")
_HIGH = {"u16": "h16", "i16": "hi16", "f16": "hf16"}
_OUTPUT = {"clamp", "mul", "div"}
_ACCEPTED = {
    "packed": {"op_sel", "op_sel_hi", "neg_lo", "neg_hi"} | _OUTPUT,
    "mixed": {"op_sel", "op_sel_hi"} | _OUTPUT,
    "sdwa": {"src0_sel", "src1_sel", "dst_sel", "dst_unused"} | _OUTPUT,
    "dpp": dpp.MODIFIERS | _OUTPUT,
}


def build(op: Op, encoding: str, instruction: Instruction, accum_offset: int, varying: int = 0) -> Step:
    """Return the step of an ALU instruction; ``UnimplementedInstruction`` for an unsupported operand form.

    ``varying``: the bits of MODE that the kernel may set to other values than ``modes.USUAL``.
    """
    plain = _build(op, encoding, instruction, accum_offset, modes.USUAL)
    relevant = 0 if op.klass == "salu" else varying & modes.matters(op, instruction.modifiers)
    if not relevant:
        return plain
    steps = {modes.USUAL: plain}

    def step(wf: Wavefronts) -> None:
        mode = modes.current(wf) & relevant | modes.USUAL & ~relevant
        if mode not in steps:
            steps[mode] = _build(modes.applied(op, mode), encoding, instruction, accum_offset, mode)
        steps[mode](wf)

    return step


def _build(op: Op, encoding: str, instruction: Instruction, accum_offset: int, mode: int) -> Step:
    results, sources = _operands(op, instruction, accum_offset)
    if op.klass == "salu":
        return _scalar(op, results, sources)
    form = "packed" if op.packed else "mixed" if op.mixed else encoding
    read = {t[1:] for t in op.sources if t[0] == "%"}
    unknown = instruction.modifiers.keys() - _ACCEPTED.get(form, {"op_sel"} | _OUTPUT) - read
    if unknown:
        raise UnimplementedInstruction(f"{op.name} with modifiers {sorted(unknown)} is not implemented")
    function, after = _output(op, instruction, results[0][0], mode)
    if op.packed:
        return _packed(function, after, instruction, results, sources)
    if encoding == "dpp":
        return _dpp(op, function, after, instruction, results, sources)
    if encoding == "sdwa":
        return _general(function, _sdwa_sources(instruction, sources), _sdwa_setters(instruction, results), after)
    if op.mixed:
        return _general(function, _mixed_sources(instruction, sources), [_mixed_result(op, results[0])], after)
    # For an op that reads op_sel itself, op_sel selects no halves.
    selects = "" if "op_sel" in read else instruction.modifiers.get("op_sel", "")
    select = _bits(selects, len(sources) + 1)
    if after is None and not any(select) and (step := inplace.step(function, results, sources)):
        return step
    count = len(instruction.operands) - len(results)
    getters = [_source(_half(t, select[i] and i < count), o) for i, (t, o) in enumerate(sources)]
    setters = [_result(_half(t, select[count]), o, op.keeps_high) for t, o in results]
    return _general(function, getters, setters, after)


def _operands(op: Op, instruction: Instruction, accum_offset: int) -> tuple[list, list]:
    """Return results and sources as (type, operand), including the implicit ones.

    ``@type`` reads the destination, ``%name`` is the number given by a modifier, ``vcc`` a mask.
    """
    explicit = [t for t in op.results + op.sources if t not in _IMPLICIT and t[0] not in "@%"]
    if len(explicit) != len(instruction.operands):
        raise UnimplementedInstruction(
            f"the emulator has {op.name} with {len(explicit)} operands only, got {len(instruction.operands)}"
        )
    parsed = iter(operands.parse(text, accum_offset) for text in instruction.operands)

    def pair(kind: str) -> tuple[str, Operand | None]:
        if kind == "vcc":
            return "mask", operands.parse("vcc")
        if kind == "mode":
            return "u32", operands.parse("mode")
        if kind[0] == "@":
            return kind[1:], _operand(results[0])
        if kind[0] == "%":
            return "u32", Operand(kind, "const", value=_number(instruction.modifiers.get(kind[1:], "0")))
        return kind, None if kind in _IMPLICIT else next(parsed)

    results = [pair(t) for t in op.results]
    sources = [pair(t) for t in op.sources]
    for i, form in enumerate(op.constants.split()):
        kind, operand = sources[i]
        if form != "-":
            sources[i] = kind, operands.with_format(_operand((kind, operand)), form)
    return results, sources


def _number(text: str) -> int:
    """Return the value of a modifier: a number, or a list of bits, the lowest first."""
    return sum(1 << i for i, bit in enumerate(_bits(text, 0)) if bit) if text.startswith("[") else int(text, 0)


def _operand(pair: tuple[str, Operand | None]) -> Operand:
    assert pair[1] is not None  # sanity check
    return pair[1]


# -- scalar instructions: arrays of shape [W] --------------------------------------------------------------------------


def _scalar(op: Op, results: list, sources: list) -> Step:
    keys = [_key(t, o, True) for t, o in sources]
    out = [_scalar_result(t, o) for t, o in results]
    writes_exec = any(k >> 4 & 0x3FF in (EXEC, EXEC + 1) for k in out if k != SCC)
    function = op.function
    if len(out) == 1 and isinstance(function, np.ufunc) and len(keys) == 2 and out[0] != SCC:
        (k,), (a, b) = out, keys

        def binary(wf: Wavefronts) -> None:
            view = wf.view
            function(view[a], view[b], view[k])

        step: Step = binary
    elif len(out) == 1:
        (k,) = out

        def single(wf: Wavefronts) -> None:
            view = wf.view
            view[k][...] = function(*[view[a] for a in keys])

        step = single
    else:

        def several(wf: Wavefronts) -> None:
            view = wf.view
            for k, value in zip(out, function(*[view[a] for a in keys]), strict=True):
                view[k][...] = value

        step = several
    if not writes_exec:
        return step

    def then_refresh(wf: Wavefronts) -> None:
        step(wf)
        wf.refresh_exec()

    return then_refresh


def _scalar_result(kind: str, operand: Operand | None) -> int:
    if kind == "scc":
        return SCC
    if kind == "exec":
        return key(SCALAR, EXEC, "u64")
    assert operand is not None  # sanity check
    if operand.space != "s":
        raise UnimplementedInstruction(f"a scalar result in {operand.text!r} is not implemented")
    return result_key(operand, kind)


def _key(kind: str, operand: Operand | None, scalar: bool) -> int:
    if kind == "scc":
        return SCC
    if kind == "exec":
        return key(SCALAR, EXEC, "u64")
    assert operand is not None  # sanity check
    if kind in ("imm", "uimm"):
        value = int(operand.value) & 0xFFFF
        return constant_key(
            np.array(value, np.uint32) if kind == "uimm" else np.array(value - (value >> 15 << 16), np.int32)
        )
    return source_key(operand, kind, scalar)


# -- vector instructions: arrays of shape [W, 64] ----------------------------------------------------------------------


def _general(
    function: Callable, getters: Sequence[Getter], setters: Sequence[Setter], after: Callable | None = None
) -> Step:
    if len(setters) == 1:
        (put,) = setters
        if after is None:

            def single(wf: Wavefronts) -> None:
                put(wf, function(*[get(wf) for get in getters]))

            return single

        def modified(wf: Wavefronts) -> None:
            put(wf, after(function(*[get(wf) for get in getters])))

        return modified
    if after is not None:
        raise UnimplementedInstruction("an output modifier on an instruction with two results is not implemented")

    def several(wf: Wavefronts) -> None:
        values = function(*[get(wf) for get in getters])
        for put, value in zip(setters, values, strict=True):
            put(wf, value)

    return several


def _source(kind: str, operand: Operand | None) -> Getter:
    if kind == "mask":
        assert operand is not None  # sanity check
        if operand.space == "const":
            value = np.array(bool(operand.value))
            return lambda wf: value
        k = source_key(operand, "u64", True)
        if operand.register == EXEC:
            return lambda wf: wf.exec_mask
        return lambda wf: unpack(wf.view[k])
    if kind == "exec":
        return lambda wf: wf.exec_mask
    k = _key(kind, operand, False)
    if operand is None or not (operand.negate or operand.absolute):
        return lambda wf: wf.view[k]
    return lambda wf: _modify(wf.view[k], operand)


def _modify(value: np.ndarray, operand: Operand) -> np.ndarray:
    """Apply abs, then neg, to the sign bit of the operand's own float format."""
    bits = value.view(np.dtype(f"u{value.dtype.itemsize}"))
    sign = bits.dtype.type(1 << (8 * value.dtype.itemsize - 1))
    if operand.absolute:
        bits = bits & ~sign
    if operand.negate:
        bits = bits ^ sign
    return bits.view(value.dtype)


def _result(kind: str, operand: Operand | None, keeps_high: bool = False) -> Setter:
    if kind == "exec":

        def set_exec(wf: Wavefronts, value: np.ndarray) -> None:
            wf.view[key(SCALAR, EXEC, "u64")][...] = pack(value & wf.exec_mask)
            wf.refresh_exec()

        return set_exec
    assert operand is not None  # sanity check
    if kind == "mask":
        k = result_key(operand, "u64")

        def set_mask(wf: Wavefronts, value: np.ndarray) -> None:
            # Disabled lanes are 0 in the mask of a comparison or carry.
            wf.view[k][...] = pack(value if wf.exec_all and value.shape == wf.exec_mask.shape else value & wf.exec_mask)

        def set_exec_mask(wf: Wavefronts, value: np.ndarray) -> None:
            set_mask(wf, value)
            wf.refresh_exec()

        return set_exec_mask if operand.register == EXEC else set_mask
    if operand.space == "s":
        k = result_key(operand, kind)

        def set_scalar(wf: Wavefronts, value: np.ndarray) -> None:
            wf.view[k][...] = value

        return set_scalar
    narrow = DTYPES[kind].itemsize == 2
    # A 16-bit result clears the upper half on gfx9, unless op_sel sends it there (LLVM GCNSubtarget,
    # zeroesHigh16BitsOfDest).
    high = kind in _HIGH.values()
    k = result_key(operand, "h16" if high else "u16" if narrow and keeps_high else "u32" if narrow else kind)

    def set_lanes(wf: Wavefronts, value: np.ndarray) -> None:
        if narrow:
            value = value.view(np.uint16)
        if wf.exec_all:
            wf.view[k][...] = value
        else:
            np.copyto(wf.view[k], value, where=wf.exec_mask)

    return set_lanes


def _half(kind: str, high: bool) -> str:
    if not high:
        return kind
    if kind not in _HIGH:
        raise UnimplementedInstruction(f"op_sel on an operand of type {kind} is not implemented")
    return _HIGH[kind]


def _bits(text: str, count: int, default: bool = False) -> list[bool]:
    bits = [b.strip() == "1" for b in text.strip("[]").split(",")] if text else []
    return bits + [default] * (count - len(bits))


def _output(op: Op, instruction: Instruction, kind: str, mode: int) -> tuple[Callable, Callable | None]:
    """Return the function to call, and the output modifiers to apply to its result: omod, then clamp.

    clamp limits floats to [0, 1]; integers saturate. omod does nothing with MODE.IEEE or where results may be denormal
    (LLVM SIFoldOperands, isOMod).
    """
    modifiers = instruction.modifiers
    if not modifiers.keys() & _OUTPUT:
        return op.function, None
    if op.saturated is not None and not modifiers.keys() & {"mul", "div"}:
        return op.saturated, None
    if kind not in ("f16", "f32", "f64"):
        raise UnimplementedInstruction(f"{op.name}: an output modifier on a result of type {kind} is not implemented")
    dtype = DTYPES[kind].type
    scale = dtype(
        float(modifiers["mul"]) if "mul" in modifiers else 1 / float(modifiers["div"]) if "div" in modifiers else 1
    )
    if mode & IEEE or not modes.flushes_results(mode, kind):
        scale = dtype(1)
    clamp = "clamp" in modifiers
    of_nan = dtype(0 if mode & DX10_CLAMP else np.nan)

    def after(value: np.ndarray) -> np.ndarray:
        value = value * scale if scale != 1 else value
        return np.where(np.isnan(value), of_nan, np.clip(value, dtype(0), dtype(1))) if clamp else value

    return op.function, after


# -- SDWA: each operand is a byte or word of its register --------------------------------------------------------------

_SELECT = {"DWORD": (0, 32), "WORD_0": (0, 16), "WORD_1": (16, 16), **{f"BYTE_{i}": (8 * i, 8) for i in range(4)}}


def _sdwa_sources(instruction: Instruction, sources: list) -> list[Getter]:
    return [_sdwa_source(t, o, instruction.modifiers.get(f"src{i}_sel", "DWORD")) for i, (t, o) in enumerate(sources)]


def _sdwa_source(kind: str, operand: Operand, select: str) -> Getter:
    if kind == "mask":
        return _source(kind, operand)
    if operand.space == "const":  # its bits depend on the type of the operation, and are then selected from
        operand = replace(operand, value=constant_word(operand, kind))
    k = source_key(operand, "u32", False)
    shift, bits = _SELECT[select]
    dtype = DTYPES[kind]

    def get(wf: Wavefronts) -> np.ndarray:
        word = wf.view[k]
        if bits < 32:
            word = word >> np.uint32(shift) & np.uint32((1 << bits) - 1)
            if operand.sext:
                word = (word << np.uint32(32 - bits)).view(np.int32) >> np.int32(32 - bits)
                word = word.view(np.uint32)
        value = word.astype(np.uint16).view(dtype) if dtype.itemsize == 2 else word.view(dtype)
        return _modify(value, operand) if operand.negate or operand.absolute else value

    return get


def _sdwa_setters(instruction: Instruction, results: list) -> list[Setter]:
    select = instruction.modifiers.get("dst_sel", "DWORD")
    unused = instruction.modifiers.get("dst_unused", "UNUSED_PAD")
    whole = ("mask", "u64")  # these types have no byte or word to select
    return [_result(t, o) if t in whole else _sdwa_result(t, o, select, unused) for t, o in results]


def _sdwa_result(kind: str, operand: Operand, select: str, unused: str) -> Setter:
    shift, bits = _SELECT[select]
    k = result_key(operand, "u32")
    field = np.uint32(((1 << bits) - 1) << shift)

    def put(wf: Wavefronts, value: np.ndarray) -> None:
        word = value.view(np.uint16).astype(np.uint32) if DTYPES[kind].itemsize == 2 else value.view(np.uint32)
        if bits < 32:
            word = (word << np.uint32(shift)) & field
            if unused == "UNUSED_PRESERVE":
                word = word | (wf.view[k] & ~field)
            elif unused == "UNUSED_SEXT":
                word = ((word << np.uint32(32 - shift - bits)).view(np.int32) >> np.int32(32 - shift - bits)).view(
                    np.uint32
                )
        if wf.exec_all:
            wf.view[k][...] = word
        else:
            np.copyto(wf.view[k], word, where=wf.exec_mask)

    return put


# -- DPP: source 0 comes from another lane -----------------------------------------------------------------------------


def _dpp(
    op: Op, function: Callable, after: Callable | None, instruction: Instruction, results: list, sources: list
) -> Step:
    control = dpp.control(instruction.modifiers)
    (first_kind, first_operand), *others = sources
    # neg and abs of source 0 apply to the moved value; a lane that receives 0 for a missing one gets -0 by neg.
    assert first_operand is not None  # sanity check
    first = _source(first_kind, replace(first_operand, negate=False, absolute=False))
    rest = [_source(t, o) for t, o in others]
    setters = [_result(t, o, op.keeps_high) for t, o in results]
    modified = first_operand.negate or first_operand.absolute

    def step(wf: Wavefronts) -> None:
        # Read the whole source before writing: source and destination may be the same register.
        moved, write = control.apply(np.broadcast_to(first(wf), wf.exec_mask.shape), wf.exec_mask)
        value = function(_modify(moved, first_operand) if modified else moved, *[get(wf) for get in rest])
        value = after(value) if after else value
        saved = wf.exec_mask, wf.exec_all
        wf.exec_mask, wf.exec_all = write, False
        try:
            for put, part in zip(setters, value if len(setters) > 1 else (value,), strict=True):
                put(wf, part)
        finally:
            wf.exec_mask, wf.exec_all = saved

    return step


# -- VOP3P: both halves at once ----------------------------------------------------------------------------------------


def _packed(function: Callable, after: Callable | None, instruction: Instruction, results: list, sources: list) -> Step:
    """Return the step of a packed op.

    op_sel picks the half of each source for the low result, op_sel_hi for the high one; neg_lo and neg_hi flip signs.
    """
    modifiers = instruction.modifiers
    count = len(sources)
    low = _bits(modifiers.get("op_sel", ""), count)
    high = _bits(modifiers.get("op_sel_hi", ""), count, default=True)
    neg = _bits(modifiers.get("neg_lo", ""), count), _bits(modifiers.get("neg_hi", ""), count)
    kind, operand = results[0][0], _operand(results[0])
    halves = []
    for pick, negate in ((low, neg[0]), (high, neg[1])):
        halves.append([_packed_source(t, o, pick[i], negate[i]) for i, (t, o) in enumerate(sources)])
    narrow = DTYPES[kind].itemsize == 2
    keys = (
        [result_key(operand, "u16"), result_key(operand, "h16")]
        if narrow
        else [key(VECTOR, operand.register, kind), key(VECTOR, operand.register + 1, kind)]
    )

    def step(wf: Wavefronts) -> None:
        values = [function(*[get(wf) for get in getters]) for getters in halves]
        for k, value in zip(keys, values, strict=True):
            value = after(value) if after else value
            value = value.view(np.uint16) if narrow else value
            if wf.exec_all:
                wf.view[k][...] = value
            else:
                np.copyto(wf.view[k], value, where=wf.exec_mask)

    return step


def _packed_source(kind: str, operand: Operand, high: bool, negate: bool) -> Getter:
    flipped = replace(operand, negate=operand.negate != negate)
    narrow = DTYPES[kind].itemsize == 2
    if operand.space == "const" and not narrow:
        if high and operand.value != 0:
            raise UnimplementedInstruction(f"op_sel_hi on the constant {operand.text} is not implemented")
        return _source(kind, flipped)
    if narrow:
        return _source(_half(kind, high), flipped)
    return _source(kind, replace(flipped, register=operand.register + high, count=1))


# -- mixed precision: each source is a float32 or half of a register ---------------------------------------------------


def _mixed_sources(instruction: Instruction, sources: list) -> list[Getter]:
    """Return the sources: op_sel_hi selects which of them are float16, op_sel which half they use."""
    high = _bits(instruction.modifiers.get("op_sel", ""), len(sources))
    narrow = _bits(instruction.modifiers.get("op_sel_hi", ""), len(sources))
    return [_mixed_source(operand, narrow[i], high[i]) for i, (_, operand) in enumerate(sources)]


def _mixed_source(operand: Operand, narrow: bool, high: bool) -> Getter:
    if not narrow:
        if operand.space == "const" and isinstance(operand.value, float):
            # LLVM's assembler takes it for a half, and LLVM never writes it: whether the hardware widens it is open.
            raise UnimplementedInstruction(f"the inline constant {operand.text} as a float32 is not implemented")
        return _source("f32", operand)
    get = _source(_half("f16", high), operand)
    return lambda wf: get(wf).astype(np.float32)


def _mixed_result(op: Op, result: tuple[str, Operand | None]) -> Setter:
    kind, operand = result
    return _result("hf16" if op.name.startswith("v_fma_mixhi") else kind, operand, keeps_high=True)
