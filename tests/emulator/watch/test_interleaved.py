"""Mode ``weak`` as native code: the schedule, the events, the counters and the results are those of ``Scheduler``."""

import re
import signal

import numpy as np
import pytest

from harness.emulator import MemoryFault, NoProgress, TimeLimit
from harness.emulator.driver import interleaved, picking, schedule, single
from harness.emulator.execution.allocations import Allocations
from harness.emulator.execution.launch import Launch
from harness.emulator.listing.parser import parse
from harness.emulator.native import interleaved as native
from harness.emulator.watch import Drawn, Lazy, Seeded
from harness.emulator.watch.weak import Weak
from tests.emulator.watch.comparing import KERNELS, activated, counts_of, many, waits
from tests.emulator.watch.litmus import _LISTING, ACQUIRE, RELEASE, add, lines, load, run_watched, store, swap

SPIN = [".Lspin{n}:", *load("y", 8, "sc0 sc1"), *ACQUIRE, "v_readfirstlane_b32 s20, v8", "s_cmp_lg_u32 s20, 1"]
PASS = lines(store("x", 1), RELEASE, store("y", 1, "sc0 sc1"))


def spin(n, *then):
    return lines([line.format(n=n) if "spin" in line else line for line in SPIN], f"s_cbranch_scc1 .Lspin{n}", *then)


THREADS = {
    "message": ([(0, PASS), (1, spin(1, load("x", 9)))], [[], [8, 9]], 1),
    "message without a release": (
        [(0, lines(store("x", 1), store("y", 1, "sc0 sc1"))), (1, spin(1, load("x", 9)))], [[], [8, 9]], 1,
    ),
    "store buffering": (
        [(0, lines(store("x", 1), load("y", 8))), (1, lines(store("y", 1), load("x", 8)))], [[8], [8]], 1,
    ),
    "in one rank": ([(0, PASS), (0, spin(1, load("x", 9))), (0, spin(2, load("x", 9)))], [[], [8, 9], [9]], 2),
    "atomics": ([(rank, lines(add("x", 8), swap("y", rank), add("x", 9))) for rank in range(3)], [[8, 9]] * 3, 1),
    "barriers": (
        [(0, lines("v_mov_b32_e32 v7, s3", store("x", 1), "s_barrier", load("x", 8), "s_barrier", add("y", 9)))] * 2,
        [[8], [8]], 4,
    ),
    "sleep": ([(0, lines("s_sleep 1", PASS)), (1, spin(1, load("x", 9), "s_sleep 2"))], [[], [8, 9]], 1),
}  # fmt: skip


def events_of(watch):
    """Return the events; addresses differ from run to run."""
    return [re.sub("0x[0-9a-f]+", "address", line) for line in watch.story(4000)]


def watched(name, choices, is_native, **options):
    """Return all that shows what happened in a litmus test."""
    threads, loads, waves = THREADS[name]
    result, words, watch, launches = run_watched(threads, loads, choices, waves, is_native, **options)
    counts = [(each.waves, each.lanes, each.executions, each.access_lanes.tolist()) for each in launches]
    return result, words, events_of(watch), choices.decisions, counts, watch.model.changes, watch.issued


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


@pytest.mark.long
@pytest.mark.parametrize("name", THREADS)
@pytest.mark.parametrize("kind", [Seeded, Lazy])
@pytest.mark.parametrize("covers", ["work-group", "wavefront"])
def test_a_litmus_test_runs_as_interpreted(used, name, kind, covers):
    seeds = np.random.default_rng(len(name)).integers(0, 1 << 30, 12).tolist()
    runs = [[watched(name, kind(seed), way, covers=covers) for seed in seeds] for way in (True, False)]
    assert runs[0] == runs[1]
    assert len(used) == len(seeds)
    assert len({repr(run) for run in runs[0]}) > 1, "the seeds give different runs"


def test_choices_of_python_are_used():
    def drawn(seed):
        random = np.random.default_rng(seed)
        return Drawn(lambda n: int(random.integers(0, n)), limit=60)

    for seed in range(6):
        assert watched("message", drawn(seed), True) == watched("message", drawn(seed), False)


