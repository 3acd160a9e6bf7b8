"""Mode ``race`` as native code: the schedule and the verdicts are those of the interpreter; see also ``racing``."""

import numpy as np
import pytest

from harness.emulator.driver import interleaved, schedule
from harness.emulator.faults import DataRace
from harness.emulator.native import race_state
from harness.emulator.watch import Seeded
from harness.emulator.watch.race import Race
from harness.emulator.watch.race_log import Log
from tests.emulator.watch.comparing import KERNELS, activated, counts_of, lock, many, multiplies, prints, produce, waits
from tests.emulator.watch.executing import execute
from tests.emulator.watch.litmus import lines, load, store
from tests.emulator.watch.racing import WAIT, _race, outcome, until


@pytest.fixture
def used(monkeypatch):
    """Count the schedulers that are native."""
    made = []
    plain = interleaved.InterleavedScheduler.run

    def run(self):
        made.append(self)
        plain(self)

    monkeypatch.setattr(interleaved.InterleavedScheduler, "run", run)
    return made


def test_native_code_does_what_the_interpreter_does(used):
    for seed in range(4):
        assert execute("race", True, choices=Seeded(seed)) == execute("race", False, choices=Seeded(seed))
    assert len(used) == 4


# -- random accesses ---------------------------------------------------------------------------------------------------

LOADS = {1: "ubyte", 2: "ushort", 4: "dword", 8: "dwordx2", 16: "dwordx4"}
STORES = {1: "byte", 2: "short", 4: "dword", 8: "dwordx2", 16: "dwordx4"}
BITS = ("", "", "sc0", "sc1", "sc0 sc1")
EXPANDED = '.file 1 "/" "add.py"\n.loc 1 7 3\nglobal_load_dword v13, v0, {x}'
"""The load that guesses the value for a compare-and-swap of the same source line."""
PART = "v_and_or_b32 v12, v13, s21, v12"
FENCES = ("buffer_wbl2 sc1", "buffer_wbl2 sc0 sc1", "buffer_inv sc1", "buffer_inv sc0 sc1")


def access(random, spread: int) -> list[str]:
    """Return an access to ``spread`` bytes."""
    size = 1 << random.integers(0, 5)
    offset = int(random.integers(0, spread))
    bits = BITS[random.integers(0, len(BITS))]
    data = {8: "v[8:9]", 16: "v[8:11]"}.get(size, "v8")
    returning = f"offset:{offset & ~3} sc0 {bits.replace('sc0', '')}"
    half = f"s_mov_b32 s21, {('0xffff', '0xffff0000')[random.integers(0, 2)]}"
    return (
        f"global_load_{LOADS[size]} {data}, v0, {{x}} offset:{offset} {bits}",
        f"global_store_{STORES[size]} v0, {data}, {{x}} offset:{offset} {bits}",
        f"global_atomic_add v8, v0, v9, {{x}} {returning}",
        f"global_atomic_cmpswap v8, v0, v[10:11], {{x}} {returning}",
        f"{EXPANDED}\n{half}\n{PART}\nglobal_atomic_cmpswap v8, v0, v[12:13], {{x}} {returning}\n.loc 1 0 0",
        f"s_load_dword s20, {{x}}, {offset & ~3:#x}",
    )[random.choice(6, p=(0.3, 0.35, 0.1, 0.05, 0.1, 0.1))].split("\n")


def flag(random) -> list[str]:
    """Return what releases or acquires by word y, most of it."""
    bits = ("sc1", "sc0 sc1", "sc0 sc1")[random.integers(0, 3)]
    release = [f"buffer_wbl2 {bits}", WAIT, f"global_store_dword v0, v9, {{y}} {bits}"]
    exchange = [f"buffer_wbl2 {bits}", WAIT, "global_atomic_add v8, v0, v9, {y} sc0 sc1", WAIT, f"buffer_inv {bits}"]
    acquire = [f"global_load_dword v8, v0, {{y}} {bits}", WAIT, f"buffer_inv {bits}"]
    whole = (release, exchange, acquire)[random.integers(0, 3)]
    return [line for line in whole if random.random() < 0.92]


def accesses(random, spread: int) -> list[str]:
    """Return a few accesses of all wavefronts of a work-group, or of one, among what may order them."""
    code = ["; s3"] if random.random() < 0.5 else []
    for _ in range(random.integers(1, 9)):
        kind = random.integers(0, 8)
        if kind < 4:
            code += access(random, spread)
        elif kind < 7:
            code += flag(random)
        else:
            code.append(("s_barrier", WAIT, *FENCES)[random.integers(0, 6)])
    return lines(code)


def drawn(seed: int, spread: int):
    random = np.random.default_rng(seed)
    return [(int(random.integers(0, 2)), accesses(random, spread)) for _ in range(random.integers(2, 4))]


def verdict_of(threads, seed: int, native: bool, **options) -> list[object]:
    watch = Race(Seeded(seed), **options)
    return outcome(_race(threads, watch, 2, 0, None, native), watch)


