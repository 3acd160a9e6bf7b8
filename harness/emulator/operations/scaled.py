"""Conversions that scale by a power of two, ``v_cvt_scalef32_*``, and that round stochastically, ``v_cvt_sr_*``.

Source: CDNA4 ISA, VOP3 (V_CVT_SCALEF32_*, V_CVT_SR_*). The scale is the exponent field of a float32: narrow = wide /
2**(e - 127), wide = narrow * 2**(e - 127). A scale with the exponent of NaN gives NaN. op_sel selects the byte or half
of the source, and of the destination, whose other part is kept.

Stochastic rounding adds a fraction of the last place, the random number divided by 2**32, and truncates. The manual
adds its upper bits to the mantissa, which is the same for normal results; for denormal results it does not define
anything. With several results, each uses the next number of V_PRNG_B32.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from harness.emulator.operations.fp8 import FORMATS, Format, decode, encode, from_bf16, pair, saturates, to_bf16, to_f16
from harness.emulator.operations.table import instruction, vector
from harness.emulator.operations.vector import prng
from harness.emulator.wavefront.operands import result_key
from harness.emulator.wavefront.state import VECTOR, key

_U16, _U32 = np.uint16, np.uint32
_NARROW = {name: FORMATS[name, "gfx950"] for name in ("fp8", "bf8", "fp6", "bf6", "fp4")}


def power(scale: np.ndarray) -> np.ndarray:
    """Return the exponent of a scale, a float32."""
    return (scale.view(_U32) >> _U32(23) & _U32(0xFF)).astype(np.int32) - np.int32(127)


def scale_up(f: Format, codes: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Convert codes to float64."""
    by = power(scale)
    return np.where(by == 128, np.nan, np.ldexp(decode(f, codes).astype(np.float64), by))


def scale_down(f: Format, x: np.ndarray, scale: np.ndarray, mode: np.ndarray, random=None) -> np.ndarray:
    """Convert float32 or float64 to codes, uint32."""
    by = power(scale)
    scaled = np.where(by == 128, np.nan, np.ldexp(x.astype(np.float64), -by))
    return encode(f, scaled, saturates(mode), random)


def _from_f16(word):
    return word.astype(_U16).view(np.float16).astype(np.float32)


def _as_bf16(x, mode):
    return to_bf16(x.astype(np.float32))


# Reader of a wide value from a word's lower bits, and its constructor.
_READ: dict[str, Callable] = {
    "f32": lambda word: word.view(np.float32), "f16": _from_f16, "bf16": from_bf16
}  # fmt: skip
_MAKE: dict[str, Callable] = {
    "f32": lambda x, mode: x.astype(np.float32), "f16": lambda x, mode: to_f16(x, saturates(mode)), "bf16": _as_bf16
}  # fmt: skip


# -- two values of 8 bits ----------------------------------------------------------------------------------------------


def _up(f: Format, wide: str):
    make = _MAKE[wide]

    def function(codes, scale, mode):
        low, high = (scale_up(f, codes >> _U16(shift), scale) for shift in (0, 8))
        return pair(make(low, mode), make(high, mode))

    return function


def _down(f: Format, wide: str):
    read = _READ[wide]

    def of_register(word, scale, mode):
        low, high = (scale_down(f, read(word >> _U32(shift)), scale, mode) for shift in (0, 16))
        return (low | high << _U32(8)).astype(_U16)

    def of_two(a, b, scale, mode):
        return (scale_down(f, a, scale, mode) | scale_down(f, b, scale, mode) << _U32(8)).astype(_U16)

    return of_two if wide == "f32" else of_register


# The format of an inline float in a source that is a pair of halves.
_CONSTANTS = {"f32": "", "f16": "f16", "bf16": "bf16"}

for _name in ("fp8", "bf8"):
    for _wide in ("f32", "f16", "bf16"):
        _result = "u64" if _wide == "f32" else "u32"
        _sources = "f32 f32" if _wide == "f32" else "u32"
        vector(f"v_cvt_scalef32_pk_{_wide}_{_name}@gfx950", f"{_result} = u16 f32 mode")(_up(_NARROW[_name], _wide))
        vector(
            f"v_cvt_scalef32_pk_{_name}_{_wide}@gfx950",
            f"u16 = {_sources} f32 mode",
            keeps_high=True,
            constants=_CONSTANTS[_wide],
        )(_down(_NARROW[_name], _wide))


# -- a byte of the source or of the destination ------------------------------------------------------------------------


def _source_byte(word, select):
    return word >> _U32(8 * (int(select) & 3))


def _put_byte(old, byte, select):
    shift = _U32(8 * (int(select) >> 2 & 3))
    return old & ~(_U32(0xFF) << shift) | byte << shift


