"""Mode ``race`` without switches: wavefronts that do not communicate have the same verdict in any order."""

import numpy as np
import pytest

from harness.emulator.driver import schedule, single
from harness.emulator.driver.interleaved import InterleavedScheduler
from harness.emulator.listing.parser import parse
from harness.emulator.program.communication import communicates
from harness.emulator.watch import Seeded
from harness.emulator.watch.race import Race
from tests.emulator.watch.litmus import _LISTING, add, lines, load, store
from tests.emulator.watch.racing import WAIT, _race, outcome, race, until

SIZES = {4: ("dword", "v8"), 8: ("dwordx2", "v[8:9]"), 16: ("dwordx4", "v[8:11]")}


def accesses(random) -> list[str]:
    """Return plain accesses of all wavefronts of a work-group, most of them to words of their own, and barriers."""
    number = f"s_lshl_b32 s14, s2, {random.integers(8, 11)}"  # bytes of a work-group
    inner = f"s_lshl_b32 s15, s3, {random.integers(5, 9)}"  # and of a wavefront
    code = [number, inner, "s_add_u32 s14, s14, s15", "v_mov_b32_e32 v4, s14"]
    for _ in range(random.integers(1, 7)):
        name, data = SIZES[4 << random.integers(0, 3)]
        offset = 8 * int(random.integers(0, 16))
        code.append(
            (
                f"global_load_{name} {data}, v4, {{x}} offset:{offset}",
                f"global_store_{name} v4, {data}, {{x}} offset:{offset}",
                f"s_load_dword s20, {{x}}, {offset}",
                "s_barrier",
                WAIT,
            )[random.choice(5, p=(0.3, 0.3, 0.1, 0.15, 0.15))]
        )
    return lines(code)


def verdict(threads, seed, native):
    watch = Race(Seeded(seed))
    return outcome(_race(threads, watch, 3, 0, None, native), watch)


@pytest.mark.slow
def test_the_verdict_is_that_of_a_schedule_with_switches(monkeypatch):
    verdicts, others = [], []
    for number in range(60):
        random = np.random.default_rng(number)
        ranks = int(random.integers(1, 3))
        threads = [(int(random.integers(0, ranks)), accesses(random)) for _ in range(random.integers(1, 4))]
        for seed in range(3):
            here = verdict(threads, seed, True)
            assert here == verdict(threads, seed, False), "native code runs wavefronts in the order of the interpreter"
            with monkeypatch.context() as patch:
                patch.setattr(Race, "any_order", False)
                switched = verdict(threads, seed, False)
            if not here[3] + switched[3]:  # whether loads are those of copies depends on the order
                verdicts.append(here[0] == "None")
                assert verdicts[-1] == (switched[0] == "None"), f"program {number}, seed {seed}"
            others.append(here[-1] < switched[-1])
    assert set(verdicts) == {True, False}
    assert len(verdicts) > 100
    assert all(others), "fewer choices"


def test_each_seed_runs_wavefronts_from_the_first_or_from_the_last():
    backwards = {schedule.Scheduler([], Race(Seeded(seed))).backwards for seed in range(20)}
    assert backwards == {True, False}
    reports = set()
    for seed in range(20):
        report = race([(0, lines("; s3", store("x", 1)))], seed, waves=3)
        reports.add((report.where["first"]["wavefront"], report.where["second"]["wavefront"]))
    assert reports == {(0, 1), (2, 1)}


@pytest.mark.parametrize(("first", "second"), [(until("y", 1, ""), store("y", 1)), (store("y", 1), until("y", 1, ""))])
def test_work_groups_that_poll_plain_memory_do_not_wait_for_ever(first, second):
    for seed in range(4):
        assert race([(0, lines(first)), (0, lines(second))], seed) is not None


COMMUNICATE = {
    "plain accesses": (lines(load("x", 8), WAIT, store("y", 1), "s_barrier"), False),
    "local data": (["ds_write_b32 v0, v1", "ds_write2_b32 v0, v1, v2 offset1:1", "ds_read_b64 v[2:3], v0"], False),
    "lanes": (["ds_bpermute_b32 v1, v0, v2", "ds_swizzle_b32 v1, v2 offset:swizzle(SWAP,1)"], False),
    "an atomic": (lines(add("x", 8)), True),
    "a load with a scope": (lines(load("x", 8, "sc1")), True),
    "a store with a scope": (lines(store("x", 1, "sc0")), True),
    "an atomic of local data": (["ds_add_u32 v0, v1"], True),
    "a ticket of local data": (["ds_add_rtn_u32 v2, v0, v1"], True),
    "a scalar store": (["s_store_dword s20, s[4:5], 0x0"], True),
}


@pytest.mark.parametrize("name", COMMUNICATE)
def test_what_communicates(name):
    code, wanted = COMMUNICATE[name]
    body = "\n".join("\t" + line.format(x="s[4:5]", y="s[6:7]") for line in [*code, "s_endpgm"])
    program = single.decode(parse(_LISTING.format(name="kernel", code=body)), Race(Seeded(0)))
    assert communicates(program) is wanted


def test_a_program_that_communicates_is_switched(monkeypatch):
    """A work-group that takes what another one has published, which only some orders show."""
    pass_on = lines(store("x", 1), "buffer_wbl2 sc1", WAIT, store("y", 1, "sc1"))
    take = lines(load("y", 8, "sc1"), "buffer_inv sc1", "v_readfirstlane_b32 s13, v8", "s_cmp_lg_u32 s13, 1",
                 "s_cbranch_scc1 .Lover", store("x", 2), ".Lover:", load("z", 8))  # fmt: skip
    schedulers = []
    plain = InterleavedScheduler.run
    monkeypatch.setattr(InterleavedScheduler, "run", lambda self: (schedulers.append(self), plain(self)))
    for seed in range(8):
        verdict([(0, pass_on), (0, take)], seed, True)
    assert not any(each.unswitched for each in schedulers)
    assert len(schedulers) == 8
