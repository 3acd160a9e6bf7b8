"""Scratch and flat memory: spills, local arrays, and pointers to global, LDS or private memory."""

import numpy as np
import pytest

from harness.emulator import MemoryFault
from harness.emulator.operations import atomics
from harness.emulator.wavefront.entry import PRIVATE_APERTURE, SHARED_APERTURE
from tests.emulator.covering import covers
from tests.emulator.semantics import signed
from tests.emulator.single import execute
from tests.emulator.test_ops_memory import LANES, LOADS, MASK, OLD, RMW, STORES, Memory, operands_of, registers

WORDS = [[(n + 1) * (0x9E3779B1 + 2 * i) & 0xFFFFFFFF for n in LANES] for i in range(4)]
LANE_BYTES = 64


def bytes_of(lane, size, shift=0):
    return (sum(WORDS[i][lane] << 32 * i for i in range(4)) >> shift).to_bytes(16, "little")[:size]


def loaded(result, lane, size):
    return sum(result.v(i)[lane] << 32 * i for i in range(max(1, size // 4)))


def extended(raw, size, sign, half, old=OLD):
    value = signed(raw, 8 * size) & 0xFFFFFFFF if sign else raw
    return value if half is None else (value & 0xFFFF) << 16 * half | old & 0xFFFF << 16 * (1 - half)


@pytest.mark.slow
@covers(*[f"scratch_load_{n}" for n in LOADS], *[f"scratch_store_{n}" for n in STORES])
@pytest.mark.parametrize(
    "form", ["off, {}, s2 offset:-4", "v8, {}, off offset:8", "v8, {}, s2", "off, {}, off offset:8"]
)
@pytest.mark.parametrize("name", LOADS)
def test_scratch(name, form):
    """A lane loads what it stored; other lanes do not see it, and inactive lanes neither store nor load."""
    size, sign, half = LOADS[name]
    spill = f"scratch_store_dwordx4 {form.format('v[12:15]')}"
    address, _, rest = form.format("").partition(", , ")
    text = f"scratch_load_{name} {registers(size)}, {address}, {rest}"
    result = execute(
        spill,
        "s_mov_b64 exec, s[4:5]",
        text,
        v={8: [0 if form.startswith("off") else 4 * (n % 8) for n in LANES],
           **dict.fromkeys(range(4), OLD), **{12 + i: WORDS[i] for i in range(4)}},
        s={2: 12, 4: MASK & 0xFFFFFFFF, 5: MASK >> 32},
        private=LANE_BYTES,
        waves=1,
    )  # fmt: skip
    for lane in LANES:
        if not MASK >> lane & 1:
            assert result.v(0)[lane] == OLD
            continue
        raw = int.from_bytes(bytes_of(lane, size), "little")
        assert loaded(result, lane, size) == extended(raw, size, sign, half), text


@pytest.mark.parametrize("name", STORES)
def test_scratch_stores_its_bytes_alone(name):
    size, shift = STORES[name]
    result = execute(
        "scratch_store_dwordx4 off, v[4:7], off offset:16",
        f"scratch_store_{name} off, {registers(size)}, off offset:16",
        "scratch_load_dwordx4 v[4:7], off, off offset:16",
        v={i: WORDS[i] for i in range(4)} | dict.fromkeys(range(4, 8), OLD),
        private=LANE_BYTES,
        waves=1,
    )
    for lane in LANES:
        wanted = (bytes_of(lane, size, shift) + OLD.to_bytes(4, "little") * 4)[:size] + (OLD.to_bytes(4, "little") * 4)[
            size:
        ]
        assert b"".join(result.v(4 + i)[lane].to_bytes(4, "little") for i in range(4)) == wanted


def test_accumulation_registers_are_spilled_too():
    result = execute(
        "v_accvgpr_write_b32 a5, v1", "scratch_store_dword off, a5, off", "scratch_load_dword a6, off, off",
        "v_accvgpr_read_b32 v0, a6", v={1: WORDS[0]}, private=16,
    )  # fmt: skip
    assert result.v(0) == WORDS[0]


@pytest.mark.parametrize(("offset", "fault"), [(61, "at 0x3d"), (-4, "at 0xfffffffc")])
def test_beyond_the_private_segment(offset, fault):
    for text in ("scratch_load_dword v0, off, s2", "scratch_store_dword off, v0, s2"):
        with pytest.raises(MemoryFault, match=f"4-byte access to scratch {fault}, outside the 64 bytes of the lane"):
            execute(text, s={2: offset & 0xFFFFFFFF}, private=64)


# -- flat --------------------------------------------------------------------------------------------------------------


def places(memory, offsets):
    """Return addresses of lanes: of each three, one in global memory, one in LDS, one in the private segment."""
    upper = [(memory.address >> 32, SHARED_APERTURE, PRIVATE_APERTURE)[n % 3] for n in LANES]
    lower = [((memory.address + o) & 0xFFFFFFFF, o, 16)[n % 3] for n, o in enumerate(offsets)]
    assert all((memory.address + o) >> 32 == memory.address >> 32 for o in offsets)
    return {8: lower, 9: upper}


@covers(*[f"flat_load_{n}" for n in LOADS])
@pytest.mark.parametrize("name", LOADS)
def test_flat_load(name):
    size, sign, half = LOADS[name]
    memory, offsets = Memory(), [16 * n for n in LANES]
    result = execute(
        "scratch_store_dwordx4 off, v[12:15], off offset:20",
        "ds_write_b128 v20, v[16:19] offset:4",
        "s_mov_b64 exec, s[4:5]",
        f"flat_load_{name} {registers(size)}, v[8:9] offset:4",
        v={**places(memory, offsets), 20: offsets, **dict.fromkeys(range(4), OLD),
           **{12 + i: WORDS[i] for i in range(4)}, **{16 + i: WORDS[3 - i] for i in range(4)}},
        s={4: MASK & 0xFFFFFFFF, 5: MASK >> 32},
        lds=2048,
        memory=memory.known,
        private=LANE_BYTES,
    )  # fmt: skip
    for lane in LANES:
        if not MASK >> lane & 1:
            assert result.v(0)[lane] == OLD
            continue
        shared = b"".join(WORDS[3 - i][lane].to_bytes(4, "little") for i in range(4))
        whole = (memory.before[offsets[lane] + 4 :], shared, bytes_of(lane, 16))[lane % 3]
        assert loaded(result, lane, size) == extended(int.from_bytes(whole[:size], "little"), size, sign, half)


@covers(*[f"flat_store_{n}" for n in STORES])
@pytest.mark.parametrize("name", STORES)
def test_flat_store(name):
    size, shift = STORES[name]
    memory, offsets = Memory(), [16 * n for n in LANES]
    result = execute(
        "s_mov_b64 exec, s[4:5]",
        f"flat_store_{name} v[8:9], {registers(size)} offset:4",
        "s_mov_b64 exec, -1",
        "scratch_load_dwordx4 v[12:15], off, off offset:20",
        v={**places(memory, offsets), **{i: WORDS[i] for i in range(4)}},
        s={4: MASK & 0xFFFFFFFF, 5: MASK >> 32},
        lds=2048,
        memory=memory.known,
        private=LANE_BYTES,
    )
    after, lds = bytearray(memory.before), bytearray(2048)
    for lane in LANES:
        data, at = bytes_of(lane, size, shift), offsets[lane] + 4
        active = MASK >> lane & 1
        if active and lane % 3 == 0:
            after[at : at + size] = data
        if active and lane % 3 == 1:
            lds[at : at + size] = data
        private = b"".join(result.v(12 + i)[lane].to_bytes(4, "little") for i in range(4))
        assert private == (data if active and lane % 3 == 2 else b"").ljust(16, b"\0")
    assert memory.bytes.tobytes() == bytes(after)
    assert result.wavefronts.chunk.lds.tobytes() == bytes(lds)


@covers(*atomics.names("flat"))
@pytest.mark.parametrize("returns", [True, False], ids=["returns", "no-return"])
@pytest.mark.parametrize("name", [*RMW, "cmpswap", "cmpswap_x2"])
def test_flat_atomic(name, returns):
    """Even lanes access global memory, odd ones the data share; every third lane is inactive."""
    compares = name.startswith("cmpswap")
    bits = RMW[name][0] if not compares else 64 if name.endswith("_x2") else 32
    size, memory, mask = bits // 8, Memory(), sum(1 << n for n in LANES if n % 3)
    if compares:
        # The data are the new value and the expected one, which every fifth lane gets wrong.
        start = [0x0123456789ABCDEF * (n + 1) % (1 << bits) for n in LANES]
        data = [(n + 7) | (start[n] ^ (n % 5 == 0)) << bits for n in LANES]
        after = [old if n % 5 == 0 else n + 7 for n, old in enumerate(start)]
    else:
        cases, combine = operands_of(name, bits), RMW[name][1]
        start, data, after = [old for old, _ in cases], [value for _, value in cases], [combine(*c) for c in cases]
    cells = memory.bytes[: 64 * size].view(f"u{size}")
    cells[:] = start
    full = [(SHARED_APERTURE << 32 if n % 2 else memory.address) + size * n for n in LANES]
    v = {8: [a & 0xFFFFFFFF for a in full], 9: [a >> 32 for a in full], 10: [size * n for n in LANES], 0: OLD, 1: OLD}
    v |= {2 + i: [x >> 32 * i & 0xFFFFFFFF for x in data] for i in range(4)}
    v |= {16 + i: [x >> 32 * i & 0xFFFFFFFF for x in start] for i in range(2)}
    pair = (lambda r: f"v[{r}:{r + 1}]") if bits == 64 else (lambda r: f"v{r}")
    operand = f"v[2:{1 + bits // 16}]" if compares else pair(2)
    text = (
        f"flat_atomic_{name} {pair(0)}, v[8:9], {operand} sc0" if returns else f"flat_atomic_{name} v[8:9], {operand}"
    )
    result = execute(
        f"ds_write_b{bits} v10, {pair(16)}", "s_mov_b64 exec, s[4:5]", text,
        v=v, s={4: mask & 0xFFFFFFFF, 5: mask >> 32}, memory=memory.known, lds=64 * size,
    )  # fmt: skip
    share = np.frombuffer(result.wavefronts.chunk.lds.tobytes(), f"u{size}").tolist()
    kept = OLD | OLD << 32 if bits == 64 else OLD
    for n in LANES:
        active = mask >> n & 1
        here, elsewhere = (share, cells.tolist()) if n % 2 else (cells.tolist(), share)
        assert here[n] == (after[n] if active else start[n]), (name, n)
        assert elsewhere[n] == start[n]
        assert (result.v64(0) if bits == 64 else result.v(0))[n] == (start[n] if active and returns else kept)


def test_bad_flat_accesses():
    text = "flat_load_dword v0, v[8:9]"
    with pytest.raises(MemoryFault, match="outside every known allocation"):
        execute(text, v={8: 64, 9: 0})
    with pytest.raises(MemoryFault, match="4-byte LDS access at 0x40, outside the 64 bytes"):
        execute(text, v={8: 64, 9: SHARED_APERTURE}, lds=64)
    with pytest.raises(MemoryFault, match="4-byte access to scratch at 0x40, outside the 64 bytes"):
        execute(text, v={8: 64, 9: PRIVATE_APERTURE}, private=64)
    with pytest.raises(MemoryFault, match="atomic on the private segment at 0x8: the hardware has none"):
        execute("flat_atomic_add v[8:9], v0 offset:8", v={8: 0, 9: PRIVATE_APERTURE}, private=64)
    with pytest.raises(MemoryFault, match="misaligned 8-byte LDS atomic at 0x4"):
        execute("flat_atomic_add_x2 v[8:9], v[0:1]", v={8: 4, 9: SHARED_APERTURE}, lds=64)


def test_apertures_can_be_read():
    result = execute("s_mov_b64 s[2:3], src_shared_base", "s_mov_b64 s[4:5], src_private_base",
                     "s_mov_b64 s[6:7], src_shared_limit", "s_mov_b64 s[8:9], src_private_limit")  # fmt: skip
    assert result.s64(2) == [SHARED_APERTURE << 32]
    assert result.s64(4) == [PRIVATE_APERTURE << 32]
    assert result.s64(6) == [(SHARED_APERTURE << 32) + 0xFFFFFFFF]
    assert result.s64(8) == [(PRIVATE_APERTURE << 32) + 0xFFFFFFFF]
    assert np.all(result.wavefronts.s[:, 10:100] == 0)
