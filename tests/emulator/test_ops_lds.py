"""The local data share beyond plain reads and writes: atomics, transposing reads, and copies from global memory."""

import random

import numpy as np
import pytest

from harness.emulator import MemoryFault
from tests.emulator import edges
from tests.emulator.covering import covers
from tests.emulator.ieee import F32, F64, add
from tests.emulator.semantics import signed
from tests.emulator.single import execute
from tests.emulator.test_ops_memory import (
    LANES,
    LDS,
    MASK,
    OLD,
    Memory,
    dump_lds,
    fill_lds,
    float_least,
    float_maximum,
    least,
    operands_of,
    signed_maximum,
)
from tests.emulator.test_ops_memory import RMW as GLOBAL_RMW

# -- atomics -----------------------------------------------------------------------------------------------------------

RMW = {}
for bits in (32, 64):
    top = (1 << bits) - 1
    RMW |= {
        f"add_u{bits}": (bits, lambda a, b, t=top: a + b & t),
        f"sub_u{bits}": (bits, lambda a, b, t=top: a - b & t),
        f"rsub_u{bits}": (bits, lambda a, b, t=top: b - a & t),
        f"inc_u{bits}": (bits, lambda a, b: 0 if a >= b else a + 1),
        f"dec_u{bits}": (bits, lambda a, b: b if a == 0 or a > b else a - 1),
        f"min_u{bits}": (bits, min),
        f"max_u{bits}": (bits, max),
        f"min_i{bits}": (bits, least(bits)),
        f"max_i{bits}": (bits, signed_maximum(bits)),
        f"and_b{bits}": (bits, lambda a, b: a & b),
        f"or_b{bits}": (bits, lambda a, b: a | b),
        f"xor_b{bits}": (bits, lambda a, b: a ^ b),
    }
FLOATS = {"f32": F32, "f64": F64}
for kind, f in FLOATS.items():
    RMW |= {
        f"add_{kind}": (int(kind[1:]), lambda a, b, f=f: add(f, a, b)),
        f"min_{kind}": (int(kind[1:]), float_least(f)),
        f"max_{kind}": (int(kind[1:]), float_maximum(f)),
    }
RMW |= {f"pk_add_{half}": GLOBAL_RMW[f"pk_add_{half}"] for half in ("f16", "bf16")}


def cases_of(name, bits):
    kind = name.rsplit("_", 1)[1]
    if "pk_add" in name:
        return operands_of(name, bits)
    cases = edges.combinations([kind if kind in FLOATS else f"u{bits}"] * 2, name, limit=128)
    if kind in FLOATS:
        f = FLOATS[kind]
        cases = [c for c in cases if not any(map(f.is_nan, c)) and not all(map(f.is_zero, c))]
    return (cases * 64)[:64]


def split(words, register):
    return {register: [w & 0xFFFFFFFF for w in words], register + 1: [w >> 32 for w in words]}


def put(cells, size, register=20):
    """Return an instruction, and its registers, that writes cell n of ``cells`` at 64 + n * size."""
    data = f"v{register}" if size == 4 else f"v[{register}:{register + 1}]"
    return f"ds_write_b{8 * size} v19, {data} offset:64", {19: [size * n for n in LANES], **split(cells, register)}


def cells_of(result, size):
    return np.frombuffer(dump_lds(result)[64 : 64 + 64 * size], f"u{size}").tolist()


def rtn(name, returns):
    operation, kind = name.rsplit("_", 1)
    return f"ds_{operation}_rtn_{kind}" if returns else f"ds_{name}"