def _put_half(old, half, select):
    shift = _U32(16 * (int(select) >> 3 & 1))
    return old & ~(_U32(0xFFFF) << shift) | half.view(_U16).astype(_U32) << shift


for _name in ("fp8", "bf8"):
    vector(f"v_cvt_scalef32_f32_{_name}@gfx950", "f32 = u32 f32 %op_sel")(
        lambda word, scale, select, f=_NARROW[_name]: scale_up(f, _source_byte(word, select), scale).astype(np.float32)
    )
    vector(f"v_cvt_scalef32_f16_{_name}@gfx950", "u32 = u32 f32 mode @u32 %op_sel")(
        lambda word, scale, mode, old, select, f=_NARROW[_name]: _put_half(
            old, _MAKE["f16"](scale_up(f, _source_byte(word, select), scale), mode), select
        )
    )
    for _wide in ("f32", "f16", "bf16"):
        vector(
            f"v_cvt_scalef32_sr_{_name}_{_wide}@gfx950",
            "u32 = u32 u32 f32 mode @u32 %op_sel",
            constants=_CONSTANTS[_wide],
        )(
            lambda word, random, scale, mode, old, select, f=_NARROW[_name], read=_READ[_wide]: _put_byte(
                old, scale_down(f, read(word), scale, mode, random), select
            )
        )
    for _arch in ("gfx942", "gfx950"):
        vector(f"v_cvt_sr_{_name}_f32@{_arch}", "u32 = f32 u32 mode @u32 %op_sel")(
            lambda a, random, mode, old, select, f=FORMATS[_name, _arch]: _put_byte(
                old, encode(f, a, saturates(mode), random), select
            )
        )

_FP4 = _NARROW["fp4"]
for _wide in ("f32", "f16", "bf16"):
    _result = "u64" if _wide == "f32" else "u32"
    vector(f"v_cvt_scalef32_pk_{_wide}_fp4@gfx950", f"{_result} = u32 f32 mode %op_sel")(
        lambda word, scale, mode, select, make=_MAKE[_wide]: pair(
            make(scale_up(_FP4, _source_byte(word, select), scale), mode),
            make(scale_up(_FP4, _source_byte(word, select) >> _U32(4), scale), mode),
        )
    )


@vector("v_cvt_scalef32_pk_fp4_f32@gfx950", "u32 = f32 f32 f32 mode @u32 %op_sel")
def two_to_fp4(a, b, scale, mode, old, select):
    byte = scale_down(_FP4, a, scale, mode) | scale_down(_FP4, b, scale, mode) << _U32(4)
    return _put_byte(old, byte, select)


@vector("v_cvt_scalef32_sr_pk_fp4_f32@gfx950", "u32 = u64 u32 f32 mode @u32 %op_sel")
def two_to_fp4_at_random(both, random, scale, mode, old, select):
    low, high = (half.astype(_U32).view(np.float32) for half in (both, both >> np.uint64(32)))
    byte = scale_down(_FP4, low, scale, mode, random) | scale_down(_FP4, high, scale, mode, prng(random)) << _U32(4)
    return _put_byte(old, byte, select)


def _halves_to_fp4(read: Callable):
    def function(word, scale, mode, old, select):
        low, high = (scale_down(_FP4, read(word >> _U32(shift)), scale, mode) for shift in (0, 16))
        return _put_byte(old, low | high << _U32(4), select)

    def at_random(word, random, scale, mode, old, select):
        low = scale_down(_FP4, read(word), scale, mode, random)
        high = scale_down(_FP4, read(word >> _U32(16)), scale, mode, prng(random))
        return _put_byte(old, low | high << _U32(4), select)

    return function, at_random


for _wide in ("f16", "bf16"):
    _plain, _at_random = _halves_to_fp4(_READ[_wide])
    vector(f"v_cvt_scalef32_pk_fp4_{_wide}@gfx950", "u32 = u32 f32 mode @u32 %op_sel", constants=_wide)(_plain)
    vector(f"v_cvt_scalef32_sr_pk_fp4_{_wide}@gfx950", "u32 = u32 u32 f32 mode @u32 %op_sel", constants=_wide)(
        _at_random
    )


# -- one 16-bit value, rounded stochastically --------------------------------------------------------------------------


