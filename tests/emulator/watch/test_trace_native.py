"""Mode ``trace`` as native code: everything that it records is what the interpreter records."""

import numpy as np
import pytest
import torch

from harness import emulator
from harness.emulator.driver import schedule, traced
from harness.emulator.driver.schedule import Scheduler
from harness.emulator.execution.allocations import Allocations
from harness.emulator.execution.launch import Launch
from harness.emulator.faults import MemoryFault, TimeLimit
from harness.emulator.listing.parser import parse
from harness.emulator.native import replay_state as at
from harness.emulator.watch import Seeded
from harness.emulator.watch.trace import Trace
from tests.emulator import printing_kernels
from tests.emulator.single import listing
from tests.emulator.watch.trace_kernels import KERNELS, locks, loops, multiplies, produces, puts, turns


def recorded(watch, launches):
    """Return everything that is recorded. Addresses are those of the process, and offsets are recorded too."""
    timeline = watch.timeline
    accesses = [each._replace(address=0) for each in watch.accesses]
    return {
        "accesses": accesses,
        "spans": list(timeline.spans),
        "flows": [tuple(each._replace(address=0) for each in flow) for flow in timeline.flows],
        "samples": list(timeline.samples),
        "heat": watch.heat_map(),
        "launches": timeline.launches,
        "ends": (timeline.now, timeline.dropped),
        "counts": [(each.stalls, each.sources, each.lds_conflicts, each.instructions, each.lanes) for each in launches],
    }


@pytest.fixture
def native_launches(monkeypatch):
    """The launches that ran in native code."""
    launches = []
    run = traced.TracedScheduler.run
    monkeypatch.setattr(traced.TracedScheduler, "run", lambda self: (launches.append(self.launch), run(self))[1])
    return launches


@pytest.fixture
def trace(monkeypatch):
    """Return a function that runs a program, natively or not, and returns its results and all records."""

    def execute(program, is_native, seed=None, **options):
        find = traced.TracedHeat.find

        def forced(heat, launch):
            if all(each is not heat for each in known):
                known.append(heat)
                heat.force(is_native)
            return find(heat, launch)

        known = []
        with monkeypatch.context() as patch:
            patch.setattr(traced.TracedHeat, "find", forced)
            driver = emulator.activate(mode="trace", choices=seed, **options)
            try:
                results = program(driver)
                return results, recorded(driver.watch, driver.drain_launches())
            finally:
                emulator.deactivate()

    return execute


def same(first, second):
    """Check that two runs have the same results and records."""
    assert first[0] == second[0]
    for name, records in first[1].items():
        assert records == second[1][name], name


@pytest.mark.long
@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize("program", KERNELS, ids=lambda program: program.__name__)
def test_records_are_those_of_the_interpreter(program, seed, trace, native_launches):
    interpreted = trace(lambda driver: program(driver, launches=2), False, seed)
    assert not native_launches
    same(interpreted, trace(lambda driver: program(driver, launches=2), True, seed))
    assert len(native_launches) == 2


@pytest.mark.parametrize("program", [puts, produces, multiplies], ids=lambda program: program.__name__)
def test_records_beyond_the_limit_are_left_out(program, trace):
    """Samples are replaced, in the second launch those of the first one."""
    for limit in (1, 7, 90):
        runs = (
            trace(lambda driver: program(driver, launches=2), is_native, limit=limit, buckets=3)
            for is_native in (False, True)
        )
        same(*runs)


def test_more_wavefronts_than_a_chunk_or_the_device_holds(trace, monkeypatch):
    """Chunks start when all wavefronts of the earlier ones have used a turn, up to the number that is resident."""
    for size in (1, 4):
        monkeypatch.setattr(schedule, "CHUNK_WAVES", size)
        monkeypatch.setattr(traced, "CHUNK_WAVES", size)
        for resident in (3, 100):
            monkeypatch.setattr(schedule, "RESIDENT_WAVES", resident)
            monkeypatch.setattr(traced, "RESIDENT_WAVES", resident)
            for program in (turns, locks):
                same(*(trace(program, is_native) for is_native in (False, True)))


