"""Buffer descriptors: records, swizzling, range checks; scalar loads through them; accumulation registers as data."""

import pytest

from harness.emulator import MemoryFault
from tests.emulator.covering import covers
from tests.emulator.single import execute
from tests.emulator.test_ops_memory import LANES, MASK, OLD, Memory


def descriptor(memory, records, stride=0, swizzle=False, element=0, group=0, add_lane=False):
    """Return registers s4 to s7. ``element``: log2 of element_size / 2; ``group``: log2 of index_stride / 8."""
    return {
        4: memory.address & 0xFFFFFFFF,
        5: memory.address >> 32 | stride << 16 | swizzle << 31,
        6: records,
        7: 0x27000 & ~(7 << 19) | element << 19 | group << 21 | add_lane << 23,
    }


def dword(memory, at):
    return int.from_bytes(memory.before[at : at + 4], "little")


def test_records_are_found_by_index():
    """idxen: base + offset + stride * index, and with a stride num_records counts records."""
    memory, index = Memory(), [n * 5 % 61 for n in LANES]
    s = descriptor(memory, 40, stride=20) | {8: 8}
    for text in ("buffer_load_dword v0, v1, s[4:7], s8 idxen offset:4",
                 "buffer_load_dword v0, v[1:2], s[4:7], s8 idxen offen",
                 "buffer_load_dword v0, v[1:2], s[4:7], 8 idxen offen"):  # fmt: skip
        result = execute(text, v={0: OLD, 1: index, 2: 4}, s=s, memory=memory.known, exec=MASK)
        for n in LANES:
            wanted = dword(memory, 20 * index[n] + 12) if index[n] < 40 else 0
            assert result.v(0)[n] == (wanted if MASK >> n & 1 else OLD), text