@covers(*[rtn(n, r) for n in RMW for r in (True, False)])
@pytest.mark.parametrize("returns", [True, False], ids=["returns", "no-return"])
@pytest.mark.parametrize("name", RMW)
def test_atomic(name, returns):
    bits, combine = RMW[name]
    size, cases = bits // 8, cases_of(name, bits)
    places = [n * 37 % 64 for n in LANES]
    start = [0] * 64
    for lane, (old, _) in enumerate(cases):
        start[places[lane]] = old
    write, v = put(start, size)
    pair = lambda r: f"v[{r}:{r + 1}]" if bits == 64 else f"v{r}"  # noqa: E731
    target = f"{pair(0)}, " if returns else ""
    result = execute(
        write,
        "s_mov_b64 exec, s[4:5]",
        f"{rtn(name, returns)} {target}v8, {pair(2)} offset:64",
        v={**v, 0: OLD, 1: OLD, 8: [size * p for p in places], **split([c[1] for c in cases], 2)},
        s={4: MASK & 0xFFFFFFFF, 5: MASK >> 32},
        lds=64 + 64 * size,
    )
    after, got = cells_of(result, size), result.v64(0) if bits == 64 else result.v(0)
    for lane, (old, value) in enumerate(cases):
        active = MASK >> lane & 1
        wanted = combine(old, value) if active else old
        assert after[places[lane]] == wanted, f"{name} {old:#x} {value:#x}: {after[places[lane]]:#x}, not {wanted:#x}"
        kept = OLD | OLD << 32 if bits == 64 else OLD
        assert got[lane] == (old if active and returns else kept)


@covers(*[rtn(f"cmpst_{k}", r) for k in ("b32", "b64", "f32", "f64") for r in (True, False)])
@pytest.mark.parametrize("returns", [True, False], ids=["returns", "no-return"])
@pytest.mark.parametrize("kind", ["b32", "b64", "f32", "f64"])
def test_compare_and_store(kind, returns):
    """The expected value precedes the new one; floats compare as numbers: -0 equals 0, NaN equals nothing."""
    bits, f = int(kind[1:]), FLOATS.get(kind)
    size = bits // 8
    words = [w for w, _ in edges.combinations([kind if f else f"u{bits}"] * 2, kind, limit=64)][:62]
    old = [*words, 0, 1 << bits - 1, *words][:64]
    expected = [o ^ (n % 3 == 1) for n, o in enumerate(old)]
    expected[len(words)], expected[len(words) + 1] = 1 << bits - 1, 0
    new = [n * 0x0102030405060708 % (1 << bits) for n in LANES]
    write, v = put(old, size)
    pair = lambda r: f"v[{r}:{r + 1}]" if bits == 64 else f"v{r}"  # noqa: E731
    target = f"{pair(0)}, " if returns else ""
    result = execute(
        write,
        "s_mov_b64 exec, s[4:5]",
        f"{rtn(f'cmpst_{kind}', returns)} {target}v8, {pair(2)}, {pair(4)} offset:64",
        v={**v, 0: OLD, 1: OLD, 8: [size * n for n in LANES], **split(expected, 2), **split(new, 4)},
        s={4: MASK & 0xFFFFFFFF, 5: MASK >> 32},
        lds=64 + 64 * size,
    )
    after, got = cells_of(result, size), result.v64(0) if bits == 64 else result.v(0)
    for n in LANES:
        same = old[n] == expected[n]
        if f:
            zeros = f.is_zero(old[n]) and f.is_zero(expected[n])
            same = (same or zeros) and not f.is_nan(old[n])
        active = MASK >> n & 1
        assert after[n] == (new[n] if active and same else old[n]), (kind, hex(old[n]), hex(expected[n]))
        if active and returns:
            assert got[n] == old[n]