def test_a_queue_that_is_full_stops_a_wavefront(trace, monkeypatch):
    """``loops`` has more events than a queue has room for: native code returns to a wavefront that it has left."""
    begun = []
    answer = traced.TracedScheduler._answer
    monkeypatch.setattr(
        traced.TracedScheduler, "_answer", lambda self, why, x: (begun.append(why), answer(self, why, x))[1]
    )
    same(*(trace(loops, is_native) for is_native in (False, True)))
    assert at.NEEDS_SLOT in begun


def test_the_file_is_the_same(tmp_path, trace):
    files = []
    for is_native in (False, True):
        path = tmp_path / f"{is_native}.json"
        trace(lambda driver, path=path: (multiplies(driver), turns(driver), driver.watch.write(path))[:2], is_native)
        files.append(path.read_text())
    assert files[0] == files[1]


def test_native_and_interpreted_launches_in_one_timeline(trace, monkeypatch, native_launches):
    """Totals, times and heat go on from one launch to the other."""

    interpreted = trace(lambda driver: puts(driver, launches=3), False)
    schedule_of, ways = emulator.EmulatedDriver._native_scheduler, [True, False, True]

    def chosen(driver, launch):
        launch.program.heat.force(True)
        return schedule_of(driver, launch) if ways.pop(0) else None

    monkeypatch.setattr(emulator.EmulatedDriver, "_native_scheduler", chosen)
    driver = emulator.activate(mode="trace")
    try:
        results = puts(driver, launches=3)
        same(interpreted, (results, recorded(driver.watch, driver.drain_launches())))
    finally:
        emulator.deactivate()
    assert len(native_launches) == 2 and not ways


# -- listings ----------------------------------------------------------------------------------------------------------


def run(*lines, is_native, waves=1, groups=1, lds=0, choices=None, words=1024, limit=None):
    """Run a listing in which s[4:5] is the address of ``words`` dwords; return the watch, the launch and the memory."""
    memory = np.zeros(words, np.uint32)
    address = memory.ctypes.data
    code = [f"s_mov_b32 s4, {address & 0xFFFFFFFF:#x}", f"s_mov_b32 s5, {address >> 32:#x}", *lines, "s_endpgm"]
    watch, allocations = Trace(choices), Allocations()
    allocations.register(address, memory.nbytes, "words")
    program = traced.decode(parse(listing(*code)), watch)
    launch = Launch(program, (groups, 1, 1), waves, lds, np.zeros(8, np.uint8), allocations)
    if is_native:
        program.heat.force(True)
        translation = program.heat.find(launch)
        assert translation is not None
        scheduler = traced.TracedScheduler.under(watch, launch, translation, limit)
    else:
        scheduler = Scheduler([[launch]], watch, limit=limit)
    scheduler.run()
    return watch, launch, memory


def compare(*lines, **options):
    """Check that a listing leaves the same records and memory in both forms; return what ``run`` returns."""
    first, second = (run(*lines, is_native=is_native, **options) for is_native in (False, True))
    one, two = (recorded(watch, [launch.record("", "")]) for watch, launch, _ in (first, second))
    for name in one:
        assert one[name] == two[name], name
    assert first[2].tolist() == second[2].tolist()
    return second


EACH = "v_lshlrev_b32_e32 v1, 2, v0"