def _at_random_16(dropped: int, make: Callable):
    """Add the upper bits of the random number below the mantissa bits that are kept, and truncate."""

    def function(a, random, mode, old, select):
        finite = np.isfinite(a)
        magnitude = np.abs(a).astype(np.float64)
        _, exponent = np.frexp(np.where(finite, magnitude, 0.0))
        smallest = np.int32(-24 if make is to_f16 else -133)
        last = np.maximum(exponent - np.int32(24 - dropped), smallest)
        units = np.floor(np.ldexp(magnitude, -last) + random.astype(np.float64) * 2.0**-32)
        value = np.copysign(np.where(finite, np.ldexp(units, last), magnitude), a)
        return _put_half(
            old, to_f16(value, saturates(mode)) if make is to_f16 else to_bf16(value.astype(np.float32)), select
        )

    return function


vector("v_cvt_sr_f16_f32@gfx950", "u32 = f32 u32 mode @u32 %op_sel")(_at_random_16(13, to_f16))
vector("v_cvt_sr_bf16_f32@gfx950", "u32 = f32 u32 mode @u32 %op_sel")(_at_random_16(16, to_bf16))


# -- 32 values of 6 bits -----------------------------------------------------------------------------------------------

_SIX = [f"v_cvt_scalef32_pk32_{wide}_{name}@gfx950" for wide in ("f32", "f16", "bf16") for name in ("fp6", "bf6")]
_TO_SIX = [f"v_cvt_scalef32_pk32_{name}_{wide}@gfx950" for name in ("fp6", "bf6") for wide in ("f16", "bf16")]
_TO_SIX += [f"v_cvt_scalef32_sr_pk32_{name}_{w}@gfx950" for name in ("fp6", "bf6") for w in ("f32", "f16", "bf16")]
_TO_SIX += [f"v_cvt_scalef32_2xpk16_{name}_f32@gfx950" for name in ("fp6", "bf6")]


@instruction(" ".join(_SIX), klass="valu")
def from_six_bits(instruction, context):
    """Convert 192 bits to 32 values, in 32 or 16 registers."""
    target, source, scale = (context.operand(text) for text in instruction.operands)
    wide, name = instruction.mnemonic.removesuffix("_e64").split("_")[-2:]
    words, by = _registers(source, 6), context.source(scale, "f32")
    outs = _registers(target, 32 if wide == "f32" else 16)
    mode = context.source(context.operand("mode"), "u32")
    result_key(target, "u32")

    def step(wf):
        view = wf.view
        fields = [np.array(view[k]) for k in words]
        values = [scale_up(_NARROW[name], _six_bits(fields, i), view[by]) for i in range(32)]
        made = [_MAKE[wide](value, view[mode]) for value in values]
        if wide != "f32":
            made = [pair(*made[i : i + 2]) for i in range(0, 32, 2)]
        for k, value in zip(outs, made, strict=True):
            np.copyto(view[k], value.view(_U32), where=wf.exec_mask)

    return step


@instruction(" ".join(_TO_SIX), klass="valu")
def to_six_bits(instruction, context):
    """Convert 32 values to 192 bits, from 32 or 16 registers, or from two times 16 registers in turn."""
    name, wide = instruction.mnemonic.removesuffix("_e64").split("_")[-2:]
    target, *sources = (context.operand(text) for text in instruction.operands)
    if "2xpk16" in instruction.mnemonic:
        words = [k for both in zip(*(_registers(source, 16) for source in sources[:2]), strict=True) for k in both]
    else:
        words = _registers(sources[0], 32 if wide == "f32" else 16)
    by, mode = context.source(sources[-1], "f32"), context.source(context.operand("mode"), "u32")
    random = context.source(sources[1], "u32") if "_sr_" in instruction.mnemonic else None
    outs = _registers(target, 6)
    result_key(target, "u32")

    def step(wf):
        view = wf.view
        shifts = (0,) if wide == "f32" else (0, 16)
        values = [_READ[wide](np.array(view[k]) >> _U32(shift)) for k in words for shift in shifts]
        noise = None if random is None else view[random]
        packed = [np.zeros(wf.exec_mask.shape, _U32) for _ in outs]
        for i, value in enumerate(values):
            code = scale_down(_NARROW[name], value, view[by], view[mode], noise)
            at, shift = divmod(6 * i, 32)
            packed[at] |= code << _U32(shift)
            if shift > 26:
                packed[at + 1] |= code >> _U32(32 - shift)
            noise = None if noise is None else prng(noise)
        for k, value in zip(outs, packed, strict=True):
            np.copyto(view[k], value, where=wf.exec_mask)

    return step


def _registers(operand, count: int) -> list[int]:
    return [key(VECTOR, operand.register + i, "u32") for i in range(count)]


def _six_bits(words: list[np.ndarray], i: int) -> np.ndarray:
    at, shift = divmod(6 * i, 32)
    field = words[at] >> _U32(shift)
    return field | words[at + 1] << _U32(32 - shift) if shift > 26 else field