@covers("ds_mskor_b32 ds_mskor_b64 ds_mskor_rtn_b32 ds_mskor_rtn_b64")
@covers("ds_wrxchg_rtn_b32 ds_wrxchg_rtn_b64 ds_wrap_rtn_b32")
@pytest.mark.parametrize(
    ("name", "bits", "combine"),
    [
        ("ds_mskor_b32", 32, lambda a, b, c: a & ~b | c),
        ("ds_mskor_b64", 64, lambda a, b, c: a & ~b | c),
        ("ds_mskor_rtn_b32", 32, lambda a, b, c: a & ~b | c),
        ("ds_mskor_rtn_b64", 64, lambda a, b, c: a & ~b | c),
        ("ds_wrxchg_rtn_b32", 32, lambda a, b, c: b),
        ("ds_wrxchg_rtn_b64", 64, lambda a, b, c: b),
        ("ds_wrap_rtn_b32", 32, lambda a, b, c: a - b if a >= b else a + c & 0xFFFFFFFF),
    ],
)
def test_two_operand_atomics(name, bits, combine):
    size, some = bits // 8, random.Random(name)
    old, first, second = ([some.getrandbits(bits) for _ in LANES] for _ in range(3))
    first[:2] = old[:2]
    write, v = put(old, size)
    pair = lambda r: f"v[{r}:{r + 1}]" if bits == 64 else f"v{r}"  # noqa: E731
    target, returns = (f"{pair(0)}, ", True) if "rtn" in name else ("", False)
    more = "" if "wrxchg" in name else f", {pair(4)}"
    result = execute(
        write,
        f"{name} {target}v8, {pair(2)}{more} offset:64",
        v={**v, 8: [size * n for n in LANES], **split(first, 2), **split(second, 4)},
        lds=64 + 64 * size,
    )
    assert cells_of(result, size) == [combine(a, b, c) for a, b, c in zip(old, first, second, strict=True)]
    if returns:
        assert (result.v64(0) if bits == 64 else result.v(0)) == old


@pytest.mark.parametrize("name", ["ds_add_rtn_u32", "ds_pk_add_rtn_f16"])
def test_lanes_that_meet_at_an_address_act_one_after_the_other(name):
    one = 1 if "u32" in name else 0x3C00
    result = execute(f"{name} v0, v8, v2 offset:4", v={2: one, 8: [4 * (n % 2) for n in LANES]}, lds=12)
    words = np.frombuffer(dump_lds(result), np.uint32).tolist()
    assert words == [0, 32, 32] if one == 1 else words == [0, 0x5000, 0x5000]
    assert len(set(result.v(0))) == 32


@pytest.mark.parametrize("waves", [1, 2])
def test_the_wavefronts_of_a_work_group_share_its_part(waves):
    code = ("ds_add_u32 v8, v2", "ds_read_b32 v1, v8")
    result = execute(*code, v={2: 3, 8: 0}, lds=16, waves=waves, native=waves == 1)  # no barrier orders them
    assert result.v(1) == [3 * 64 * waves] * 64 * waves


@pytest.mark.parametrize("name", ["ds_add_u32 v8, v0", "ds_pk_add_f16 v8, v0", "ds_add_u64 v8, v[0:1]"])
def test_a_bad_atomic_faults(name):
    size = 8 if "u64" in name else 4
    with pytest.raises(MemoryFault, match=f"misaligned {size}-byte LDS atomic") as fault:
        execute(name, v={8: [size * n + 2 * (n == 5) for n in LANES]}, lds=1024)
    assert fault.value.where["lane"] == 5
    with pytest.raises(MemoryFault, match="outside the 64 bytes of the work-group") as fault:
        execute(name, v={8: [size * n for n in LANES]}, lds=64)
    assert fault.value.where["lane"] == 64 // size


# -- transposing reads, addresses by lane ------------------------------------------------------------------------------