def test_wavefronts_that_diverge_and_wait_at_barriers():
    """Wavefronts of a work-group take other paths to the barrier, some end before it, and others loop after it."""
    lines = [
        EACH, "v_readfirstlane_b32 s6, v0", "s_lshr_b32 s6, s6, 6", "s_and_b32 s7, s6, 1", "s_cmp_eq_u32 s7, 0",
        "s_cbranch_scc1 .Leven", "global_store_dword v1, v0, s[4:5]", "s_cmp_eq_u32 s6, 3", "s_cbranch_scc1 .Lend",
        ".Leven:", "s_waitcnt vmcnt(0)", "s_barrier", ".Lloop:", "global_load_dword v2, v1, s[4:5]",
        "s_waitcnt vmcnt(0)", "s_sub_u32 s6, s6, 1", "s_cmp_gt_i32 s6, 0", "s_cbranch_scc1 .Lloop", "s_sleep 1",
        "s_barrier", ".Lend:",
    ]  # fmt: skip
    for choices in (lambda: None, lambda: Seeded(1), lambda: Seeded(2)):
        first, second = (
            run(*lines, is_native=is_native, waves=4, groups=3, choices=choices()) for is_native in (False, True)
        )
        one, two = (recorded(watch, [launch.record("", "")]) for watch, launch, _ in (first, second))
        assert one == two
        assert {span.name for span in first[0].timeline.spans} >= {"to s_barrier", "s_barrier", "to the end"}


def test_flows_of_single_bytes():
    """Lanes in reverse order store bytes; the other wavefront reads dwords that have several writers, across a page."""
    watch, _, _ = compare(
        "v_sub_u32_e32 v1, 8191, v0", "v_lshrrev_b32_e32 v4, 6, v0", "v_cmp_eq_u32_e32 vcc, 0, v4",
        "v_mov_b32_e32 v3, 7", "global_store_byte v1, v0, s[4:5] sc0 sc1", "s_waitcnt vmcnt(0)", "s_barrier",
        "v_lshlrev_b32_e32 v2, 2, v0", "v_xor_b32_e32 v2, 0x1f0c, v2", "global_load_dword v5, v2, s[4:5] sc0 sc1",
        "s_waitcnt vmcnt(0)", "s_barrier", "global_atomic_add v6, v2, v3, s[4:5] sc0", "s_waitcnt vmcnt(0)",
        "global_load_dword v5, v2, s[4:5] sc0 sc1", waves=4, words=8192,
    )  # fmt: skip
    assert len(watch.timeline.flows) > 2


def test_a_swap_writes_where_it_found_what_it_compared():
    """Half of the words are 1 at first: the swap of 0 for 5 writes the others, and one wavefront sees who did."""
    watch, _, memory = compare(
        EACH, "v_and_b32_e32 v1, 0xff, v1", "v_and_b32_e32 v2, 1, v0", "global_store_dword v1, v2, s[4:5]",
        "s_waitcnt vmcnt(0)", "s_barrier", "v_mov_b32_e32 v2, 5", "v_mov_b32_e32 v3, 0",
        "global_atomic_cmpswap v4, v1, v[2:3], s[4:5] sc0", "s_waitcnt vmcnt(0)", "s_barrier",
        "global_load_dword v4, v1, s[4:5] sc1", waves=2,
    )  # fmt: skip
    assert memory[:4].tolist() == [5, 1, 5, 1]
    assert {flow[0].kind for flow in watch.timeline.flows} == {"store", "atomic"}


def test_bank_conflicts_of_one_place_in_the_code():
    """The stride changes from turn to turn, and with it the conflicts; some lanes are inactive, others misaligned."""
    watch, launch, _ = compare(
        "s_mov_b32 s6, 0", "s_mov_b64 s[8:9], exec", ".Lloop:", "v_lshlrev_b32_e32 v1, s6, v0",
        "v_and_b32_e32 v1, 0xff8, v1", "ds_write_b64 v1, v[2:3]", "v_or_b32_e32 v1, 2, v1",
        "s_mov_b64 exec, 0x5555", "ds_read_u16 v4, v1 offset:2", "ds_read2_b32 v[6:7], v1 offset0:1 offset1:9",
        "s_mov_b64 exec, s[8:9]", "s_waitcnt lgkmcnt(0)", "s_add_u32 s6, s6, 1", "s_cmp_lt_u32 s6, 12",
        "s_cbranch_scc1 .Lloop", lds=8192, waves=2,
    )  # fmt: skip
    assert launch.lds_conflicts > 0 and len({s.conflicts for s in watch.timeline.samples}) > 4


