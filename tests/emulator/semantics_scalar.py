"""Scalar opcodes; see ``semantics``. ``scc`` among the sources is the old SCC, ``@type`` the destination's old
value."""

from tests.emulator.semantics import means, signed, wrap

M32, M64 = (1 << 32) - 1, (1 << 64) - 1


def nonzero(function):
    def with_scc(*sources):
        result = function(*sources)
        return result, result != 0

    return with_scc


means("s_mov_b32", "u32 = u32", lambda a: a)
means("s_mov_b64", "u64 = u64", lambda a: a)
means("s_movk_i32", "i32 = imm", lambda a: wrap(signed(a, 16)))
means("s_add_u32", "u32 scc = u32 u32", lambda a, b: (wrap(a + b), a + b > M32))
means("s_addc_u32", "u32 scc = u32 u32 scc", lambda a, b, c: (wrap(a + b + c), a + b + c > M32))
means("s_sub_u32", "u32 scc = u32 u32", lambda a, b: (wrap(a - b), a < b))
means("s_subb_u32", "u32 scc = u32 u32 scc", lambda a, b, c: (wrap(a - b - c), a - b - c < 0))


def overflowing(operation):
    def function(a, b):
        exact = operation(signed(a), signed(b))
        return wrap(exact), signed(exact) != exact

    return function


means("s_add_i32", "i32 scc = i32 i32", overflowing(lambda a, b: a + b))
means("s_sub_i32", "i32 scc = i32 i32", overflowing(lambda a, b: a - b))
means("s_addk_i32", "i32 scc = imm @i32", lambda k, old: overflowing(lambda a, b: a + b)(wrap(signed(k, 16)), old))
means("s_mulk_i32", "i32 = imm @i32", lambda k, old: wrap(signed(k, 16) * signed(old)))
means("s_cmovk_i32", "i32 = imm @i32 scc", lambda k, old, scc: wrap(signed(k, 16)) if scc else old)
for suffix, kind, mask in (("b32", "u32", M32), ("b64", "u64", M64)):
    logic = {
        "and": lambda a, b, m: a & b,
        "or": lambda a, b, m: a | b,
        "xor": lambda a, b, m: a ^ b,
        "andn2": lambda a, b, m: a & (b ^ m),
        "orn2": lambda a, b, m: a | (b ^ m),
        "nand": lambda a, b, m: (a & b) ^ m,
        "nor": lambda a, b, m: (a | b) ^ m,
        "xnor": lambda a, b, m: (a ^ b) ^ m,
    }
    n = mask.bit_length()
    for name, function in logic.items():
        means(f"s_{name}_{suffix}", f"{kind} scc = {kind} {kind}", nonzero(lambda a, b, f=function, m=mask: f(a, b, m)))
    means(f"s_not_{suffix}", f"{kind} scc = {kind}", nonzero(lambda a, m=mask: a ^ m))
    means(f"s_cselect_{suffix}", f"{kind} = {kind} {kind} scc", lambda a, b, scc: a if scc else b)
    means(f"s_cmov_{suffix}", f"{kind} = {kind} @{kind} scc", lambda a, old, scc: a if scc else old)
    means(f"s_brev_{suffix}", f"{kind} = {kind}", lambda a, n=n: int(f"{a:0{n}b}"[::-1], 2))
    means(f"s_bcnt0_i32_{suffix}", f"i32 scc = {kind}", nonzero(lambda a, n=n: f"{a:0{n}b}".count("0")))
    means(f"s_bcnt1_i32_{suffix}", f"i32 scc = {kind}", nonzero(lambda a, n=n: f"{a:0{n}b}".count("1")))
    means(f"s_ff0_i32_{suffix}", f"i32 = {kind}", lambda a, n=n: wrap(f"{a:0{n}b}"[::-1].find("0")))
    means(f"s_ff1_i32_{suffix}", f"i32 = {kind}", lambda a, n=n: wrap(f"{a:0{n}b}"[::-1].find("1")))
    means(f"s_flbit_i32_{suffix}", f"i32 = {kind}", lambda a, n=n: wrap(f"{a:0{n}b}".find("1")))
    means(f"s_lshl_{suffix}", f"{kind} scc = {kind} u32", nonzero(lambda a, b, n=n: wrap(a << b % n, n)))
    means(f"s_lshr_{suffix}", f"{kind} scc = {kind} u32", nonzero(lambda a, b, n=n: a >> b % n))
    means(f"s_ashr_i{n}", f"i{n} scc = i{n} u32", nonzero(lambda a, b, n=n: wrap(signed(a, n) >> b % n, n)))
    means(f"s_bfm_{suffix}", f"{kind} = u32 u32", lambda w, o, n=n: wrap(((1 << w % n) - 1) << o % n, n))
    means(f"s_bitset0_{suffix}", f"{kind} = u32 @{kind}", lambda bit, old, n=n: old & ~(1 << bit % n))
    means(f"s_bitset1_{suffix}", f"{kind} = u32 @{kind}", lambda bit, old, n=n: old | 1 << bit % n)
    means(f"s_bitcmp0_{suffix}", f"scc = {kind} u32", lambda a, bit, n=n: not a >> bit % n & 1)
    means(f"s_bitcmp1_{suffix}", f"scc = {kind} u32", lambda a, bit, n=n: bool(a >> bit % n & 1))

    def field(a, where, n=n, sign=False):
        offset, width = where % n, min(where >> 16 & 127, n)
        part = (signed(a, n) if sign else a) >> offset
        part = wrap(part, width) if width else 0
        return wrap(signed(part, width), n) if sign and width else part

    means(f"s_bfe_u{n}", f"u{n} scc = u{n} u32", nonzero(field))
    means(f"s_bfe_i{n}", f"i{n} scc = i{n} u32", nonzero(lambda a, where, field=field: field(a, where, sign=True)))