@covers("ds_read_b64_tr_b16@gfx950 ds_read_b64_tr_b8@gfx950 ds_read_b64_tr_b4@gfx950 ds_read_b96_tr_b6@gfx950")
@pytest.mark.parametrize(("width", "bits"), [(8, 16), (8, 8), (8, 4), (12, 6)])
def test_transposing_read(width, bits):
    """Of each 16 lanes, lane i receives column i of the matrix that they read row after row."""
    lines, v = fill_lds()
    places = [(n * 37 % 64) * width for n in LANES]
    count = 8 * width // bits
    name = f"ds_read_b{8 * width}_tr_b{bits} v[0:{width // 4 - 1}], v8 offset:48"
    result = execute(*lines, name, v={**v, 8: places}, lds=8192, arch="gfx950")
    for group in range(0, 64, 16):
        rows = "".join(
            f"{int.from_bytes(LDS[48 + p : 48 + p + width], 'little'):0{8 * width}b}"[::-1]
            for p in places[group : group + 16]
        )
        elements = [int(rows[k : k + bits][::-1], 2) for k in range(0, len(rows), bits)]
        for i in range(16):
            wanted = sum(elements[16 * k + i] << bits * k for k in range(count))
            assert sum(result.v(r)[group + i] << 32 * r for r in range(width // 4)) == wanted


@covers("ds_read_addtid_b32 ds_write_addtid_b32")
def test_addresses_by_lane():
    words = [random.Random(n).getrandbits(32) for n in LANES]
    lines = ["s_mov_b32 m0, 64", "ds_write_addtid_b32 v1 offset:16", "s_mov_b32 m0, 0xffff0048",
             "ds_read_addtid_b32 v0 offset:16"]  # fmt: skip
    result = execute(*lines, v={1: words}, lds=512)
    assert dump_lds(result)[80:336] == np.array(words, np.uint32).tobytes()
    assert result.v(0) == [*words[2:], 0, 0]
    with pytest.raises(MemoryFault, match="4-byte LDS access at 0x100, outside the 256 bytes"):
        execute("ds_read_addtid_b32 v0 offset:16", lds=256)


# -- copies from global memory -----------------------------------------------------------------------------------------

COPIES = {
    "ubyte": (1, False), "sbyte": (1, True), "ushort": (2, False), "sshort": (2, True), "dword": (4, False),
    "dwordx3": (12, False), "dwordx4": (16, False),
}  # fmt: skip


@covers(*[f"global_load_lds_{n}{'@gfx950' if 'x' in n else ''}" for n in COPIES])
@pytest.mark.parametrize("form", ["pair", "scalar base", "buffer"])
@pytest.mark.parametrize("name", COPIES)
def test_copy_to_lds(name, form):
    """Copies go to M0 + offset + lane * size, whichever lanes are active; a lane outside its buffer writes zeros."""
    size, sign = COPIES[name]
    slot, memory = max(4, size), Memory()
    offsets = [(n * 37 % 64) * size for n in LANES]
    low, high = memory.address & 0xFFFFFFFF, memory.address >> 32
    full = [memory.address + o for o in offsets]
    text = {
        "pair": f"global_load_lds_{name} v[8:9], off offset:16",
        "scalar base": f"global_load_lds_{name} v10, s[4:5] offset:16",
        "buffer": f"buffer_load_{name} v10, s[4:7], 0 offen offset:16 lds",
    }[form]
    result = execute(
        "s_mov_b32 m0, 32",
        text,
        v={8: [a & 0xFFFFFFFF for a in full], 9: [a >> 32 for a in full], 10: offsets},
        s={4: low, 5: high, 6: 16 + 60 * size, 7: 0x27000},
        exec=MASK,
        lds=48 + 64 * slot,
        memory=memory.known,
        arch="gfx950",
    )
    wanted = bytearray(48 + 64 * slot)
    for lane in LANES:
        raw = int.from_bytes(memory.before[offsets[lane] + 16 : offsets[lane] + 16 + size], "little")
        if form == "buffer" and offsets[lane] >= 60 * size:
            raw = 0
        if MASK >> lane & 1:
            value = signed(raw, 8 * size) % (1 << 8 * slot) if sign else raw
            wanted[48 + lane * slot : 48 + (lane + 1) * slot] = value.to_bytes(slot, "little")
    assert dump_lds(result) == bytes(wanted)


def test_a_bad_copy_faults():
    memory = Memory()
    v = {8: memory.address & 0xFFFFFFFF, 9: memory.address >> 32}
    with pytest.raises(MemoryFault, match="4-byte LDS access at 0x40, outside the 64 bytes") as fault:
        execute("global_load_lds_dword v[8:9], off", v=v, lds=64, memory=memory.known)
    assert fault.value.where["lane"] == 16
    with pytest.raises(MemoryFault, match="0 bytes past the end of the test's memory"):
        execute("global_load_lds_dword v[8:9], off", v={**v, 8: v[8] + 4096}, lds=256, memory=memory.known)