def test_bank_conflicts_depend_on_where_in_a_dword_an_access_begins():
    """Lanes are 62 bytes apart: at an odd half of a dword, no two of them are in one bank."""
    watch, launch, _ = compare(
        "s_mov_b32 s6, 0", "v_mul_u32_u24_e32 v1, 62, v0", ".Lloop:", "ds_read_u16 v2, v1", "s_waitcnt lgkmcnt(0)",
        "v_add_u32_e32 v1, 2, v1", "s_add_u32 s6, s6, 2", "s_cmp_lt_u32 s6, 8", "s_cbranch_scc1 .Lloop", lds=8192,
    )  # fmt: skip
    assert launch.lds_conflicts == 4
    assert [sample.conflicts for sample in watch.timeline.samples] == [2, 4]


def test_parts_that_join_after_different_turns():
    """Wavefronts leave a loop after 1 to 40 turns of it and reach one place, in a launch whose others have waited."""
    lines = [
        EACH, "v_readfirstlane_b32 s6, v0", "s_lshr_b32 s6, s6, 6", "s_mul_i32 s6, s6, 39", ".Lloop:",
        "s_sub_u32 s6, s6, 1", "s_cmp_gt_i32 s6, 0", "s_cbranch_scc1 .Lloop", "global_load_dword v2, v1, s[4:5]",
        "s_mov_b32 s7, 33", ".Lagain:", "s_sub_u32 s7, s7, 1", "s_cmp_gt_i32 s7, 0", "s_cbranch_scc1 .Lagain",
        "s_waitcnt vmcnt(0)",
    ]  # fmt: skip
    for seed in (None, 1, 2, 3):
        choices = (None if seed is None else Seeded(seed) for _ in range(2))
        first, second = (
            run(*lines, is_native=is_native, waves=2, groups=300, choices=each)
            for is_native, each in zip((False, True), choices, strict=True)
        )
        one, two = (recorded(watch, [launch.record("", "")]) for watch, launch, _ in (first, second))
        assert one == two


def test_a_fault_ends_the_records_where_the_interpreter_ends_them():
    """The second store of the third wavefront is outside of the memory."""
    lines = [
        EACH, "global_store_dword v1, v0, s[4:5]", "s_waitcnt vmcnt(0)", "v_mul_u32_u24_e32 v1, 6, v1",
        "global_store_dword v1, v0, s[4:5]", "s_waitcnt vmcnt(0)", "global_load_dword v2, v1, s[4:5]",
    ]  # fmt: skip
    watches = []
    plain = Trace.__init__

    def noted(watch, *arguments, **options):
        watches.append(watch)
        plain(watch, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trace, "__init__", noted)
        faults = []
        for is_native in (False, True):
            with pytest.raises(MemoryFault, match="wavefront 2, lane 43") as caught:
                run(*lines, is_native=is_native, waves=3)
            faults.append(str(caught.value).partition(" by ")[2])
    assert faults[0] == faults[1]
    one, two = (recorded(watch, []) for watch in watches)
    assert one == two and len(one["accesses"]) == 3 and one["launches"][0].end is None


def test_a_kernel_that_waits_for_ever_reaches_its_limit():
    with pytest.raises(TimeLimit, match="polling"):
        run(
            "v_mov_b32_e32 v0, 0", ".Lspin:", "global_load_dword v1, v0, s[4:5] sc0 sc1", "s_waitcnt vmcnt(0)",
            "v_readfirstlane_b32 s6, v1", "s_cmp_eq_u32 s6, 0", "s_cbranch_scc1 .Lspin", is_native=True, limit=0.2,
        )  # fmt: skip


def test_a_program_with_an_instruction_without_a_native_form_is_interpreted(trace, native_launches):
    def prints(driver):
        lines = []
        driver.write = lines.append
        printing_kernels.print_scalars[(2,)](torch.tensor(3).item(), num_warps=2)
        return lines

    same(trace(prints, False), trace(prints, True))
    assert not native_launches
