"""Conversions between floats of 8 bits or fewer and wider ones, and the 16-bit pairs of gfx950.

Sources: CDNA3 and CDNA4 ISA, VOP1 and VOP3 (V_CVT_*_FP8, V_CVT_*_BF8); the formats: OCP "OFP8" 1.0, OCP "Microscaling
Formats" 1.0, and LLVM's APFloat semantics Float8E4M3FNUZ, Float8E5M2FNUZ, Float8E4M3FN, Float8E5M2. ``fp8`` has 4
exponent bits and ``bf8`` 5. On gfx942 both are FNUZ forms (one zero, one NaN, no infinity), on gfx950 OCP forms.

Conversion to 8 bits rounds to nearest even. A number that is too large, also an infinity, becomes infinity or NaN,
whichever the format has; with MODE.FP16_OVFL, which Triton sets, the largest number (Triton's
test_typeconvert_downcast_clamping requires that for infinities as well). A NaN stays a NaN.

Example, e4m3 OCP: 1.0 is 0x38, 448 the largest is 0x7e, 0x7f is NaN; 460 rounds to 448, 470 overflows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from harness.emulator.operations.table import HALVES, vector
from harness.emulator.wavefront.state import FP16_OVFL

_U8, _U16, _U32, _U64 = np.uint8, np.uint16, np.uint32, np.uint64


@dataclass(frozen=True)
class Format:
    """A format of at most 8 bits with a sign, ``exponent`` and ``mantissa`` bits.

    ``specials``: ``fnuz`` (the code of -0 is NaN), ``nan`` (all ones is NaN, no infinity), ``ieee``, or ``none``.
    """

    exponent: int
    mantissa: int
    bias: int
    specials: str

    @property
    def sign(self) -> int:
        return 1 << self.exponent + self.mantissa

    @property
    def nan(self) -> int:
        return self.sign if self.specials == "fnuz" else self.sign - 1

    @property
    def largest(self) -> int:
        """The code of the largest finite number."""
        top = {"ieee": 1 << self.mantissa, "nan": 1}.get(self.specials, 0)
        return self.sign - 1 - top

    @property
    def overflow(self) -> int:
        """Code of a number that is too large, without saturation: infinity, NaN, or the largest if it has neither."""
        return {"ieee": self.largest + 1, "none": self.largest}.get(self.specials, self.nan)


FORMATS = {
    ("fp8", "gfx942"): Format(4, 3, 8, "fnuz"),
    ("bf8", "gfx942"): Format(5, 2, 16, "fnuz"),
    ("fp8", "gfx950"): Format(4, 3, 7, "nan"),
    ("bf8", "gfx950"): Format(5, 2, 15, "ieee"),
    ("fp6", "gfx950"): Format(2, 3, 1, "none"),
    ("bf6", "gfx950"): Format(3, 2, 3, "none"),
    ("fp4", "gfx950"): Format(2, 1, 1, "none"),
}


def decode(f: Format, codes: np.ndarray) -> np.ndarray:
    """Convert codes to float32; bits above the format's are ignored."""
    magnitude = (codes & codes.dtype.type(f.sign - 1)).astype(np.int32)
    exponent, fraction = magnitude >> f.mantissa, magnitude & ((1 << f.mantissa) - 1)
    whole = np.where(exponent == 0, fraction, fraction | 1 << f.mantissa)
    value = np.ldexp(whole.astype(np.float32), np.maximum(exponent, 1) - np.int32(f.bias + f.mantissa))
    negative = (codes & codes.dtype.type(f.sign)) != 0
    if f.specials == "ieee":
        value = np.where(magnitude > f.overflow, np.float32(np.nan), value)
        value = np.where(magnitude == f.overflow, np.float32(np.inf), value)
    if f.specials == "nan":
        value = np.where(magnitude == f.nan, np.float32(np.nan), value)
    if f.specials == "fnuz":
        value = np.where(negative & (magnitude == 0), np.float32(np.nan), value)
    return np.where(negative, -value, value)


