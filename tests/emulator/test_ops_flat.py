"""Scratch and flat memory: spills, local arrays, and pointers to global, LDS or private memory."""

import numpy as np
import pytest

from harness.emulator import MemoryFault, UnimplementedInstruction
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
@pytest.mark.parametrize("name", RMW)
def test_flat_atomic(name):
    """On global memory it equals the ``global_atomic`` of the same name."""
    bits, combine = RMW[name]
    size, cases, memory = bits // 8, operands_of(name, bits), Memory()
    cells = memory.bytes[: 64 * size].view(f"u{size}")
    cells[:] = [old for old, _ in cases]
    full = [memory.address + size * n for n in LANES]
    v = {8: [a & 0xFFFFFFFF for a in full], 9: [a >> 32 for a in full],
         2: [c[1] & 0xFFFFFFFF for c in cases], 3: [c[1] >> 32 for c in cases]}  # fmt: skip
    pair = (lambda r: f"v[{r}:{r + 1}]") if bits == 64 else (lambda r: f"v{r}")
    result = execute(f"flat_atomic_{name} {pair(0)}, v[8:9], {pair(2)} sc0", v=v, memory=memory.known)
    assert (result.v64(0) if bits == 64 else result.v(0)) == [old for old, _ in cases]
    assert cells.tolist() == [combine(*case) for case in cases]


@pytest.mark.parametrize("bits", [32, 64])
def test_flat_compare_and_swap(bits):
    memory = Memory()
    cells = memory.bytes[: 8 * bits].view(f"u{bits // 8}")
    start = cells.tolist()
    v = {
        8: memory.address & 0xFFFFFFFF,
        9: memory.address >> 32,
        2: 7,
        3: 0,
        4: start[0] & 0xFFFFFFFF,
        5: start[0] >> 32,
    }
    if bits == 32:
        v[3] = start[0]
    text = "flat_atomic_cmpswap v[8:9], v[2:3]" if bits == 32 else "flat_atomic_cmpswap_x2 v[8:9], v[2:5]"
    execute(text, v=v, exec=1, memory=memory.known)
    assert cells.tolist() == [7, *start[1:]]


def test_bad_flat_accesses():
    text = "flat_load_dword v0, v[8:9]"
    with pytest.raises(MemoryFault, match="outside every known allocation"):
        execute(text, v={8: 64, 9: 0})
    with pytest.raises(MemoryFault, match="4-byte LDS access at 0x40, outside the 64 bytes"):
        execute(text, v={8: 64, 9: SHARED_APERTURE}, lds=64)
    with pytest.raises(MemoryFault, match="4-byte access to scratch at 0x40, outside the 64 bytes"):
        execute(text, v={8: 64, 9: PRIVATE_APERTURE}, private=64)
    with pytest.raises(UnimplementedInstruction, match="on LDS or the private segment"):
        execute("flat_atomic_add v[8:9], v0", v={8: 0, 9: SHARED_APERTURE}, lds=64)


def test_apertures_can_be_read():
    result = execute("s_mov_b64 s[2:3], src_shared_base", "s_mov_b64 s[4:5], src_private_base",
                     "s_mov_b64 s[6:7], src_shared_limit", "s_mov_b64 s[8:9], src_private_limit")  # fmt: skip
    assert result.s64(2) == [SHARED_APERTURE << 32]
    assert result.s64(4) == [PRIVATE_APERTURE << 32]
    assert result.s64(6) == [(SHARED_APERTURE << 32) + 0xFFFFFFFF]
    assert result.s64(8) == [(PRIVATE_APERTURE << 32) + 0xFFFFFFFF]
    assert np.all(result.wavefronts.s[:, 10:100] == 0)
