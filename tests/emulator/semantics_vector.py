"""Integer vector opcodes; see ``semantics``."""

from tests.emulator.semantics import BITS, clamp, means, signed, wrap

M32 = 0xFFFFFFFF

means("v_mov_b32 v_accvgpr_read_b32 v_accvgpr_write_b32 v_accvgpr_mov_b32", "u32 = u32", lambda a: a)
means("v_mov_b64", "u64 = u64", lambda a: a)
means("v_not_b32", "u32 = u32", lambda a: a ^ M32)
means("v_and_b32", "u32 = u32 u32", lambda a, b: a & b)
means("v_or_b32", "u32 = u32 u32", lambda a, b: a | b)
means("v_xor_b32", "u32 = u32 u32", lambda a, b: a ^ b)
means("v_xnor_b32", "u32 = u32 u32", lambda a, b: (a ^ b) ^ M32)
for bits in (16, 32, 64):
    count = "u16" if bits == 16 else "u32"
    means(f"v_lshlrev_b{bits}", f"u{bits} = {count} u{bits}", lambda n, a, bits=bits: wrap(a << n % bits, bits))
    means(f"v_lshrrev_b{bits}", f"u{bits} = {count} u{bits}", lambda n, a, bits=bits: a >> n % bits)
    means(
        f"v_ashrrev_i{bits}",
        f"i{bits} = {count} i{bits}",
        lambda n, a, bits=bits: wrap(signed(a, bits) >> n % bits, bits),
    )
means("v_and_or_b32", "u32 = u32 u32 u32", lambda a, b, c: (a & b) | c)
means("v_or3_b32", "u32 = u32 u32 u32", lambda a, b, c: a | b | c)
means("v_lshl_or_b32", "u32 = u32 u32 u32", lambda a, b, c: wrap(a << b % 32) | c)
means("v_lshl_add_u32", "u32 = u32 u32 u32", lambda a, b, c: wrap((a << b % 32) + c))
means("v_add_lshl_u32", "u32 = u32 u32 u32", lambda a, b, c: wrap((a + b) << c % 32))
means("v_lshl_add_u64", "u64 = u64 u32 u64", lambda a, b, c: wrap((a << b % 8) + c, 64))
means("v_add3_u32", "u32 = u32 u32 u32", lambda a, b, c: wrap(a + b + c))
means("v_xad_u32", "u32 = u32 u32 u32", lambda a, b, c: wrap((a ^ b) + c))
means("v_cndmask_b32", "u32 = u32 u32 mask", lambda a, b, m: b if m else a)
means("v_bfi_b32", "u32 = u32 u32 u32", lambda a, b, c: sum((b if a >> i & 1 else c) & 1 << i for i in range(32)))
means("v_bfe_u32", "u32 = u32 u32 u32", lambda a, o, w: (a >> o % 32) % (1 << w % 32))


@means("v_bfe_i32", "i32 = i32 u32 u32")
def bfe_i32(a, offset, width):
    offset, width = offset % 32, width % 32
    if not width:
        return 0
    field = (signed(a) >> offset) % (1 << width)
    return wrap(field - (1 << width) if field >> (width - 1) else field)


means("v_bfm_b32", "u32 = u32 u32", lambda w, o: wrap(((1 << w % 32) - 1) << o % 32))
means("v_alignbit_b32", "u32 = u32 u32 u32", lambda a, b, c: wrap((a << 32 | b) >> c % 32))
means("v_alignbyte_b32", "u32 = u32 u32 u32", lambda a, b, c: wrap((a << 32 | b) >> 8 * (c % 4)))


@means("v_perm_b32", "u32 = u32 u32 u32")
def perm(a, b, selector):
    data = b.to_bytes(4, "little") + a.to_bytes(4, "little")
    out = []
    for pick in selector.to_bytes(4, "little"):
        if pick < 8:
            out.append(data[pick])
        elif pick < 12:
            out.append(255 if data[2 * (pick - 8) + 1] & 0x80 else 0)
        else:
            out.append(0 if pick == 12 else 255)
    return int.from_bytes(bytes(out), "little")


means("v_bcnt_u32_b32", "u32 = u32 u32", lambda a, b: wrap(a.bit_count() + b))
means("v_ffbh_u32", "i32 = u32", lambda a: f"{a:032b}".find("1") & M32)
means("v_ffbl_b32", "i32 = u32", lambda a: f"{a:032b}"[::-1].find("1") & M32)
means("v_ffbh_i32", "i32 = i32", lambda a: f"{a:032b}".find("0" if a >> 31 else "1") & M32)
means("v_bfrev_b32", "u32 = u32", lambda a: int(f"{a:032b}"[::-1], 2))

for kind in ("u32", "i32", "u16", "i16"):
    n = BITS[kind]
    means(f"v_add_{kind}", f"{kind} = {kind} {kind}", lambda a, b, n=n: wrap(a + b, n))
    means(f"v_sub_{kind}", f"{kind} = {kind} {kind}", lambda a, b, n=n: wrap(a - b, n))
    if kind[0] == "u":
        means(f"v_subrev_{kind}", f"{kind} = {kind} {kind}", lambda a, b, n=n: wrap(b - a, n))

