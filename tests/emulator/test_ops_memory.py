"""Loads, stores, local data share, cross-lane moves and atomics, one instruction at a time, on the test's memory."""

import random

import numpy as np
import pytest

from harness.emulator import MemoryFault
from harness.emulator.operations import TABLE
from tests.emulator import edges
from tests.emulator.covering import covers
from tests.emulator.ieee import F16, F32, F64, add, convert
from tests.emulator.semantics import signed
from tests.emulator.single import ALL, execute

LANES = list(range(64))
MASK = 0xF0F0_1234_8001_7FFF
OLD = 0xDEADBEEF
LOADS = {
    "ubyte": (1, False, None),
    "sbyte": (1, True, None),
    "ushort": (2, False, None),
    "sshort": (2, True, None),
    "dword": (4, False, None),
    "dwordx2": (8, False, None),
    "dwordx3": (12, False, None),
    "dwordx4": (16, False, None),
    "ubyte_d16": (1, False, 0),
    "ubyte_d16_hi": (1, False, 1),
    "sbyte_d16": (1, True, 0),
    "sbyte_d16_hi": (1, True, 1),
    "short_d16": (2, False, 0),
    "short_d16_hi": (2, False, 1),
}
STORES = {
    "byte": (1, 0),
    "short": (2, 0),
    "byte_d16_hi": (1, 16),
    "short_d16_hi": (2, 16),
    "dword": (4, 0),
    "dwordx2": (8, 0),
    "dwordx3": (12, 0),
    "dwordx4": (16, 0),
}


class Memory:
    """4096 registered bytes in the middle of unregistered ones."""

    def __init__(self, seed=0):
        self.whole = np.frombuffer(random.Random(seed).randbytes(3 * 4096), np.uint8).copy()
        self.bytes = self.whole[4096:8192]
        self.address = self.bytes.ctypes.data
        self.before = self.bytes.tobytes()

    @property
    def known(self):
        return [(self.address, 4096, "the test's memory")]


def registers(size):
    return "v0" if size <= 4 else f"v[0:{size // 4 - 1}]"


def spread(size):
    """Return an address for each lane, out of order."""
    return [(n * 37 % 64) * size for n in LANES]


def address_forms(memory, offsets, mnemonic, data, load):
    """Return the same access in each address form: text, vector and scalar registers.

    Every form has an instruction offset of 16.
    """
    low, high = memory.address & 0xFFFFFFFF, memory.address >> 32
    full = [memory.address + o for o in offsets]
    order = (lambda d, a: f"{d}, {a}") if load else (lambda d, a: f"{a}, {d}")
    v = {8: [a & 0xFFFFFFFF for a in full], 9: [a >> 32 for a in full], 10: offsets}
    if mnemonic.startswith("global"):
        yield f"{mnemonic} {order(data, 'v[8:9]')}, off offset:16", v, {}
        yield f"{mnemonic} {order(data, 'v10')}, s[4:5] offset:16 sc0 sc1 nt", v, {4: low, 5: high}
        below = [a + 32 for a in full]
        v = {**v, 8: [a & 0xFFFFFFFF for a in below], 9: [a >> 32 for a in below]}
        yield f"{mnemonic} {order(data, 'v[8:9]')}, off offset:-16", v, {}
    else:
        s = {4: low, 5: high, 6: 0x7FFFFFFE, 7: 0x27000, 8: 12}
        yield f"{mnemonic} {data}, v10, s[4:7], 0 offen offset:16", v, s
        yield f"{mnemonic} {data}, v10, s[4:7], s8 offen offset:4 sc0 nt", v, s


