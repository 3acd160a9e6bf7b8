"""Accesses by many lanes in mode ``race``: native code, with a history of sectors, judges as the interpreter."""

import numpy as np
import pytest

from harness.emulator.driver.schedule import Scheduler
from harness.emulator.native import race_shadow
from harness.emulator.watch import Seeded
from harness.emulator.watch.race import Race
from tests.emulator.watch.litmus import lines
from tests.emulator.watch.racing import WAIT, _race, outcome

NAMES = {1: ("ubyte", "byte", "v8"), 2: ("ushort", "short", "v8"), 4: ("dword", "dword", "v8"),
         8: ("dwordx2", "dwordx2", "v[8:9]"), 16: ("dwordx4", "dwordx4", "v[8:11]")}  # fmt: skip
GRANULE, SECTOR, LANES, WAVES = 4, race_shadow.SECTOR, 64, 2


def access(random, unit: int) -> list[str]:
    """Return an access by some lanes to successive bytes, whose first one is a multiple of ``unit``."""
    size = 1 << int(random.integers(0, 5))
    load, store, data = NAMES[size]
    first, past = 0, LANES
    if random.random() < 0.6:
        first = int(random.integers(0, LANES))
        past = min(LANES, first + int(random.integers(1, 6)))
    mask, offset = (1 << past) - (1 << first), unit * int(random.integers(0, 1024 // unit))
    return [
        f"s_mov_b32 exec_lo, {mask & 0xFFFFFFFF:#x}", f"s_mov_b32 exec_hi, {mask >> 32:#x}",
        "v_and_b32_e32 v4, 63, v5", f"v_lshlrev_b32_e32 v4, {size.bit_length() - 1}, v4",
        f"global_load_{load} {data}, v4, {{x}} offset:{offset}" if random.random() < 0.6
        else f"global_store_{store} v4, {data}, {{x}} offset:{offset}",
    ]  # fmt: skip


def accesses(random, unit: int) -> list[str]:
    """Return accesses of a wavefront at a time, most of them after a barrier."""
    code = ["s_mov_b64 exec, -1", "v_mov_b32_e32 v5, v0", "; s3"]
    for number in range(random.integers(2, 9)):
        label = f".LW{number}_{random.integers(0, 1 << 30)}"
        wave = random.integers(0, WAVES)
        code += [f"s_cmp_lg_u32 s3, {wave}", f"s_cbranch_scc1 {label}", *access(random, unit), f"{label}:"]
        code += ["s_barrier"] if random.random() < 0.8 else [WAIT]
    return lines(code)


def verdict(threads, seed: int, native: bool) -> list[object]:
    watch = Race(Seeded(seed))
    return outcome(_race(threads, watch, WAVES, 0, None, native), watch)


def programs(unit: int, count: int):
    for seed in range(count):
        random = np.random.default_rng(seed)
        yield seed, [(0, accesses(random, unit)) for _ in range(1 if random.random() < 0.8 else 2)]


@pytest.mark.parametrize("unit", [1, GRANULE, SECTOR, 16 * SECTOR])
def test_wide_accesses_have_the_verdict_of_the_interpreter(unit):
    verdicts = []
    for seed, threads in programs(unit, 80):
        verdicts.append(verdict(threads, seed, True))
        assert verdicts[-1] == verdict(threads, seed, False), f"seed {seed}"
    assert {verdict[0] == "None" for verdict in verdicts} == {True, False}, "some race, and some do not"


def only(wave: int, kind: str, first: int, lanes: int, size: int, step: int = 0) -> list[str]:
    """Return an access by the first lanes of one wavefront, ``step`` bytes from each other, or one after the other."""
    load, store, data = NAMES[size]
    mask, label = (1 << lanes) - 1, f".LO{wave}_{kind}_{first}_{lanes}_{size}"
    instruction = (
        f"global_load_{load} {data}, v4, {{x}}" if kind == "load" else f"global_store_{store} v4, {data}, {{x}}"
    )
    return [
        f"s_cmp_lg_u32 s3, {wave}", f"s_cbranch_scc1 {label}", f"s_mov_b32 exec_lo, {mask & 0xFFFFFFFF:#x}",
        f"s_mov_b32 exec_hi, {mask >> 32:#x}", "v_and_b32_e32 v4, 63, v5",
        f"v_lshlrev_b32_e32 v4, {(step or size).bit_length() - 1}, v4", f"{instruction} offset:{first}", f"{label}:",
    ]  # fmt: skip


BEGIN = ["s_mov_b64 exec, -1", "v_mov_b32_e32 v5, v0", "; s3"]
BEFORE = {
    "nothing": [],
    "a store to all": [*only(0, "store", 0, LANES, 16), *only(0, "store", 1024, LANES, 16), "s_barrier"],
    "stores to some": [*only(1, "store", 100, 1, 4), *only(0, "store", 640, 5, 8), "s_barrier"],
}


@pytest.mark.long
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("is_wide_first", [True, False])
@pytest.mark.parametrize("first", [256, 268])
def test_each_word_of_a_wide_access_is_judged(before, is_wide_first, first):
    bytes_ = 16 * LANES
    for at in range(first - 2 * SECTOR + 4, first + bytes_ + SECTOR, SECTOR - GRANULE):
        both = [only(0, "store", first, LANES, 16), only(1, "load" if is_wide_first else "store", at, 1, 4)]
        code = lines(BEGIN, BEFORE[before], *(both if is_wide_first else reversed(both)))
        for seed in range(2):  # the wavefronts run in either order
            races = verdict([(0, code)], seed + 6, True)[0] != "None"
            assert races == (first - GRANULE < at < first + bytes_), f"a word at {at}, seed {seed}"


def test_sectors_whose_granules_have_two_histories_are_judged():
    halves = only(0, "store", 256, LANES, 2, step=GRANULE)
    for at in range(256, 256 + GRANULE * LANES, SECTOR - 2):
        code = [BEGIN, halves, "s_barrier", only(0, "store", at, 1, 2), only(1, "load", 256, LANES, 4)]
        for seed in range(2):
            assert verdict([(0, lines(*code))], seed + 6, True)[0] != "None", f"a half word at {at}, seed {seed}"


def test_the_seeds_run_the_wavefronts_in_either_order():
    assert {Scheduler([], Race(Seeded(seed + 6))).backwards for seed in range(2)} == {True, False}