means("v_add_co_u32", "u32 mask = u32 u32", lambda a, b: (wrap(a + b), a + b > M32))
means("v_addc_co_u32", "u32 mask = u32 u32 mask", lambda a, b, c: (wrap(a + b + c), a + b + c > M32))
means("v_sub_co_u32", "u32 mask = u32 u32", lambda a, b: (wrap(a - b), a - b < 0))
means("v_subrev_co_u32", "u32 mask = u32 u32", lambda a, b: (wrap(b - a), b - a < 0))
means("v_subb_co_u32", "u32 mask = u32 u32 mask", lambda a, b, c: (wrap(a - b - c), a - b - c < 0))
means("v_subbrev_co_u32", "u32 mask = u32 u32 mask", lambda a, b, c: (wrap(b - a - c), b - a - c < 0))


def s24(a):
    return signed(a, 24)


def u24(a):
    return wrap(a, 24)


means("v_mul_lo_u32", "u32 = u32 u32", lambda a, b: wrap(a * b))
means("v_mul_hi_u32", "u32 = u32 u32", lambda a, b: a * b >> 32)
means("v_mul_hi_i32", "i32 = i32 i32", lambda a, b: wrap(signed(a) * signed(b) >> 32))
means("v_mul_i32_i24", "i32 = i32 i32", lambda a, b: wrap(s24(a) * s24(b)))
means("v_mul_u32_u24", "u32 = u32 u32", lambda a, b: wrap(u24(a) * u24(b)))
means("v_mul_hi_i32_i24", "i32 = i32 i32", lambda a, b: wrap(s24(a) * s24(b) >> 32))
means("v_mul_hi_u32_u24", "u32 = u32 u32", lambda a, b: u24(a) * u24(b) >> 32)
means("v_mad_i32_i24", "i32 = i32 i32 i32", lambda a, b, c: wrap(s24(a) * s24(b) + c))
means("v_mad_u32_u24", "u32 = u32 u32 u32", lambda a, b, c: wrap(u24(a) * u24(b) + c))
means("v_mad_u64_u32", "u64 mask = u32 u32 u64", lambda a, b, c: (wrap(a * b + c, 64), a * b + c >= 1 << 64))


@means("v_mad_i64_i32", "i64 mask = i32 i32 i64")
def mad_i64_i32(a, b, c):
    total = signed(a) * signed(b) + signed(c, 64)
    return wrap(total, 64), signed(total, 64) != total


means("v_mul_lo_u16", "u16 = u16 u16", lambda a, b: wrap(a * b, 16))
means("v_mad_u16", "u16 = u16 u16 u16", lambda a, b, c: wrap(a * b + c, 16), keeps_high=True)
means("v_mad_i16", "i16 = i16 i16 i16", lambda a, b, c: wrap(a * b + c, 16), keeps_high=True)
means("v_mad_u32_u16", "u32 = u16 u16 u32", lambda a, b, c: wrap(a * b + c))
means("v_mad_i32_i16", "i32 = i16 i16 i32", lambda a, b, c: wrap(signed(a, 16) * signed(b, 16) + c))


def order(kind):
    n = BITS[kind]
    return (lambda a: signed(a, n)) if kind[0] == "i" else (lambda a: a)


for kind in ("u32", "i32", "u16", "i16"):
    by, keeps = order(kind), kind.endswith("16")
    means(f"v_min_{kind}", f"{kind} = {kind} {kind}", lambda a, b, by=by: min(a, b, key=by))
    means(f"v_max_{kind}", f"{kind} = {kind} {kind}", lambda a, b, by=by: max(a, b, key=by))
    three = f"{kind} = {kind} {kind} {kind}"
    means(f"v_min3_{kind}", three, lambda *x, by=by: min(x, key=by), keeps_high=keeps)
    means(f"v_max3_{kind}", three, lambda *x, by=by: max(x, key=by), keeps_high=keeps)
    means(f"v_med3_{kind}", three, lambda *x, by=by: sorted(x, key=by)[1], keeps_high=keeps)

COMPARISONS = {
    "f": lambda a, b: False,
    "lt": lambda a, b: a < b,
    "eq": lambda a, b: a == b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ne": lambda a, b: a != b,
    "ge": lambda a, b: a >= b,
    "t": lambda a, b: True,
}
for name, compare in COMPARISONS.items():
    for kind in ("u16", "i16", "u32", "i32", "u64", "i64"):
        by = order(kind)

        def outcome(a, b, compare=compare, by=by):
            return compare(by(a), by(b))

        means(f"v_cmp_{name}_{kind}", f"mask = {kind} {kind}", outcome)
        means(f"v_cmpx_{name}_{kind}", f"mask exec = {kind} {kind}", lambda a, b, outcome=outcome: (outcome(a, b),) * 2)

means("v_pack_b32_f16", "u32 = u16 u16", lambda a, b: b << 16 | a)
means("v_cvt_pk_u16_u32", "u32 = u32 u32", lambda a, b: min(b, 0xFFFF) << 16 | min(a, 0xFFFF))
means(
    "v_cvt_pk_i16_i32",
    "u32 = i32 i32",
    lambda a, b: wrap(clamp(signed(b), -32768, 32767), 16) << 16 | wrap(clamp(signed(a), -32768, 32767), 16),
)