def test_swizzled_records_lie_interleaved():
    """``index_stride`` records are interleaved, ``element_size`` bytes of each in turn, as in AMD's address formula."""
    memory, index = Memory(), [n % 20 for n in LANES]
    s = descriptor(memory, 18, stride=16, swizzle=True, element=1, group=0)  # elements of 4 bytes, groups of 8 records
    for offset in (0, 4, 12):
        text = f"buffer_load_dword v0, v1, s[4:7], 0 idxen offset:{offset}"
        result = execute(text, v={1: index}, s=s, memory=memory.known)
        for n, i in enumerate(index):
            at = (i // 8 * 16 + offset // 4 * 4) * 8 + i % 8 * 4
            assert result.v(0)[n] == (dword(memory, at) if i < 18 else 0)
    # Beyond the record; and without an index all lanes access record 0, unless the descriptor adds the lane.
    assert execute("buffer_load_dword v0, v1, s[4:7], 0 idxen offset:16", v={1: 0}, s=s).v(0) == [0] * 64
    result = execute("buffer_load_dword v0, off, s[4:7], 0 offset:4", s=s, memory=memory.known)
    assert result.v(0) == [dword(memory, 32)] * 64
    s = descriptor(memory, 64, stride=16, swizzle=True, element=1, group=3, add_lane=True)
    result = execute("buffer_load_dword v0, v1, s[4:7], 0 offen", v={1: 4}, s=s, memory=memory.known)
    assert result.v(0) == [dword(memory, 4 * 64 + 4 * n) for n in LANES]


def test_stores_and_atomics_by_index():
    memory = Memory()
    s = descriptor(memory, 3, stride=12)
    execute(
        "buffer_store_dwordx2 v[2:3], v1, s[4:7], 0 idxen offset:4", v={1: LANES, 2: 7, 3: 8}, s=s, memory=memory.known
    )
    words = memory.bytes.view("u4").tolist()
    assert [words[3 * n + k] for n in range(3) for k in (1, 2)] == [7, 8] * 3
    assert [words[i] for i in (0, 3, 6)] == [dword(memory, 4 * i) for i in (0, 3, 6)]
    assert words[9:] == [dword(memory, 4 * i) for i in range(9, 1024)]
    for name, value in (("add", 1), ("pk_add_f16", 0x3C003C00)):
        memory.bytes[:] = 0
        v = {1: [n % 4 for n in LANES], 2: 4, 3: value}
        result = execute(f"buffer_atomic_{name} v3, v[1:2], s[4:7], 0 idxen offen sc0", v=v, s=s, memory=memory.known)
        total = 16 if name == "add" else 0x4C004C00
        assert memory.bytes[:48].view("u4").tolist() == [0, total, 0, 0, total, 0, 0, total, 0, 0, 0, 0]
        assert [result.v(3)[n] for n in range(3, 64, 4)] == [0] * 16


@pytest.mark.parametrize(("records", "whole"), [(16, 4), (15, 3), (8, 2), (4, 1), (3, 0)])
def test_dwords_are_checked_one_by_one(records, whole):
    """Of several dwords only those in range are accessed; the others are not even checked against the allocations."""
    memory = Memory()
    s = descriptor(memory, records)
    result = execute("buffer_load_dwordx4 v[0:3], v1, s[4:7], 0 offen", v={0: 9, 1: 0, 2: 9, 3: 9}, s=s,
                     memory=[(memory.address, max(4, whole * 4), "a small buffer")])  # fmt: skip
    wanted = [dword(memory, 4 * i) if i < whole else 0 for i in range(4)]
    assert [result.v(i) for i in range(4)] == [[w] * 64 for w in wanted]
    execute(
        "buffer_store_dwordx4 v[4:7], v1, s[4:7], 0 offen", v={1: 0, 4: 1, 5: 2, 6: 3, 7: 4}, s=s, memory=memory.known
    )
    assert memory.bytes[:16].view("u4").tolist() == [i + 1 if i < whole else dword(memory, 4 * i) for i in range(4)]


def test_a_partly_known_access_in_range_faults():
    memory = Memory()
    with pytest.raises(MemoryFault, match="outside every known allocation"):
        execute(
            "buffer_load_dwordx4 v[0:3], off, s[4:7], 0", s=descriptor(memory, 12), memory=[(memory.address, 4, "x")]
        )


def test_the_scalar_offset_counts_in_the_range_check():
    memory = Memory()
    s = descriptor(memory, 16) | {8: 12}
    assert execute("buffer_load_dword v0, off, s[4:7], s8", s=s, memory=memory.known).v(0) == [dword(memory, 12)] * 64
    assert execute("buffer_load_dword v0, off, s[4:7], s8 offset:4", s=s, memory=memory.known).v(0) == [0] * 64
    # An offset does not wrap around: it saturates.
    result = execute("buffer_load_dword v0, v1, s[4:7], 0 offen offset:8", v={1: 0xFFFFFFFC}, s=s, memory=memory.known)
    assert result.v(0) == [0] * 64


@pytest.mark.parametrize(
    ("name", "kept"),
    [("ubyte_d16", 0xFFFF0000), ("short_d16", 0xFFFF0000), ("sbyte_d16_hi", 0xFFFF), ("short_d16_hi", 0xFFFF),
     ("ubyte", 0), ("sshort", 0)],
)  # fmt: skip
def test_out_of_range_in_one_half(name, kept):
    """A d16 load that is out of range sets its half to 0, and keeps the other half."""
    memory = Memory()
    result = execute(f"buffer_load_{name} v0, off, s[4:7], 0 offset:64", v={0: OLD}, s=descriptor(memory, 16))
    assert result.v(0) == [OLD & kept] * 64


def test_the_base_has_48_bits():
    memory = Memory()
    s = descriptor(memory, 16)
    s[5] |= 0x7 << 16  # a stride without an index changes no address
    assert execute("buffer_load_dword v0, off, s[4:7], 0", s=s, memory=memory.known).v(0) == [dword(memory, 0)] * 64


@covers("s_buffer_load_dword s_buffer_load_dwordx2 s_buffer_load_dwordx4 s_buffer_load_dwordx8 s_buffer_load_dwordx16")
@pytest.mark.parametrize("words", [1, 2, 4, 8, 16])
def test_scalar_loads(words):
    memory = Memory()
    name = f"s_buffer_load_dword{'' if words == 1 else f'x{words}'}"
    target = "s16" if words == 1 else f"s[16:{15 + words}]"
    s = descriptor(memory, 64) | {8: 6, **dict.fromkeys(range(16, 32), OLD)}
    for text, offset in ((f"{name} {target}, s[4:7], 0x8", 8), (f"{name} {target}, s[4:7], s8 offset:0x10", 20),
                         (f"{name} {target}, s[4:7], 0x38", 56)):  # fmt: skip
        result = execute(text, s=s, exec=0, memory=memory.known)
        wanted = [dword(memory, offset + 4 * i) if offset + 4 * i < 64 else 0 for i in range(words)]
        assert [result.s(16 + i)[0] for i in range(words)] == wanted, text
    records = descriptor(memory, 2, stride=20)
    assert execute(f"{name} {target}, s[4:7], 0x24", s=records, memory=memory.known).s(16) == [dword(memory, 36)]
    with pytest.raises(MemoryFault, match="0 bytes past the end of the test's memory"):
        execute(f"{name} {target}, s[4:7], 0x1000", s=descriptor(memory, 1 << 20), memory=memory.known)


def test_accumulation_registers_as_data():
    memory = Memory()
    v = {8: memory.address & 0xFFFFFFFF, 9: memory.address >> 32}
    result = execute(
        "global_load_dwordx4 a[0:3], v[8:9], off offset:16", "global_store_dwordx2 v[8:9], a[2:3], off",
        "ds_write_b64 v10, a[0:1]", "ds_read_b64 a[4:5], v10", "v_accvgpr_read_b32 v0, a5",
        v=v, lds=8, memory=memory.known,
    )  # fmt: skip
    assert memory.bytes[:8].tobytes() == memory.before[24:32]
    assert result.v(0) == [dword(memory, 20)] * 64
