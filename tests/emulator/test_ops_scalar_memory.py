"""Scalar stores and read-modify-writes, against their definitions in the manual; the watched modes."""

import random

import numpy as np
import pytest

from harness.emulator import MemoryFault
from harness.emulator.faults import DataRace, MissingWait, UndefinedValue, UnimplementedInstruction
from harness.emulator.watch import Seeded
from harness.emulator.watch.race import Race
from harness.emulator.watch.weak import Weak
from tests.emulator.covering import covers
from tests.emulator.single import execute
from tests.emulator.test_ops_memory import RMW, Memory
from tests.emulator.test_ops_typed import launched
from tests.emulator.watch import checking

INTEGER = {name: case for name, case in RMW.items() if "f" not in name}
WIDTHS = {1: "", 2: "x2", 4: "x4"}


def group(first, count):
    return f"s{first}" if count == 1 else f"s[{first}:{first + count - 1}]"


def base(memory, records=1 << 12, stride=0):
    return {4: memory.address & 0xFFFFFFFF, 5: memory.address >> 32 | stride << 16, 6: records, 7: 0}


def words(memory):
    return memory.bytes.view(np.uint32).tolist()


@covers(*[f"s_{space}store_dword{x}" for space in ("", "buffer_") for x in WIDTHS.values()])
@pytest.mark.parametrize("space", ["", "buffer_"])
@pytest.mark.parametrize("count", WIDTHS)
def test_stores(space, count):
    """Each wavefront stores once, whatever EXEC is; the two low bits of the address are ignored."""
    name = f"s_{space}store_dword{WIDTHS[count]} {group(16, count)}, {'s[4:7]' if space else 's[4:5]'}"
    for where, offset in (("0x10", 16), ("s8", 12), ("s8 offset:0x20", 44), ("0x13", 16)):
        memory = Memory()
        s = {**base(memory), 8: 12, **{16 + i: 0xABC00000 + i for i in range(count)}}
        execute(f"{name}, {where}", s=s, exec=0, memory=memory.known)
        wanted = np.frombuffer(memory.before, np.uint32).copy()
        wanted[offset // 4 : offset // 4 + count] = [0xABC00000 + i for i in range(count)]
        assert words(memory) == wanted.tolist(), where


def test_stores_of_several_wavefronts_and_ranges():
    memory = Memory()
    execute("s_store_dword s16, s[4:5], s8", s={**base(memory), 8: [0, 8], 16: [5, 6]}, waves=2, memory=memory.known)
    assert words(memory)[:4] == [
        5,
        np.frombuffer(memory.before, np.uint32)[1],
        6,
        np.frombuffer(memory.before, np.uint32)[3],
    ]
    for records, stride, stored in ((8, 0, 2), (3, 4, 3), (11, 0, 2), (0, 0, 0)):
        memory = Memory()
        s = {**base(memory, records, stride), **dict.fromkeys(range(16, 20), 77)}
        execute("s_buffer_store_dwordx4 s[16:19], s[4:7], 0x0", s=s, memory=memory.known)
        assert [w == 77 for w in words(memory)[:4]] == [i < stored for i in range(4)]
    with pytest.raises(MemoryFault, match="0 bytes past the end of the test's memory"):
        execute("s_store_dwordx2 s[16:17], s[4:5], 0x1000", s=base(memory), memory=memory.known)


@covers(*[f"s_{space}atomic_{name}" for space in ("", "buffer_") for name in INTEGER])
@pytest.mark.parametrize("space", ["", "buffer_"])
@pytest.mark.parametrize("name", INTEGER)
def test_atomics(name, space):
    bits, combine = INTEGER[name]
    count, some = bits // 32, random.Random(name)
    edges = [0, 1, (1 << bits) - 1, 1 << bits - 1, (1 << bits - 1) - 1, some.getrandbits(bits)]
    for old in edges:
        for value in edges:
            memory = Memory()
            memory.bytes[16 : 16 + bits // 8] = np.frombuffer(old.to_bytes(bits // 8, "little"), np.uint8)
            s = {**base(memory), 16: value & 0xFFFFFFFF, **({17: value >> 32} if count == 2 else {})}
            line = f"s_{space}atomic_{name} {group(16, count)}, {'s[4:7]' if space else 's[4:5]'}, 0x10"
            for text, returned in ((line, value), (f"{line} glc", old)):
                memory.bytes[16 : 16 + bits // 8] = np.frombuffer(old.to_bytes(bits // 8, "little"), np.uint8)
                result = execute(text, s=s, exec=0, memory=memory.known)
                assert int.from_bytes(memory.bytes[16 : 16 + bits // 8].tobytes(), "little") == combine(old, value)
                assert (result.s64(16) if count == 2 else result.s(16)) == [returned], text


@covers("s_atomic_cmpswap s_atomic_cmpswap_x2 s_buffer_atomic_cmpswap s_buffer_atomic_cmpswap_x2")
@pytest.mark.parametrize("space", ["", "buffer_"])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("equal", [True, False])
def test_compare_and_swap(count, space, equal):
    """The lower half of the data is the new value, the upper one the expected one."""
    memory = Memory()
    old = words(memory)[4 : 4 + count]
    new, expected = [7, 8][:count], [old[0] ^ (not equal), *old[1:]]
    s = {**base(memory), **{16 + i: w for i, w in enumerate([*new, *expected])}}
    name = f"s_{space}atomic_cmpswap{'_x2' if count == 2 else ''}"
    text = f"{name} {group(16, 2 * count)}, {'s[4:7]' if space else 's[4:5]'}, 0x10 glc"
    result = execute(text, s=s, memory=memory.known)
    assert words(memory)[4 : 4 + count] == (new if equal else old)
    assert [result.s(16 + i)[0] for i in range(2 * count)] == [*old, *expected]


def test_atomics_of_wavefronts_and_ranges():
    memory = Memory()
    memory.bytes[:] = 0
    result = execute("s_atomic_add s16, s[4:5], 0x0 glc", s={**base(memory), 16: 5}, waves=3, memory=memory.known)
    assert sorted(result.s(16)) == [0, 5, 10]
    result = execute("s_buffer_atomic_add s16, s[4:7], 0x8 glc", s={**base(memory, 8), 16: 5}, memory=memory.known)
    assert result.s(16) == [0]
    assert words(memory)[:3] == [15, 0, 0]
    with pytest.raises(MemoryFault, match="misaligned 8-byte atomic"):
        execute("s_atomic_add_x2 s[16:17], s[4:5], 0x4", s=base(memory), memory=memory.known)


# -- watched modes -----------------------------------------------------------------------------------------------------


def test_mode_check():
    memory = checking.Memory()
    checking.run("s_mov_b32 s9, 3", "s_store_dword s9, s[4:5], 0x10", "s_waitcnt lgkmcnt(0)", "s_endpgm", memory=memory)
    assert memory.words[4] == 3
    with pytest.raises(UndefinedValue, match="an undefined value in s9 is stored"):
        checking.run("s_store_dword s9, s[4:5], 0x10", "s_endpgm", memory=memory)
    with pytest.raises(UndefinedValue, match="the address depends on an undefined value in s10"):
        checking.run("s_mov_b32 s9, 3", "s_store_dword s9, s[4:5], s10", "s_endpgm", memory=memory)
    add = ["s_mov_b32 s9, 3", "s_atomic_add s9, s[4:5], 0x10 glc"]
    with pytest.raises(MissingWait):
        checking.run(*add, "s_mov_b32 s11, s9", "s_endpgm", memory=memory)
    checking.run(*add, "s_waitcnt lgkmcnt(0)", "s_store_dword s9, s[4:5], 0x14", "s_endpgm", memory=memory)
    assert memory.words[5] == 6


def test_memory_that_was_never_written():
    memory, watch = checking.Memory(), checking.Check(wait_states=False)
    watch.forget(memory.address, 64)
    checking.run("s_mov_b32 s9, 3", "s_store_dword s9, s[4:5], 0x10", "s_load_dword s10, s[4:5], 0x10",
                 "s_waitcnt lgkmcnt(0)", "s_store_dword s10, s[4:5], 0x80", "s_endpgm",
                 memory=memory, watch=watch)  # fmt: skip
    with pytest.raises(UndefinedValue, match="memory that was never written"):
        checking.run("s_mov_b32 s9, 3", "s_atomic_add s9, s[4:5], 0x20", "s_endpgm", memory=memory, watch=watch)


def test_modes_race_and_weak():
    memory = checking.Memory()
    own = [*memory.prologue(), "s_mov_b32 s9, 3"]
    launched(memory, Race(), [*own, "s_store_dword s9, s[4:5], 0x10", "s_endpgm"])
    with pytest.raises(DataRace, match="s_store_dword"):
        launched(
            memory,
            Race(),
            [*own, "s_store_dword s9, s[4:5], 0x10", "s_load_dword s9, s[4:5], 0x10", "s_endpgm"],
            waves=2,
        )
    launched(memory, Race(), [*own, "s_atomic_add s9, s[4:5], 0x10", "s_endpgm"], waves=2)
    with pytest.raises(UnimplementedInstruction, match="mode weak cannot track s_store_dword"):
        launched(memory, Weak(Seeded(0)), [*own, "s_store_dword s9, s[4:5], 0x10", "s_endpgm"])