@pytest.mark.parametrize("slack", [0, 1])
def test_another_schedule_is_seen(monkeypatch, slack):
    """A scheduler that lets wavefronts run ahead less."""
    plain = [watched("in one rank", Seeded(seed), True) for seed in range(12)]
    monkeypatch.setattr(picking, "SLACK", slack)
    assert plain != [watched("in one rank", Seeded(seed), False) for seed in range(12)]


# -- kernels that Triton compiles --------------------------------------------------------------------------------------


def kernel_run(program, seed, is_native, monkeypatch):
    """Return all that shows what happened in a program's kernels."""
    with activated("weak", seed, is_native, monkeypatch) as driver:
        result = program(driver)
        events = [line[:6] + line[line.index(":") :] for line in driver.watch.story(4000)]
        return result, events, counts_of(driver), driver.watch.choices.decisions


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
    for seed in range(6):
        assert kernel_run(program, seed, True, monkeypatch) == kernel_run(program, seed, False, monkeypatch)


@pytest.mark.parametrize(
    ("owner", "name", "fault"),
    [
        (schedule, "WINDOW_WAVES", 2),
        (schedule.Order, "group", lambda order, place, groups: place),
        (schedule.Scheduler, "_widen", lambda self: False),
    ],
)
def test_another_start_is_seen(monkeypatch, owner, name, fault):
    """A scheduler with other wavefronts resident, or in another order."""
    monkeypatch.setattr(schedule, "WINDOW_WAVES", 5)
    wanted = [kernel_run(many, seed, True, monkeypatch) for seed in range(4)]
    monkeypatch.setattr(owner, name, fault)
    assert wanted != [kernel_run(many, seed, False, monkeypatch) for seed in range(4)]


def test_work_groups_start_in_several_orders():
    class Wide:
        groups = 48

    orders = []
    for seed in range(40):
        scheduler = schedule.Scheduler([], Weak(Seeded(seed)))
        order = scheduler._order(Wide)
        started = [order.group(place, Wide.groups) for place in range(Wide.groups)]
        assert sorted(started) == list(range(Wide.groups))
        orders.append(tuple(started))
    in_turn = orders.count(tuple(range(Wide.groups)))
    assert 5 < in_turn < 35
    assert len(set(orders)) > 10


# -- faults, hangs and interruptions -----------------------------------------------------------------------------------


def launched(code, is_native, lds=0, limit=None, closed=False):
    """Run two work-groups of two wavefronts on 64 words; return the memory."""
    memory = np.arange(64, dtype=np.uint32)
    allocations = Allocations()
    allocations.register(memory.ctypes.data, memory.nbytes, "words")
    watch = Weak(Seeded(5))
    program = single.decode(parse(_LISTING.format(name="kernel", code=code)), watch)
    if is_native:
        program.heat.use()
    kernarg = np.array([memory.ctypes.data], np.uint64).view(np.uint8)
    launch = Launch(program, (2, 1, 1), 2, lds, kernarg, allocations)
    interleaved.scheduler_of([[launch]], watch, closed, limit).run()
    return memory.tolist()


def test_wavefronts_that_python_begins_have_the_compute_unit_of_their_work_group(used):
    """The first instruction of wavefront 0 that makes a flight is a flat load, which Python issues."""
    memory = np.zeros(64, np.uint32)
    low, high = memory.ctypes.data & 0xFFFFFFFF, memory.ctypes.data >> 32
    code = "\n\t".join(lines(
        "\tv_readfirstlane_b32 s12, v0", f"s_mov_b32 s4, {low:#x}", f"s_mov_b32 s5, {high:#x}", "s_mov_b64 exec, 1",
        "v_mov_b32_e32 v0, 0", "v_mov_b32_e32 v10, s4", "v_mov_b32_e32 v11, s5", "s_cmp_lg_u32 s12, 0",
        "s_cbranch_scc1 .Lother", "flat_load_dword v8, v[10:11]", "\n.Lother:", "global_load_dword v9, v0, s[4:5]",
        "v_mov_b32_e32 v1, 1", "global_store_dword v0, v1, s[4:5]", "s_waitcnt vmcnt(0)", "s_barrier",
        "global_load_dword v12, v0, s[4:5]", "s_waitcnt vmcnt(0)", "s_endpgm",
    ))  # fmt: skip
    allocations = Allocations()
    allocations.register(memory.ctypes.data, memory.nbytes, "words")

    def ran(seed, is_native):
        memory[:] = 0
        watch = Weak(Seeded(seed))
        program = single.decode(parse(_LISTING.format(name="kernel", code=code)), watch)
        if is_native:
            program.heat.use()
        launch = Launch(program, (1, 1, 1), 3, 0, np.zeros(8, np.uint8), allocations)
        interleaved.scheduler_of([[launch]], watch, closed=True, limit=None).run()
        return events_of(watch), watch.choices.decisions, memory.tolist()

    for seed in range(8):
        assert ran(seed, True) == ran(seed, False)
    assert len(used) == 8