@pytest.mark.long
@pytest.mark.parametrize("spread", [8, 40, 400])
@pytest.mark.parametrize("covers", ["work-group", "wavefront"])
def test_random_accesses_have_the_same_verdict(used, spread, covers):
    verdicts = []
    for seed in range(40):
        threads = drawn(seed, spread)
        verdicts.append(verdict_of(threads, seed, True, covers=covers))
        assert verdicts[-1] == verdict_of(threads, seed, False, covers=covers), f"seed {seed}"
    assert len(used) == len(verdicts)
    assert {verdict[0] == "None" for verdict in verdicts} == {True, False}, "some race, and some do not"


def test_a_conflict_that_native_code_misses_is_seen(monkeypatch):
    """A planted fault: native code takes every launch for one that has ended before it began."""
    plain, clocks = Race.start, []

    def start(self, launch):
        plain(self, launch)
        if self._log is not None:
            data = self._data[id(launch)][1]
            end = (1 << 30) + int(data[race_state.KEY >> 3])
            clocks.append(np.array([1, end << 32 | 1]))
            data[race_state.BEFORE >> 3 : race_state.AFTER >> 3] = clocks[-1].ctypes.data

    monkeypatch.setattr(Race, "start", start)
    assert any(verdict_of(drawn(n, 8), n, True) != verdict_of(drawn(n, 8), n, False) for n in range(20))


# -- kernels that Triton compiles --------------------------------------------------------------------------------------


def kernel_run(program, seed, is_native, monkeypatch):
    """Return all that shows what happened in a program's kernels."""
    with activated("race", seed, is_native, monkeypatch) as driver:
        try:
            result = program(driver)
        except DataRace as race:
            result = str(race)
        watch = driver.watch
        return result, counts_of(driver), watch.unspecified, watch.replicated, watch.choices.decisions


@pytest.mark.parametrize("program", KERNELS)
def test_a_kernel_runs_as_interpreted(used, monkeypatch, program):
    for seed in (3, 4, 5):
        assert kernel_run(program, seed, True, monkeypatch) == kernel_run(program, seed, False, monkeypatch)
    assert len(used) == 3


@pytest.mark.parametrize("resident", [1, 5])
def test_work_groups_start_when_others_have_ended(monkeypatch, resident):
    monkeypatch.setattr(schedule, "RESIDENT_WAVES", resident)

    for seed in (1, 2, 3):
        taken = kernel_run(many, seed, True, monkeypatch)
        assert taken[0] == 23
        assert taken == kernel_run(many, seed, False, monkeypatch)


@pytest.mark.parametrize("window", [1, 5])
@pytest.mark.parametrize("program", [many, waits])
def test_a_wide_launch_runs_as_interpreted(monkeypatch, window, program):
    """Also where those that run wait for others that have not started."""
    monkeypatch.setattr(schedule, "WINDOW_WAVES", window)
    for seed in range(4):
        assert kernel_run(program, seed, True, monkeypatch) == kernel_run(program, seed, False, monkeypatch)


# -- what Python does --------------------------------------------------------------------------------------------------


def judged(monkeypatch, program) -> list[int]:
    """Return how many events Python judges, each time that it judges any, in a program without a race."""
    counts = []
    plain = Log.judge

    def judge(self):
        blocks = self._native.take()
        counts.append(sum(len(block) for block in blocks))
        with monkeypatch.context() as patch:
            patch.setattr(self._native, "take", lambda: blocks)
            plain(self)

    monkeypatch.setattr(Log, "judge", judge)
    kernel_run(program, 3, True, monkeypatch)
    return counts


def test_a_kernel_without_a_conflict_stays_in_native_code(monkeypatch):
    assert judged(monkeypatch, multiplies) == []
    assert judged(monkeypatch, lock) == [], "what a lock protects is ordered"
    assert judged(monkeypatch, prints) != [], "the host serves its calls"


@pytest.mark.parametrize("ranks", [(0, 0), (0, 1)])
def test_a_released_message_stays_in_native_code(monkeypatch, ranks):
    counts = []
    plain = Log.judge
    monkeypatch.setattr(Log, "judge", lambda self: (counts.append(1), plain(self)))
    put = lines(store("x", 1), "buffer_wbl2 sc0 sc1", WAIT, store("y", 1, "sc0 sc1"))
    get = lines(until("y", 1), "buffer_inv sc0 sc1", load("x", 9), WAIT)
    for seed in range(4):
        watch = Race(Seeded(seed))
        assert _race([(ranks[0], put), (ranks[1], get)], watch, 1, 0, None, native=True) is None
        assert not counts
    assert _race([(ranks[0], put[:2] + put[4:]), (ranks[1], get)], Race(Seeded(0)), 1, 0, None, native=True)
    assert counts, "without a release"


def test_a_full_log_is_judged_by_python(monkeypatch):
    monkeypatch.setattr("harness.emulator.watch.race_log.BLOCK_WORDS", 100)
    monkeypatch.setattr("harness.emulator.watch.race_log.MOST_BLOCKS", 3)
    assert len(judged(monkeypatch, multiplies)) > 3
    taken = kernel_run(produce, 3, True, monkeypatch)
    assert taken == kernel_run(produce, 3, False, monkeypatch)


def test_python_judges_when_histories_take_too_much_memory(monkeypatch):
    monkeypatch.setattr("harness.emulator.watch.race_log.MOST_MEMORY_BLOCKS", 0)
    assert len(judged(monkeypatch, lock)) > 20
    assert kernel_run(lock, 3, True, monkeypatch) == kernel_run(lock, 3, False, monkeypatch)