@covers(*[f"{space}_load_{n}" for space in ("global", "buffer") for n in LOADS])
@pytest.mark.parametrize("space", ["global", "buffer"])
@pytest.mark.parametrize("name", LOADS)
def test_load(space, name):
    size, sign, half = LOADS[name]
    memory, offsets = Memory(), spread(size)
    for text, v, s in address_forms(memory, offsets, f"{space}_load_{name}", registers(size), True):
        for exec_mask in (ALL, MASK):
            result = execute(text, v={**v, **dict.fromkeys(range(4), OLD)}, s=s, exec=exec_mask, memory=memory.known)
            for lane in LANES:
                raw = int.from_bytes(memory.before[offsets[lane] + 16 : offsets[lane] + 16 + size], "little")
                got = sum(result.v(i)[lane] << 32 * i for i in range(max(1, size // 4)))
                old = sum(OLD << 32 * i for i in range(max(1, size // 4)))
                if not exec_mask >> lane & 1:
                    assert got == old
                    continue
                value = signed(raw, 8 * size) & 0xFFFFFFFF if sign else raw
                if half is not None:
                    value = (value & 0xFFFF) << 16 * half | OLD & 0xFFFF << 16 * (1 - half)
                assert got == value, f"{text}, lane {lane}"


@covers(*[f"{space}_store_{n}" for space in ("global", "buffer") for n in STORES])
@pytest.mark.parametrize("space", ["global", "buffer"])
@pytest.mark.parametrize("name", STORES)
def test_store(space, name):
    size, shift = STORES[name]
    offsets = spread(size)
    words = [[random.Random(i).getrandbits(32) ^ n for n in LANES] for i in range(4)]
    forms = len(list(address_forms(Memory(), offsets, f"{space}_store_{name}", registers(size), False)))
    for form in range(forms):
        memory = Memory()
        text, v, s = list(address_forms(memory, offsets, f"{space}_store_{name}", registers(size), False))[form]
        execute(text, v={**v, **{i: words[i] for i in range(4)}}, s=s, exec=MASK, memory=memory.known)
        wanted = bytearray(memory.before)
        for lane in LANES:
            if MASK >> lane & 1:
                value = sum(words[i][lane] << 32 * i for i in range(4)) >> shift
                wanted[offsets[lane] + 16 : offsets[lane] + 16 + size] = value.to_bytes(17, "little")[:size]
        assert memory.bytes.tobytes() == bytes(wanted), text


def test_a_masked_lane_of_a_buffer_access_is_out_of_range():
    """Range checking is part of the mask: a load out of range gives 0, a store and an atomic do nothing."""
    memory = Memory()
    s = {4: memory.address & 0xFFFFFFFF, 5: memory.address >> 32, 6: 0x7FFFFFFE, 7: 0x27000}
    offsets = [4 * n if n % 3 else 0x80000000 for n in LANES]
    result = execute(
        "buffer_load_dwordx2 v[0:1], v10, s[4:7], 0 offen", v={0: OLD, 1: OLD, 10: offsets}, s=s, memory=memory.known
    )
    for n in LANES:
        assert result.v64(0)[n] == (int.from_bytes(memory.before[4 * n : 4 * n + 8], "little") if n % 3 else 0)
    execute("buffer_store_dword v0, v10, s[4:7], 0 offen", v={0: 7, 10: offsets}, s=s, memory=memory.known)
    words = memory.bytes[:256].view(np.uint32)
    assert all(words[n] == (7 if n % 3 else int.from_bytes(memory.before[4 * n : 4 * n + 4], "little")) for n in LANES)
    result = execute("buffer_atomic_add v0, v10, s[4:7], 0 offen sc0", v={0: 1, 10: offsets}, s=s, memory=memory.known)
    assert result.v(0) == [7 if n % 3 else 0 for n in LANES]


def test_a_buffer_access_without_lane_offset():
    memory = Memory()
    s = {4: memory.address & 0xFFFFFFFF, 5: memory.address >> 32, 6: 0x7FFFFFFE, 7: 0x27000}
    result = execute("buffer_load_dword v0, off, s[4:7], 0 offset:8", s=s, memory=memory.known)
    assert result.v(0) == [int.from_bytes(memory.before[8:12], "little")] * 64


@covers("s_load_dword s_load_dwordx2 s_load_dwordx4 s_load_dwordx8 s_load_dwordx16")
@pytest.mark.parametrize("words", [1, 2, 4, 8, 16])
def test_scalar_load(words):
    memory = Memory()
    name = f"s_load_dword{'' if words == 1 else f'x{words}'}"
    target = "s16" if words == 1 else f"s[16:{15 + words}]"
    s = {2: memory.address & 0xFFFFFFFF, 3: memory.address >> 32, 4: 8}
    for text, offset in ((f"{name} {target}, s[2:3], 0x24", 0x24), (f"{name} {target}, s[2:3], s4 offset:0x10", 24)):
        result = execute(text, s=s, exec=0, memory=memory.known)
        got = [result.s(16 + i)[0] for i in range(words)]
        assert got == [
            int.from_bytes(memory.before[offset + 4 * i : offset + 4 * i + 4], "little") for i in range(words)
        ]
    with pytest.raises(MemoryFault, match="0 bytes past the end of the test's memory"):
        execute(f"{name} {target}, s[2:3], 0x1000", s=s, memory=memory.known)


# -- atomics -----------------------------------------------------------------------------------------------------------


def least(bits):
    return lambda a, b: min(a, b, key=lambda x: signed(x, bits))


def signed_maximum(bits):
    return lambda a, b: max(a, b, key=lambda x: signed(x, bits))


def float_least(f):
    return lambda a, b: b if f.is_nan(a) else a if f.is_nan(b) else min(a, b, key=f.order)


def float_maximum(f):
    return lambda a, b: b if f.is_nan(a) else a if f.is_nan(b) else max(a, b, key=f.order)


def halves(function):
    return lambda a, b: function(a & 0xFFFF, b & 0xFFFF) | function(a >> 16, b >> 16) << 16


class _BF16:
    """bfloat16: the upper half of a float32."""

    @staticmethod
    def add(a, b):
        total = add(F64, convert(F32, F64, a << 16), convert(F32, F64, b << 16))  # exact in float64, or far from a tie
        if F64.is_nan(total):
            return 0x7FC0
        from tests.emulator.ieee import Format
        from tests.emulator.ieee import convert as to

        return to(F64, Format(16, 7), total)


RMW = {}
for bits, suffix in ((32, ""), (64, "_x2")):
    top = (1 << bits) - 1
    RMW |= {
        f"add{suffix}": (bits, lambda a, b, t=top: a + b & t),
        f"sub{suffix}": (bits, lambda a, b, t=top: a - b & t),
        f"swap{suffix}": (bits, lambda a, b: b),
        f"and{suffix}": (bits, lambda a, b: a & b),
        f"or{suffix}": (bits, lambda a, b: a | b),
        f"xor{suffix}": (bits, lambda a, b: a ^ b),
        f"smin{suffix}": (bits, least(bits)),
        f"smax{suffix}": (bits, signed_maximum(bits)),
        f"umin{suffix}": (bits, min),
        f"umax{suffix}": (bits, max),
        f"inc{suffix}": (bits, lambda a, b: 0 if a >= b else a + 1),
        f"dec{suffix}": (bits, lambda a, b: b if a == 0 or a > b else a - 1),
    }
RMW |= {
    "add_f32": (32, lambda a, b: add(F32, a, b)),
    "add_f64": (64, lambda a, b: add(F64, a, b)),
    "min_f64": (64, float_least(F64)),
    "max_f64": (64, float_maximum(F64)),
    "pk_add_f16": (32, halves(lambda a, b: add(F16, a, b))),
    "pk_add_bf16": (32, halves(_BF16.add)),
}
FLOAT_OF = {"add_f32": ("f32", F32), "add_f64": ("f64", F64), "min_f64": ("f64", F64), "max_f64": ("f64", F64)}


def operands_of(name, bits):
    kind = FLOAT_OF[name][0] if name in FLOAT_OF else "f32" if "f16" in name else f"u{bits}"
    cases = edges.combinations([kind, kind], name, limit=128)
    if "pk_add" in name:
        # Each half is a finite number or an infinity: a NaN computed by the host has another payload.
        some = random.Random(name)
        small = [
            0,
            0x8000,
            0x3C00,
            0x3C01,
            0xBC00,
            0x0001,
            0x7BFF,
            0x4200,
            0x03FF,
            0x8001,
            0x6400,
            0x3F80,
            0x3F81,
            0x4049,
        ]
        cases = [tuple(some.choice(small) | some.choice(small) << 16 for _ in "ab") for _ in range(64)]
    if name in FLOAT_OF:
        f = FLOAT_OF[name][1]
        cases = [
            c for c in cases if not (f.is_nan(c[0]) or f.is_nan(c[1])) and not (f.is_zero(c[0]) and f.is_zero(c[1]))
        ]
    return (cases * 64)[:64]


@covers(*[f"{space}_atomic_{n}" for space in ("global", "buffer") for n in RMW], "buffer_atomic_pk_add_bf16@gfx950")
@pytest.mark.parametrize("returns", [True, False], ids=["returns", "no-return"])
@pytest.mark.parametrize("space", ["global", "buffer"])
@pytest.mark.parametrize("name", RMW)
def test_atomic(space, name, returns):
    bits, combine = RMW[name]
    size, cases, memory = bits // 8, operands_of(name, bits), Memory()
    offsets = [(n * 37 % 64) * size for n in LANES]
    cells = memory.bytes[: 64 * size].view(f"u{size}")
    for lane, (old, _) in enumerate(cases):
        cells[offsets[lane] // size] = old
    start = cells.copy()
    pair = lambda r: f"v[{r}:{r + 1}]" if bits == 64 else f"v{r}"  # noqa: E731
    full = [memory.address + o for o in offsets]
    v = {
        2: [c[1] & 0xFFFFFFFF for c in cases],
        3: [c[1] >> 32 for c in cases],
        8: [a & 0xFFFFFFFF for a in full],
        9: [a >> 32 for a in full],
        10: offsets,
        0: OLD,
        1: OLD,
    }
    s = {4: memory.address & 0xFFFFFFFF, 5: memory.address >> 32, 6: 0x7FFFFFFE, 7: 0x27000}
    if space == "global":
        target = f"{pair(0)}, " if returns else ""
        text = f"global_atomic_{name} {target}v[8:9], {pair(2)}, off{' sc0' if returns else ''} sc1"
    else:
        text = f"buffer_atomic_{name} {pair(2)}, v10, s[4:7], 0 offen{' sc0' if returns else ''}"
    arch = "gfx950" if text.startswith("buffer_atomic_pk_add_bf16") else "gfx942"
    result = execute(text, v=v, s=s, exec=MASK, memory=memory.known, arch=arch)
    register = 2 if space == "buffer" else 0
    got = result.v64(register) if bits == 64 else result.v(register)
    for lane, (old, value) in enumerate(cases):
        active = MASK >> lane & 1
        cell = offsets[lane] // size
        wanted = combine(old, value) if active else int(start[cell])
        after = int(cells[cell])
        f = FLOAT_OF.get(name, (None, None))[1]
        assert after == wanted or (f and f.is_nan(after) and f.is_nan(wanted)), (
            f"{text} {old:#x} {value:#x}: {after:#x}, not {wanted:#x}"
        )
        kept = OLD | OLD << 32 if bits == 64 else OLD
        before = value if space == "buffer" else kept
        assert got[lane] == (old if active and returns else before), f"{text}: lane {lane} returned {got[lane]:#x}"


@covers(*[f"{space}_atomic_cmpswap{x}" for space in ("global", "buffer") for x in ("", "_x2")])
@pytest.mark.parametrize("space", ["global", "buffer"])
@pytest.mark.parametrize("bits", [32, 64])
def test_compare_and_swap(space, bits):
    """The new value is the first operand, the expected one the second; sc0 requests the old value and sets no scope."""
    size, memory = bits // 8, Memory()
    cells = memory.bytes[: 64 * size].view(f"u{size}")
    start = cells.copy()
    expected = [int(c) ^ (n % 2) for n, c in enumerate(start)]
    new = [n * 0x0102030405060708 % (1 << bits) for n in LANES]
    v = {
        8: [(memory.address + size * n) & 0xFFFFFFFF for n in LANES],
        9: [(memory.address + size * n) >> 32 for n in LANES],
        10: [size * n for n in LANES],
    }
    if bits == 32:
        v |= {2: new, 3: expected}
    else:
        v |= {
            2: [x & 0xFFFFFFFF for x in new],
            3: [x >> 32 for x in new],
            4: [x & 0xFFFFFFFF for x in expected],
            5: [x >> 32 for x in expected],
        }
    data, suffix = ("v[2:3]", "") if bits == 32 else ("v[2:5]", "_x2")
    s = {4: memory.address & 0xFFFFFFFF, 5: memory.address >> 32, 6: 0x7FFFFFFE, 7: 0x27000}
    if space == "global":
        text = f"global_atomic_cmpswap{suffix} {'v0' if bits == 32 else 'v[0:1]'}, v[8:9], {data}, off sc0"
    else:
        text = f"buffer_atomic_cmpswap{suffix} {data}, v10, s[4:7], 0 offen sc0"
    result = execute(text, v=v, s=s, exec=MASK, memory=memory.known)
    register = 0 if space == "global" else 2
    got = result.v64(register) if bits == 64 else result.v(register)
    for n in LANES:
        active = MASK >> n & 1
        assert cells[n] == (new[n] if active and n % 2 == 0 else start[n])
        if active:
            assert got[n] == start[n]


def test_lanes_of_one_instruction_on_one_address_happen_one_after_the_other():
    memory = Memory()
    memory.bytes[:4] = 0
    v = {2: 1, 8: memory.address & 0xFFFFFFFF, 9: memory.address >> 32}
    result = execute("global_atomic_add v0, v[8:9], v2, off sc0", v=v, memory=memory.known)
    assert sorted(result.v(0)) == LANES
    assert memory.bytes[:4].view(np.uint32)[0] == 64
    memory.bytes[:4] = 0
    result = execute("global_atomic_pk_add_f16 v0, v[8:9], v2, off sc0", v={**v, 2: 0x3C003C00}, memory=memory.known)
    assert memory.bytes[:4].view(np.float16).tolist() == [64.0, 64.0]
    assert len(set(result.v(0))) == 64


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("global_atomic_add v[8:9], v2, off", 4),
        ("global_atomic_add_x2 v[8:9], v[2:3], off", 8),
        ("global_atomic_pk_add_f16 v[8:9], v2, off", 4),
    ],
)
def test_a_misaligned_atomic_faults(text, size):
    memory = Memory()
    address = memory.address + 64 + size // 2
    with pytest.raises(MemoryFault, match=f"misaligned {size}-byte atomic") as fault:
        execute(text, v={8: address & 0xFFFFFFFF, 9: address >> 32}, exec=1 << 5, memory=memory.known)
    assert fault.value.where["lane"] == 5
    assert fault.value.where["address"] == address


# -- local data share --------------------------------------------------------------------------------------------------

DS_READS = {
    "u8": (1, False, None),
    "i8": (1, True, None),
    "u16": (2, False, None),
    "i16": (2, True, None),
    "u8_d16": (1, False, 0),
    "u8_d16_hi": (1, False, 1),
    "i8_d16": (1, True, 0),
    "i8_d16_hi": (1, True, 1),
    "u16_d16": (2, False, 0),
    "u16_d16_hi": (2, False, 1),
    "b32": (4, False, None),
    "b64": (8, False, None),
    "b96": (12, False, None),
    "b128": (16, False, None),
}
DS_WRITES = {
    "b8": (1, 0),
    "b16": (2, 0),
    "b8_d16_hi": (1, 16),
    "b16_d16_hi": (2, 16),
    "b32": (4, 0),
    "b64": (8, 0),
    "b96": (12, 0),
    "b128": (16, 0),
}
LDS = bytes(random.Random(3).randbytes(8192))


def fill_lds():
    """Return instructions that fill LDS before a test: 64 lanes, 16 bytes each, eight times."""
    lines, v = [], {20: [16 * n for n in LANES]}
    for block in range(8):
        register = 24 + 4 * block
        lines.append(f"ds_write_b128 v20, v[{register}:{register + 3}] offset:{1024 * block}")
        for i in range(4):
            v[register + i] = [
                int.from_bytes(LDS[1024 * block + 16 * n + 4 * i : 1024 * block + 16 * n + 4 * i + 4], "little")
                for n in LANES
            ]
    return lines, v


def dump_lds(result):
    return result.wavefronts.chunk.lds.tobytes()


@covers(*[f"ds_read_{n}" for n in DS_READS])
@pytest.mark.parametrize("name", DS_READS)
def test_ds_read(name):
    size, sign, half = DS_READS[name]
    lines, v = fill_lds()
    offsets = spread(size)
    text = f"ds_read_{name} {registers(size)}, v8 offset:48"
    count = max(1, size // 4)
    result = execute(
        *lines,
        "s_mov_b64 exec, s[4:5]",
        text,
        v={**v, **dict.fromkeys(range(4), OLD), 8: offsets},
        s={4: MASK & 0xFFFFFFFF, 5: MASK >> 32},
        lds=8192,
    )
    for lane in LANES:
        raw = int.from_bytes(LDS[offsets[lane] + 48 : offsets[lane] + 48 + size], "little")
        value = signed(raw, 8 * size) & 0xFFFFFFFF if sign else raw
        if half is not None:
            value = (value & 0xFFFF) << 16 * half | OLD & 0xFFFF << 16 * (1 - half)
        if not MASK >> lane & 1:
            value = sum(OLD << 32 * i for i in range(count))
        assert sum(result.v(i)[lane] << 32 * i for i in range(count)) == value


@covers(*[f"ds_write_{n}" for n in DS_WRITES])
@pytest.mark.parametrize("name", DS_WRITES)
def test_ds_write(name):
    size, shift = DS_WRITES[name]
    offsets = spread(size)
    words = [[random.Random(i).getrandbits(32) ^ n for n in LANES] for i in range(4)]
    text = f"ds_write_{name} v8, {registers(size)} offset:48"
    result = execute(text, v={8: offsets, **{i: words[i] for i in range(4)}}, exec=MASK, lds=2048)
    wanted = bytearray(2048)
    for lane in LANES:
        if MASK >> lane & 1:
            value = sum(words[i][lane] << 32 * i for i in range(4)) >> shift
            wanted[offsets[lane] + 48 : offsets[lane] + 48 + size] = value.to_bytes(17, "little")[:size]
    assert dump_lds(result) == bytes(wanted)


@covers("ds_read2_b32 ds_read2_b64 ds_read2st64_b32 ds_read2st64_b64")
@pytest.mark.parametrize("target", [0, 8], ids=["apart", "over its own address"])
@pytest.mark.parametrize(
    ("name", "size", "stride"),
    [("ds_read2_b32", 4, 4), ("ds_read2_b64", 8, 8), ("ds_read2st64_b32", 4, 256), ("ds_read2st64_b64", 8, 512)],
)
def test_ds_read2(name, size, stride, target):
    lines, v = fill_lds()
    offsets = [size * n for n in LANES]
    text = f"{name} v[{target}:{target + size // 2 - 1}], v8 offset0:1 offset1:3"
    result = execute(*lines, text, v={**v, 8: offsets}, lds=8192)
    for lane in LANES:
        wanted = b"".join(LDS[offsets[lane] + k * stride : offsets[lane] + k * stride + size] for k in (1, 3))
        got = b"".join(result.v(target + i)[lane].to_bytes(4, "little") for i in range(size // 2))
        assert got == wanted


@covers("ds_write2_b32 ds_write2_b64 ds_write2st64_b32 ds_write2st64_b64")
@pytest.mark.parametrize(
    ("name", "size", "stride"),
    [("ds_write2_b32", 4, 4), ("ds_write2_b64", 8, 8), ("ds_write2st64_b32", 4, 256), ("ds_write2st64_b64", 8, 512)],
)
def test_ds_write2(name, size, stride):
    one, two = ("v0", "v2") if size == 4 else ("v[0:1]", "v[2:3]")
    words = {i: [100 * i + n for n in LANES] for i in range(4)}
    result = execute(
        f"{name} v8, {one}, {two} offset0:1 offset1:5",
        v={8: [size * n * 8 for n in LANES], **words},
        exec=1 << 3,
        lds=8192,
    )
    wanted = bytearray(8192)
    for first, k in ((0, 1), (2, 5)):
        at = size * 3 * 8 + k * stride
        wanted[at : at + size] = b"".join(words[first + i][3].to_bytes(4, "little") for i in range(size // 4))
    assert dump_lds(result) == bytes(wanted)


def test_an_lds_access_out_of_bounds_faults():
    with pytest.raises(MemoryFault, match="outside the 64 bytes of the work-group") as fault:
        execute("ds_write_b32 v8, v0", v={8: [n * 4 for n in LANES]}, lds=64)
    assert fault.value.where["lane"] == 16


# -- between lanes -----------------------------------------------------------------------------------------------------

WORDS = [random.Random(9).getrandbits(32) for _ in LANES]


@covers("v_readfirstlane_b32")
def test_readfirstlane():
    assert execute("v_readfirstlane_b32 s4, v1", v={1: WORDS}, exec=0xF0).s(4) == [WORDS[4]]
    assert execute("v_readfirstlane_b32 s4, v1", v={1: WORDS}).s(4) == [WORDS[0]]
    assert execute("v_readfirstlane_b32 s4, v1", v={1: WORDS}, exec=0).s(4) == [WORDS[0]]


@covers("v_readlane_b32")
def test_readlane():
    assert execute("v_readlane_b32 s4, v1, 63", v={1: WORDS}, exec=1).s(4) == [WORDS[63]]
    assert execute("v_readlane_b32 s4, v1, s2", v={1: WORDS * 2}, s={2: [67, 5]}, waves=2).s(4) == [WORDS[3], WORDS[5]]


@covers("v_writelane_b32")
def test_writelane():
    """The write ignores EXEC."""
    result = execute("v_writelane_b32 v1, s3, s2", v={1: WORDS * 2}, s={2: [0, 70], 3: [11, 12]}, exec=0, waves=2)
    assert result.v(1) == [11, *WORDS[1:], *WORDS[:6], 12, *WORDS[7:]]
    assert execute("v_writelane_b32 v1, 5, 63", v={1: WORDS}).v(1) == [*WORDS[:63], 5]


@covers("ds_bpermute_b32")
def test_bpermute():
    """A lane reads another lane's value, or 0 from an inactive one."""
    address = [random.Random(n).getrandbits(32) for n in LANES]
    result = execute("ds_bpermute_b32 v0, v1, v2 offset:8", v={0: OLD, 1: address, 2: WORDS}, exec=MASK, lds=64)
    for lane in LANES:
        source = (address[lane] + 8 & 0xFFFFFFFF) // 4 % 64
        value = WORDS[source] if MASK >> source & 1 else 0
        assert result.v(0)[lane] == (value if MASK >> lane & 1 else OLD)
    assert (
        execute("ds_bpermute_b32 v0, v1, v0", v={0: WORDS, 1: [4 * (63 - n) for n in LANES]}, lds=64).v(0)
        == WORDS[::-1]
    )


@covers("ds_permute_b32")
def test_permute():
    """A lane sends its value; of two senders the higher lane wins, and a lane without a sender gets 0."""
    address = [4 * (random.Random(n).randrange(64)) for n in LANES]
    result = execute("ds_permute_b32 v0, v1, v2", v={0: OLD, 1: address, 2: WORDS}, exec=MASK, lds=64)
    wanted = [0] * 64
    for lane in LANES:
        if MASK >> lane & 1:
            wanted[address[lane] // 4] = WORDS[lane]
    assert result.v(0) == [wanted[n] if MASK >> n & 1 else OLD for n in LANES]


@covers("v_mbcnt_lo_u32_b32 v_mbcnt_hi_u32_b32")
def test_mbcnt():
    """The two instructions number the active lanes: they count the bits of the mask below the lane."""
    low, high = MASK & 0xFFFFFFFF, MASK >> 32
    result = execute("v_mbcnt_lo_u32_b32 v0, s2, 0", "v_mbcnt_hi_u32_b32 v0, s3, v0", s={2: low, 3: high})
    assert result.v(0) == [(MASK & (1 << n) - 1).bit_count() for n in LANES]
    assert execute("v_mbcnt_lo_u32_b32 v0, -1, v1", v={1: 7}).v(0) == [7 + min(n, 32) for n in LANES]
    assert execute("v_mbcnt_hi_u32_b32 v0, v2, 3", v={2: WORDS}).v(0) == [
        3 + (WORDS[n] & (1 << max(n - 32, 0)) - 1).bit_count() for n in LANES
    ]


@covers("v_swap_b32")
def test_swap():
    result = execute("v_swap_b32 v0, v1", v={0: LANES, 1: WORDS}, exec=MASK)
    assert result.v(0) == [WORDS[n] if MASK >> n & 1 else n for n in LANES]
    assert result.v(1) == [n if MASK >> n & 1 else WORDS[n] for n in LANES]


# -- without effect on data --------------------------------------------------------------------------------------------


WAITS = [
    n for n, op in TABLE.items() if op.klass in ("wait", "other") and n not in ("s_trap", "s_sendmsg", "s_sethalt")
]


@covers(*WAITS)
@pytest.mark.parametrize("name", WAITS)
def test_waits_and_cache_operations_touch_nothing(name):
    """``buffer_wbl2`` and ``buffer_inv`` look like buffer instructions but do not load."""
    text = {
        "buffer_wbl2": "buffer_wbl2 sc0 sc1",
        "buffer_inv": "buffer_inv sc0 sc1",
        "s_waitcnt": "s_waitcnt vmcnt(0) lgkmcnt(0)",
    }.get(name, f"{name} 0")
    start = execute("s_nop 0", v=dict.fromkeys(range(8), WORDS), s=dict.fromkeys(range(16), 3))
    after = execute(text, v=dict.fromkeys(range(8), WORDS), s=dict.fromkeys(range(16), 3))
    assert np.array_equal(start.wavefronts.v, after.wavefronts.v)
    assert np.array_equal(start.wavefronts.s[:, :126], after.wavefronts.s[:, :126])