BEGIN = "\ts_load_dwordx2 s[4:5], s[0:1], 0x0\n\tv_lshlrev_b32_e32 v1, 2, v0\n\ts_waitcnt lgkmcnt(0)\n"
FAULTS = {
    "global": BEGIN + "\tglobal_load_dword v2, v1, s[4:5] offset:4\n\ts_waitcnt vmcnt(0)\n\ts_endpgm",
    "LDS": BEGIN + "\tds_write_b32 v1, v0 offset:8\n\ts_waitcnt lgkmcnt(0)\n\ts_endpgm",
    "scalar": "\ts_load_dwordx2 s[4:5], s[0:1], 0x40\n\ts_waitcnt lgkmcnt(0)\n\ts_endpgm",
    "end of the code": BEGIN,
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_that_of_the_interpreter(used, name):
    messages = []
    for way in (True, False):
        with pytest.raises(MemoryFault) as caught:
            launched(FAULTS[name], way, lds=128)
        messages.append(re.sub("0x[0-9a-f]+", "address", str(caught.value)))
    assert messages[0] == messages[1]
    assert len(used) == 1


FOR_EVER = (
    BEGIN
    + "\tv_mov_b32_e32 v1, 0\n"
    + """.Lagain:
\tglobal_load_dword v2, v1, s[4:5] sc0 sc1
\ts_waitcnt vmcnt(0)
\tv_readfirstlane_b32 s8, v2
\ts_cmp_lg_u32 s8, 7
\ts_cbranch_scc1 .Lagain
\ts_endpgm"""
)


def test_a_hang_is_reported_as_by_the_interpreter(used):
    messages = []
    for way in (True, False):
        with pytest.raises(NoProgress, match="polling 0x") as caught:
            launched(FOR_EVER, way, closed=True)
        messages.append(re.sub("0x[0-9a-f]+", "address", str(caught.value)))
    assert sorted(messages[0].splitlines()) == sorted(messages[1].splitlines())
    assert len(used) == 1


ALONE = "\ts_mov_b32 s8, 0\n.Lagain:\n\ts_add_u32 s8, s8, 1\n\ts_cmp_lg_u32 s8, 0\n\ts_branch .Lagain\n\ts_endpgm"


def test_a_time_limit_ends_a_loop_without_accesses(used):
    with pytest.raises(TimeLimit, match="kernel kernel"):
        launched(ALONE, True, limit=0.3)
    assert len(used) == 1


def test_an_interrupt_ends_a_loop_without_accesses(used):
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            launched(ALONE, True, limit=60.0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert len(used) == 1


def test_python_executes_what_native_code_leaves_to_it(monkeypatch):
    """All instructions, one at a time."""
    wanted = watched("message", Seeded(3), False)
    plain = interleaved.InterleavedScheduler.__init__

    def init(self, streams, watch, closed, limit, translations, isolated):
        for translation in translations.values():
            rows = translation.code[:, 0]
            rows[rows == native.execute.CALL] = native.execute.STOP
        plain(self, streams, watch, closed, limit, translations, isolated)

    monkeypatch.setattr(interleaved.InterleavedScheduler, "__init__", init)
    assert watched("message", Seeded(3), True) == wanted
