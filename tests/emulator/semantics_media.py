"""Media instructions, normalised integers and the legacy forms; see ``semantics``."""

from fractions import Fraction

from tests.emulator.ieee import F16, F32, fma, mul
from tests.emulator.semantics import clamp, means, signed, wrap
from tests.emulator.semantics_float import by_math, div_fixup, exp2, log2


def octets(word, count=4):
    return list(word.to_bytes(count, "little"))


def sad(a, b, c, masked=False):
    return wrap(c + sum(abs(x - y) for x, y in zip(octets(a), octets(b), strict=True) if y or not masked))


means("v_sad_u8", "u32 = u32 u32 u32", sad)
means("v_msad_u8", "u32 = u32 u32 u32", lambda a, b, c: sad(a, b, c, masked=True))
means("v_sad_hi_u8", "u32 = u32 u32 u32", lambda a, b, c: wrap((sad(a, b, 0) << 16) + c))
means("v_sad_u32", "u32 = u32 u32 u32", lambda a, b, c: wrap(abs(a - b) + c))
means(
    "v_sad_u16",
    "u32 = u32 u32 u32",
    lambda a, b, c: wrap(abs((a & 0xFFFF) - (b & 0xFFFF)) + abs((a >> 16) - (b >> 16)) + c),
)


def four(a, b, c, masked):
    windows = [int.from_bytes(octets(a, 8)[i : i + 4], "little") for i in range(4)]
    return sum((sad(w, b, c >> 16 * i & 0xFFFF, masked) & 0xFFFF) << 16 * i for i, w in enumerate(windows))


means("v_qsad_pk_u16_u8", "u64 = u64 u32 u64", lambda a, b, c: four(a, b, c, False))
means("v_mqsad_pk_u16_u8", "u64 = u64 u32 u64", lambda a, b, c: four(a, b, c, True))
means(
    "v_lerp_u8",
    "u32 = u32 u32 u32",
    lambda *x: int.from_bytes(bytes((a + b + c % 2) // 2 for a, b, c in zip(*map(octets, x), strict=True)), "little"),
)
means("v_sat_pk_u8_i16", "u16 = u32", lambda a: clamp(signed(a, 16), 0, 255) | clamp(signed(a >> 16, 16), 0, 255) << 8)


def nearest(f, a, scale, low, high):
    """Return the integer nearest to a value times ``scale``, limited to [low, high]; 0 for NaN."""
    if f.is_nan(a):
        return 0
    if f.is_inf(a):
        return low if f.negative(a) else high
    return clamp(round(f.value(a) * scale), low, high)


def into_byte(a, which, old):
    shift = 8 * (which % 4)
    return old & ~(0xFF << shift) | nearest(F32, a, 1, 0, 255) << shift


means("v_cvt_pk_u8_f32", "u32 = f32 u32 u32", into_byte)
means("v_cvt_pkaccum_u8_f32", "u32 = f32 u32 @u32", into_byte)
for kind, low, high in (("i16", -32767, 32767), ("u16", 0, 65535)):

    def norm(f, a, low=low, high=high):
        return wrap(nearest(f, a, high, low, high), 16)

    means(f"v_cvt_norm_{kind}_f16", "u16 = f16", lambda a, norm=norm: norm(F16, a))
    for source, f in (("f16", F16), ("f32", F32)):
        means(
            f"v_cvt_pknorm_{kind}_{source}",
            f"u32 = {source} {source}",
            lambda a, b, norm=norm, f=f: norm(f, a) | norm(f, b) << 16,
        )
means("v_cvt_off_f32_i4", "f32 = u32", lambda a: F32.round(Fraction(signed(a, 4), 16)))

# -- legacy forms ------------------------------------------------------------------------------------------------------

means("v_mul_legacy_f32", "f32 = f32 f32", lambda a, b: 0 if F32.is_zero(a) or F32.is_zero(b) else mul(F32, a, b))
means("v_fma_legacy_f16", "f16 = f16 f16 f16", lambda a, b, c: fma(F16, a, b, c))
means("v_div_fixup_legacy_f16", "f16 = f16 f16 f16", lambda *x: div_fixup(F16, *x, -1000))
means("v_exp_legacy_f32", "f32 = f32", lambda a: by_math(exp2, True)(F32, a), ulps=1)
means("v_log_legacy_f32", "f32 = f32", lambda a: by_math(log2, True)(F32, a), ulps=1)