def encode(f: Format, x: np.ndarray, saturate: np.ndarray, random: np.ndarray | None = None) -> np.ndarray:
    """Convert float32 or float64 to the bit patterns of format ``f``, as uint32.

    Where ``saturate`` is true, a number out of range becomes the largest number of the format, else infinity or NaN.
    Rounding is to nearest even. With ``random``, uint32, it is stochastic: ``random / 2**32`` of a unit in the last
    place is added to the magnitude, which is then truncated.
    """
    x = x.astype(np.float64)
    magnitude = np.abs(x)
    _, exponent = np.frexp(np.where(np.isfinite(magnitude), magnitude, 0.0))
    # The exponent of the first mantissa bit; for all smaller values that of the smallest normal number.
    exponent = np.maximum(exponent - np.int32(1), np.int32(1 - f.bias))
    exponent = np.where(magnitude == 0, np.int32(1 - f.bias), exponent)
    units = np.ldexp(magnitude, np.int32(f.mantissa) - exponent)
    units = np.rint(units) if random is None else np.floor(units + random.astype(np.float64) * 2.0**-32)
    # The first mantissa bit of a normal number, and the carry of rounding, add to the exponent by themselves.
    base = (exponent + np.int32(f.bias - 1)).astype(np.int64) << np.int64(f.mantissa)
    code = np.where(np.isfinite(magnitude), units, 0.0).astype(np.int64) + base
    too_large = (code > f.largest) | np.isinf(magnitude)
    code = np.where(too_large, np.where(saturate, np.int64(f.largest), np.int64(f.overflow)), code)
    code = np.where(np.isnan(x), np.int64(f.nan), code)
    # FNUZ has no -0, and the code of its NaN already has the sign bit.
    signed = np.signbit(x) & (code != 0) if f.specials == "fnuz" else np.signbit(x)
    return np.where(signed, code | np.int64(f.sign), code).astype(_U32)


def saturates(mode: np.ndarray) -> np.ndarray:
    return (mode & _U32(FP16_OVFL)) != 0


def pair(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Combine two float32 to a register pair, or two 16-bit values to a register."""
    if low.dtype.itemsize == 2:
        return low.view(_U16).astype(_U32) | high.view(_U16).astype(_U32) << _U32(16)
    return low.view(_U32).astype(_U64) | high.view(_U32).astype(_U64) << _U64(32)


def to_bf16(x: np.ndarray) -> np.ndarray:
    """Convert float32 to bfloat16 bits, uint16, rounded to nearest even; a NaN stays a NaN."""
    word = x.view(_U32)
    rounded = (word + _U32(0x7FFF) + (word >> _U32(16) & _U32(1))) >> _U32(16)
    return np.where(np.isnan(x), word >> _U32(16) | _U32(0x40), rounded).astype(_U16)


def from_bf16(word: np.ndarray) -> np.ndarray:
    """Convert bfloat16 in the low 16 bits to float32."""
    return (word.astype(_U32) << _U32(16)).view(np.float32)


def to_f16(x: np.ndarray, saturate: np.ndarray) -> np.ndarray:
    """Convert float32 or float64 to float16; ``saturate``: a number beyond the range becomes the largest."""
    narrow = x.astype(np.float16)
    over = np.isinf(narrow) & np.isfinite(x) & saturate
    return np.where(over, np.copysign(np.float16(65504), narrow), narrow)


for (_name, _arch), _format in FORMATS.items():
    if _name not in ("fp8", "bf8"):
        continue
    vector(f"v_cvt_f32_{_name}@{_arch}", "f32 = u32")(lambda a, f=_format: decode(f, a))
    vector(f"v_cvt_pk_f32_{_name}@{_arch}", "u64 = u32")(
        lambda a, f=_format: pair(decode(f, a), decode(f, a >> _U32(8)))
    )
    vector(f"v_cvt_pk_{_name}_f32@{_arch}", "u16 = f32 f32 mode", keeps_high=True)(
        lambda a, b, mode, f=_format: (encode(f, a, saturates(mode)) | encode(f, b, saturates(mode)) << _U32(8)).astype(
            _U16
        )
    )


vector("v_cvt_f32_bf16@gfx950", "f32 = u16", constants="bf16")(from_bf16)
vector("v_cvt_pk_bf16_f32@gfx950", "u32 = f32 f32", undefined=HALVES)(lambda a, b: pair(to_bf16(a), to_bf16(b)))
vector("v_cvt_pk_f16_f32@gfx950", "u32 = f32 f32 mode", undefined=HALVES)(
    lambda a, b, mode: pair(to_f16(a, saturates(mode)), to_f16(b, saturates(mode)))
)