for n, suffix in ((32, "i32"), (64, "i32_i64")):
    means(f"s_flbit_{suffix}", f"i32 = i{n}", lambda a, n=n: wrap(f"{a:0{n}b}".find("0" if a >> (n - 1) else "1")))
means("s_mul_i32", "i32 = i32 i32", lambda a, b: wrap(a * b))
means("s_mul_hi_u32", "u32 = u32 u32", lambda a, b: a * b >> 32)
means("s_mul_hi_i32", "i32 = i32 i32", lambda a, b: wrap(signed(a) * signed(b) >> 32))
means("s_min_i32", "i32 scc = i32 i32", lambda a, b: (min(a, b, key=signed), signed(a) < signed(b)))
means("s_min_u32", "u32 scc = u32 u32", lambda a, b: (min(a, b), a < b))
means("s_max_i32", "i32 scc = i32 i32", lambda a, b: (max(a, b, key=signed), signed(a) >= signed(b)))
means("s_max_u32", "u32 scc = u32 u32", lambda a, b: (max(a, b), a >= b))
means("s_abs_i32", "i32 scc = i32", nonzero(lambda a: wrap(abs(signed(a)))))
means("s_absdiff_i32", "i32 scc = i32 i32", nonzero(lambda a, b: wrap(abs(signed(a - b)))))
means("s_sext_i32_i8", "i32 = i32", lambda a: wrap(signed(a, 8)))
means("s_sext_i32_i16", "i32 = i32", lambda a: wrap(signed(a, 16)))
for n in range(1, 5):
    means(f"s_lshl{n}_add_u32", "u32 scc = u32 u32", lambda a, b, n=n: (wrap((a << n) + b), (a << n) + b > M32))
means("s_pack_ll_b32_b16", "u32 = u32 u32", lambda a, b: (b & 0xFFFF) << 16 | a & 0xFFFF)
means("s_pack_lh_b32_b16", "u32 = u32 u32", lambda a, b: (b >> 16) << 16 | a & 0xFFFF)
means("s_pack_hh_b32_b16", "u32 = u32 u32", lambda a, b: (b >> 16) << 16 | a >> 16)
for name, compare in {
    "eq": lambda a, b: a == b,
    "lg": lambda a, b: a != b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
}.items():
    means(f"s_cmp_{name}_u32", "scc = u32 u32", compare)
    means(f"s_cmp_{name}_i32", "scc = i32 i32", lambda a, b, c=compare: c(signed(a), signed(b)))
    means(f"s_cmpk_{name}_u32", "scc = u32 imm", compare)
    means(f"s_cmpk_{name}_i32", "scc = i32 imm", lambda a, b, c=compare: c(signed(a), signed(b, 16)))
    if name in ("eq", "lg"):
        means(f"s_cmp_{name}_u64", "scc = u64 u64", compare)
for name, combine in {
    "and": lambda a, e: a & e,
    "or": lambda a, e: a | e,
    "xor": lambda a, e: a ^ e,
    "nand": lambda a, e: (a & e) ^ M64,
    "nor": lambda a, e: (a | e) ^ M64,
    "xnor": lambda a, e: (a ^ e) ^ M64,
    "andn1": lambda a, e: (a ^ M64) & e,
    "andn2": lambda a, e: a & (e ^ M64),
    "orn1": lambda a, e: (a ^ M64) | e,
    "orn2": lambda a, e: a | (e ^ M64),
}.items():
    means(f"s_{name}_saveexec_b64", "u64 exec scc = u64 exec", lambda a, e, c=combine: (e, c(a, e), c(a, e) != 0))
for name, combine in (("andn1", lambda a, e: (a ^ M64) & e), ("andn2", lambda a, e: a & (e ^ M64))):
    means(f"s_{name}_wrexec_b64", "u64 exec scc = u64 exec", lambda a, e, c=combine: (c(a, e), c(a, e), c(a, e) != 0))


def quads(a, n):
    """Return for each group of four bits, the lowest first, whether any bit is set."""
    return [a >> i & 15 != 0 for i in range(0, n, 4)]


for suffix, n in (("b32", 32), ("b64", 64)):
    kind = f"u{n}"
    means(
        f"s_wqm_{suffix}",
        f"{kind} scc = {kind}",
        nonzero(lambda a, n=n: sum(15 << 4 * i for i, any_ in enumerate(quads(a, n)) if any_)),
    )
    means(
        f"s_quadmask_{suffix}",
        f"{kind} scc = {kind}",
        nonzero(lambda a, n=n: sum(1 << i for i, any_ in enumerate(quads(a, n)) if any_)),
    )
means("s_bitreplicate_b64_b32", "u64 = u32", lambda a: sum(3 << 2 * i for i in range(32) if a >> i & 1))
