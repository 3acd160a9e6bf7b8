"""Exchanges of two values of the local data share, and its counters, against their definitions in the manual."""

import random

import numpy as np
import pytest

from harness.emulator import MemoryFault
from harness.emulator.faults import LdsRace, MissingWait, UndefinedValue
from harness.emulator.watch import Seeded
from harness.emulator.watch.weak import Weak
from tests.emulator.covering import covers
from tests.emulator.single import execute
from tests.emulator.test_ops_memory import LANES, MASK, OLD
from tests.emulator.test_ops_typed import launched
from tests.emulator.watch.checking import Memory, at, run


def words_of(result):
    return np.frombuffer(result.wavefronts.chunk.lds.tobytes(), np.uint32).tolist()


@covers("ds_append ds_consume")
@pytest.mark.parametrize(("name", "sign"), [("ds_append", 1), ("ds_consume", -1)])
def test_counters(name, sign):
    """The number of active lanes is added once; every active lane gets the old value."""
    fill = ["v_mov_b32_e32 v1, 100", "v_mov_b32_e32 v2, 8", "ds_write_b32 v2, v1 offset:12"]
    for mask in (MASK, 1 << 63, (1 << 64) - 1):
        result = execute(*fill, "s_mov_b32 m0, 8", "s_mov_b64 exec, s[4:5]", f"{name} v0 offset:12", v={0: OLD},
                         s={4: mask & 0xFFFFFFFF, 5: mask >> 32}, lds=64)  # fmt: skip
        assert result.v(0) == [100 if mask >> n & 1 else OLD for n in LANES]
        assert words_of(result)[5] == (100 + sign * mask.bit_count()) % (1 << 32)
        assert sum(words_of(result)) == words_of(result)[5], "nothing else was written"
    none = execute(*fill, "s_mov_b64 exec, 0", f"{name} v0 offset:20", v={0: OLD}, lds=64)
    assert none.v(0) == [OLD] * 64
    assert words_of(none)[5] == 100


def test_counters_of_several_wavefronts():
    result = execute("ds_append v0 offset:4", lds=8, waves=3)
    assert words_of(result)[1] == 192
    assert {tuple(set(result.v(0)[64 * w : 64 * w + 64])) for w in range(3)} == {(0,), (64,), (128,)}


def test_bad_counters_fault():
    with pytest.raises(MemoryFault, match="4-byte LDS access at 0x40, outside the 64 bytes"):
        execute("ds_append v0 offset:64", lds=64)
    with pytest.raises(MemoryFault, match="4-byte LDS access at 0x2, outside"):
        execute("ds_append v0 offset:2", lds=64)


@covers("ds_wrxchg2_rtn_b32 ds_wrxchg2_rtn_b64 ds_wrxchg2st64_rtn_b32 ds_wrxchg2st64_rtn_b64")
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("stride", ["", "st64"])
def test_two_exchanges(stride, bits):
    """Each of two places gets its own data; the old values are returned in the same order, also over the sources."""
    size, some = bits // 8, random.Random(bits)
    step = size * (64 if stride else 1)
    at_, words = [16 * (n * 37 % 64) for n in LANES], [[some.getrandbits(bits) for _ in LANES] for _ in range(4)]
    old, new = words[:2], words[2:]
    offsets = [4 * step, 8 * step] if stride else [2 * step, 3 * step]
    pair = (lambda r: f"v[{r}:{r + 1}]") if bits == 64 else (lambda r: f"v{r}")

    def split(values, first):
        return {first + i: [x >> 32 * i & 0xFFFFFFFF for x in values] for i in range(size // 4)}

    v = {8: at_, **split(old[0], 10), **split(old[1], 12), **split(new[0], 2), **split(new[1], 4)}
    numbers = [o // step for o in offsets]
    text = f"ds_wrxchg2{stride}_rtn_b{bits} v[2:{1 + 2 * size // 4}], v8, {pair(2)}, {pair(4)}"
    result = execute(
        f"ds_write2{stride}_b{bits} v8, {pair(10)}, {pair(12)} offset0:{numbers[0]} offset1:{numbers[1]}",
        "s_mov_b64 exec, s[4:5]", f"{text} offset0:{numbers[0]} offset1:{numbers[1]}",
        v=v, s={4: MASK & 0xFFFFFFFF, 5: MASK >> 32}, lds=8192,
    )  # fmt: skip
    share = result.wavefronts.chunk.lds.tobytes()
    for n in LANES:
        active = MASK >> n & 1
        for part in range(2):
            place = at_[n] + offsets[part]
            got = int.from_bytes(share[place : place + size], "little")
            assert got == (new if active else old)[part][n]
            if active:
                assert (result.v64 if bits == 64 else result.v)(2 + part * size // 4)[n] == old[part][n]


@covers("ds_condxchg32_rtn_b64")
def test_conditional_exchange():
    """The highest bit of each dword selects whether its other bits replace those in memory."""
    some = random.Random(1)
    old, data = ([some.getrandbits(64) for _ in LANES] for _ in range(2))
    v = {8: [8 * n + n % 8 for n in LANES], 9: [8 * n for n in LANES], 0: OLD, 1: OLD}
    for first, values in ((2, data), (4, old)):
        v |= {first: [x & 0xFFFFFFFF for x in values], first + 1: [x >> 32 for x in values]}
    result = execute("ds_write_b64 v9, v[4:5] offset:16", "s_mov_b64 exec, s[4:5]",
                     "ds_condxchg32_rtn_b64 v[0:1], v8, v[2:3] offset:16", v=v,
                     s={4: MASK & 0xFFFFFFFF, 5: MASK >> 32}, lds=16 + 512)  # fmt: skip
    words = words_of(result)[4:]
    for n in LANES:
        for half in range(2):
            before, new = old[n] >> 32 * half & 0xFFFFFFFF, data[n] >> 32 * half & 0xFFFFFFFF
            swaps = MASK >> n & 1 and new >> 31
            assert words[2 * n + half] == (new & 0x7FFFFFFF if swaps else before)
            assert result.v(half)[n] == (before if MASK >> n & 1 else OLD)


# -- mode check --------------------------------------------------------------------------------------------------------

FILL = ["v_mov_b32_e32 v1, 7", "v_mov_b32_e32 v2, 8", "ds_write_b32 v2, v1 offset:12", "s_waitcnt lgkmcnt(0)"]
STORE = ["v_mov_b32_e32 v3, 0", "global_store_dword v3, v0, s[4:5]", "s_endpgm"]


def test_a_counter_is_checked():
    memory = Memory()
    append = ["s_mov_b32 m0, 8", "ds_append v0 offset:12"]
    run(*FILL, *append, "s_waitcnt lgkmcnt(0)", *STORE, memory=memory, lds=64)
    assert at(memory.address) == 7
    with pytest.raises(MissingWait):
        run(*FILL, *append, *STORE, memory=memory, lds=64)
    with pytest.raises(UndefinedValue, match="the LDS address in m0 is undefined"):
        run(*FILL, append[1], "s_endpgm", memory=memory, lds=64)
    with pytest.raises(UndefinedValue, match="an undefined value is stored"):
        run(*FILL[:2], *append, "s_waitcnt lgkmcnt(0)", *STORE, memory=memory, lds=64)


def test_an_exchange_is_checked():
    """The second old value is defined only if its place in the share is."""
    memory = Memory()
    both = ["v_mov_b32_e32 v1, 7", "v_mov_b32_e32 v2, 8", "ds_write2_b32 v2, v1, v2 offset0:1 offset1:2"]
    swap = ["ds_wrxchg2_rtn_b32 v[4:5], v2, v1, v2 offset0:1 offset1:2", "s_waitcnt lgkmcnt(0)", "v_mov_b32_e32 v0, v5"]
    run(*both, "s_waitcnt lgkmcnt(0)", *swap, *STORE, memory=memory, lds=64)
    assert at(memory.address) == 8
    one = [*both[:2], "ds_write_b32 v2, v1 offset:4", "s_waitcnt lgkmcnt(0)"]
    with pytest.raises(UndefinedValue, match="an undefined value is stored"):
        run(*one, *swap, *STORE, memory=memory, lds=64)


def test_a_flat_atomic_on_the_share_is_checked():
    memory = Memory()
    flat = ["s_mov_b64 s[8:9], src_shared_base", "v_mov_b32_e32 v4, 20", "v_mov_b32_e32 v5, s9",
            "flat_atomic_add v0, v[4:5], v1 sc0", "s_waitcnt vmcnt(0) lgkmcnt(0)"]  # fmt: skip
    run(*FILL, "s_mov_b64 exec, 1", *flat, *STORE, memory=memory, lds=64)
    assert at(memory.address) == 7
    with pytest.raises(UndefinedValue, match="an undefined value is stored"):
        run(*FILL[:2], "s_mov_b64 exec, 1", *flat, *STORE, memory=memory, lds=64)


def test_counters_of_wavefronts_do_not_race_with_each_other():
    """But a read of the counter needs an s_barrier."""
    memory = Memory()
    fill = ["v_mov_b32_e32 v1, 0", "v_mov_b32_e32 v2, 8", "ds_write_b32 v2, v1 offset:12", "s_waitcnt lgkmcnt(0)",
            "s_barrier", "s_mov_b32 m0, 8", "ds_append v0 offset:12", "s_waitcnt lgkmcnt(0)"]  # fmt: skip
    read = ["ds_read_b32 v3, v2 offset:12", "s_waitcnt lgkmcnt(0)", "s_endpgm"]
    run(*fill, "s_barrier", *read, memory=memory, lds=64, waves=2)
    with pytest.raises(LdsRace, match=r"ds_read_b32|ds_append"):
        run(*fill, *read, memory=memory, lds=64, waves=2)


@pytest.mark.parametrize("seed", range(4))
def test_mode_weak(seed):
    """Results arrive at their s_waitcnt, or before: a register that is read earlier has either value."""
    memory = Memory()
    lines = [*memory.prologue(), *FILL, "s_mov_b32 m0, 8", "v_mov_b32_e32 v0, 1", "v_mov_b32_e32 v4, 1",
             "ds_append v0 offset:12", "ds_wrxchg2_rtn_b32 v[4:5], v2, v1, v2 offset0:3 offset1:4",
             "v_mov_b32_e32 v6, v0", "s_waitcnt lgkmcnt(0)", "v_mov_b32_e32 v3, 0"]  # fmt: skip
    store = [f"global_store_dword v3, v{v}, s[4:5] offset:{4 * n}" for n, v in enumerate((0, 4, 6))]
    launched(memory, Weak(Seeded(seed)), [*lines, "s_mov_b64 exec, 1", *store, "s_endpgm"], lds=64)
    appended, exchanged, early = memory.words[:3].tolist()
    assert (appended, exchanged) == (7, 71)
    assert early in (1, 7)
