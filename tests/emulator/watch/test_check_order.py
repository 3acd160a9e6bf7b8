"""Mode check: waits, races in the local data share, barriers, and loops that wait for ever."""

import re

import pytest
import torch

from harness import emulator
from harness.emulator.faults import BarrierDivergence, DeviceFault, LdsRace, MemoryFault, MissingWait, NoProgress
from tests.emulator.watch import check_kernels as kernels
from tests.emulator.watch.checking import Memory, run

pytestmark = pytest.mark.usefixtures("form")


@pytest.fixture
def driver():
    yield emulator.activate(mode="check")
    emulator.deactivate()


# -- s_waitcnt ---------------------------------------------------------------------------------------------------------

LOAD = "global_load_dword v{}, v0, s[4:5]"
# The instructions issued, the wait, the instruction that uses a result, and whether that result is due.
WAITS = {
    "none": (["global_load_dword v1, v0, s[4:5]"], "s_nop 0", "v_mov_b32_e32 v2, v1", True),
    "vmcnt(0)": (["global_load_dword v1, v0, s[4:5]"], "s_waitcnt vmcnt(0)", "v_mov_b32_e32 v2, v1", False),
    "the other counter": (["global_load_dword v1, v0, s[4:5]"], "s_waitcnt lgkmcnt(0)", "v_mov_b32_e32 v2, v1", True),
    "both": (["global_load_dword v1, v0, s[4:5]"], "s_waitcnt vmcnt(0) lgkmcnt(0)", "v_mov_b32_e32 v2, v1", False),
    "a number": (["global_load_dword v1, v0, s[4:5]"], "s_waitcnt 0x0f70", "v_mov_b32_e32 v2, v1", False),
    "vmcnt(63)": (["global_load_dword v1, v0, s[4:5]"], "s_waitcnt vmcnt(63)", "v_mov_b32_e32 v2, v1", True),
    "the older of two": ([LOAD.format(1), LOAD.format(2)], "s_waitcnt vmcnt(1)", "v_mov_b32_e32 v3, v1", False),
    "the younger of two": ([LOAD.format(1), LOAD.format(2)], "s_waitcnt vmcnt(1)", "v_mov_b32_e32 v3, v2", True),
    "a store counts": ([LOAD.format(1), "global_store_dword v0, v0, s[4:5]"], "s_waitcnt vmcnt(1)",
                       "v_mov_b32_e32 v3, v1", False),
    "overwritten": ([LOAD.format(1)], "s_nop 0", "v_mov_b32_e32 v1, 0", True),
    "loaded again": ([LOAD.format(1)], "s_nop 0", LOAD.format(1), False),
    "loaded by LDS": ([LOAD.format(1)], "s_nop 0", "ds_read_b32 v1, v0", True),
    "a pair": (["global_load_dwordx2 v[2:3], v0, s[4:5]"], "s_nop 0", "v_mov_b32_e32 v9, v3", True),
    "stored": ([LOAD.format(1)], "s_nop 0", "global_store_dword v0, v1, s[4:5]", True),
    "an address": ([LOAD.format(1)], "s_nop 0", "global_load_dword v2, v1, s[4:5]", True),
    "an atomic": (["global_atomic_add v1, v0, v0, s[4:5] sc0"], "s_nop 0", "v_mov_b32_e32 v2, v1", True),
    "an atomic without result": (["global_atomic_add v0, v0, s[4:5]"], "s_nop 0", "v_mov_b32_e32 v2, v0", False),
    "scalar": (["s_load_dword s6, s[4:5], 0x0"], "s_nop 0", "s_add_u32 s7, s6, 1", True),
    "scalars in any order": (["s_load_dword s6, s[4:5], 0x0", "s_load_dword s7, s[4:5], 0x4"], "s_waitcnt lgkmcnt(1)",
                             "s_add_u32 s8, s6, 1", True),
    "scalar, waited for": (["s_load_dword s6, s[4:5], 0x0"], "s_waitcnt lgkmcnt(0)", "s_add_u32 s7, s6, 1", False),
    "scalar in a vector": (["s_load_dword s6, s[4:5], 0x0"], "s_nop 0", "v_add_u32_e32 v1, s6, v0", True),
    "LDS in order": (["ds_read_b32 v1, v0", "ds_read_b32 v2, v0"], "s_waitcnt lgkmcnt(1)", "v_mov_b32_e32 v3, v1",
                     False),
    "LDS next to a scalar": (["ds_read_b32 v1, v0", "s_load_dword s6, s[4:5], 0x0", "ds_read_b32 v2, v0"],
                            "s_waitcnt lgkmcnt(1)", "v_mov_b32_e32 v3, v1", False),
    "a lane move": (["ds_bpermute_b32 v1, v0, v0"], "s_nop 0", "v_mov_b32_e32 v2, v1", True),
    "a branch": (["s_load_dwordx2 vcc, s[4:5], 0x0"], "s_nop 0", "s_cbranch_vccz .L", True),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(WAITS))
def test_results_are_used_after_their_wait(name):
    issued, wait, use, due = WAITS[name]
    code = ["v_lshlrev_b32_e32 v0, 2, v0", "ds_write_b32 v0, v0", *issued, wait, use, ".L:", "s_endpgm"]
    if not due:
        run(*code, memory=Memory(), lds=256)
        return
    with pytest.raises(MissingWait, match=r"used before the s_waitcnt (vm|lgkm)cnt for its load") as caught:
        run(*code, memory=Memory(), lds=256)
    assert use in str(caught.value)
    assert any(line in str(caught.value) for line in issued), "both instructions are named"


def test_a_full_counter_makes_the_oldest_complete():
    loads = ["global_load_dword v1, v0, s[4:5]"] + ["global_load_dword v2, v0, s[4:5]"] * 63
    code = ["v_mov_b32_e32 v0, 0", *loads, "v_mov_b32_e32 v3, v1", "s_endpgm"]
    run(*code, memory=Memory())
    with pytest.raises(MissingWait):
        run(*(line for i, line in enumerate(code) if i != 5), memory=Memory())


def test_wavefronts_that_meet_keep_what_each_has_outstanding():
    """Wavefront 1 loads before both reconverge; the load's result is due in that wavefront only."""
    code = [
        "v_lshlrev_b32_e32 v0, 2, v0", "v_mov_b32_e32 v1, 0", "v_cmp_lt_u32_e32 vcc, 0xff, v0", "s_cbranch_vccz .L",
        "global_load_dword v1, v0, s[4:5]", ".L:", "s_nop 0", "v_mov_b32_e32 v2, v1", "s_endpgm",
    ]  # fmt: skip
    with pytest.raises(MissingWait, match="wavefront 1"):
        run(*code, memory=Memory(), waves=2)
    waited = [line.replace("s_nop 0", "s_waitcnt vmcnt(0)") for line in code]
    run(*waited, memory=Memory(), waves=2)


# -- every wait of a compiled kernel -----------------------------------------------------------------------------------


def launch_product():
    a, b, c = torch.ones(32, 64, dtype=torch.float16), torch.ones(64, 32, dtype=torch.float16), torch.zeros(32, 32)
    kernels.product[(1,)](a, b, c, 32, 64, num_warps=4)
    return c


def launch_turn():
    src, dst = torch.arange(4096, dtype=torch.int32).view(64, 64), torch.zeros(64, 64, dtype=torch.int32)
    kernels.turn_through_lds[(1,)](src, dst, 4, num_warps=4)
    return dst


def launch_shares():
    out = torch.zeros(4, 256)
    kernels.row_shares[(4,)](torch.ones(4, 256), out, 256, 512, num_warps=4)
    return out


def launch_put():
    dst = torch.zeros(1000, dtype=torch.int16)
    kernels.put[(2,)](torch.ones(1000, dtype=torch.int16), dst, 1000, 1000, 512, num_warps=1)
    return dst


LAUNCHES = {f.__name__: f for f in (launch_product, launch_turn, launch_shares, launch_put)}


def drop_one(pattern: str, number: int):
    """Return a rewrite that makes the ``number``-th line that matches an s_nop, counted after the preload prologue."""

    def rewrite(name: str, text: str) -> str:
        start = text.index("\n", text.rindex(".p2align\t8", 0, text.index("s_endpgm")))
        line = list(re.finditer(pattern, text[start:]))[number]
        return text[: start + line.start()] + "s_nop 0" + text[start + line.end() :]

    return rewrite


def lines_of(driver, pattern: str) -> list[str]:
    text = driver.drain_launches()[-1].listing
    return re.findall(pattern, text[text.rindex(".p2align\t8", 0, text.index("s_endpgm")) :])


@pytest.mark.parametrize("launch", sorted(LAUNCHES))
def test_every_wait_is_needed(driver, launch):
    """Without any one of its s_waitcnt the kernel fails: a result is used too early, or LDS accesses race."""
    LAUNCHES[launch]()
    waits = lines_of(driver, r"s_waitcnt [^\n;]*")
    assert waits
    for number in range(len(waits)):
        driver.rewrite = drop_one(r"s_waitcnt [^\n;]*", number)
        with pytest.raises((MissingWait, LdsRace)):
            LAUNCHES[launch]()


@pytest.mark.parametrize("launch", ["launch_turn", "launch_shares", "launch_product"])
def test_every_barrier_is_needed(driver, launch):
    LAUNCHES[launch]()
    barriers = lines_of(driver, r"s_barrier")
    assert barriers
    for number in range(len(barriers)):
        driver.rewrite = drop_one(r"s_barrier", number)
        with pytest.raises(LdsRace, match="no s_barrier between") as caught:
            LAUNCHES[launch]()
        assert caught.value.where["other_source"], "both source lines"
        assert caught.value.where["source"]


def test_clean_kernels_are_right(driver):
    assert torch.equal(launch_turn(), torch.arange(4096, dtype=torch.int32).view(64, 64).T)
    assert (launch_shares() == 1 / 256).all()
    assert (launch_product() == 64).all()
    assert (launch_put() == 1).all()


# -- the local data share ----------------------------------------------------------------------------------------------

# v1: 4 times the lane within the wavefront; s6 and s7: the wavefront as 0 and 1.
_START = ["v_and_b32_e32 v1, 63, v0", "v_lshlrev_b32_e32 v1, 2, v1", "v_lshlrev_b32_e32 v0, 2, v0"]
RACES = {
    "read after write": (["ds_write_b32 v0, v0", "s_waitcnt lgkmcnt(0)", "ds_read_b32 v2, v1"], "no s_barrier"),
    "write after write": (["ds_write_b32 v1, v0"], "no s_barrier"),
    "write after read": (["ds_write_b32 v0, v0", "s_waitcnt lgkmcnt(0)", "s_barrier", "ds_read_b32 v2, v1",
                          "s_waitcnt lgkmcnt(0)", "ds_write_b32 v0, v1"], "no s_barrier"),
    "not waited for": (["ds_write_b32 v0, v0", "s_barrier", "ds_read_b32 v2, v1"],
                       r"not waited for \(lgkmcnt\) before the s_barrier"),
    "one of two not waited for": (["ds_write_b32 v0, v0", "ds_write_b32 v0, v0", "s_waitcnt lgkmcnt(1)", "s_barrier",
                                   "ds_read_b32 v2, v1"], r"not waited for \(lgkmcnt\)"),
    "an atomic and a read": (["ds_add_u32 v1, v0", "s_waitcnt lgkmcnt(0)", "ds_read_b32 v2, v1"], "no s_barrier"),
    "an unfinished read": (["ds_write_b32 v0, v0", "s_waitcnt lgkmcnt(0)", "s_barrier", "ds_read_b32 v2, v1",
                           "s_barrier", "ds_write_b32 v0, v1"], r"not waited for \(lgkmcnt\)"),
    "neighbouring bytes overlap": (["ds_write_b8 v1, v0", "ds_write_b16 v1, v0"], "no s_barrier"),
}  # fmt: skip
FREE = {
    "with a barrier": ["ds_write_b32 v0, v0", "s_waitcnt lgkmcnt(0)", "s_barrier", "ds_read_b32 v2, v1"],
    "its own": ["ds_write_b32 v0, v0", "ds_read_b32 v2, v0", "s_waitcnt lgkmcnt(0)", "ds_write_b32 v0, v1"],
    "the same value": ["ds_write_b32 v1, v1", "s_waitcnt lgkmcnt(0)", "s_barrier", "ds_read_b32 v2, v1"],
    "only reads": ["ds_read_b32 v2, v1", "ds_read_b32 v3, v1"],
    "atomics": ["ds_add_u32 v1, v0", "ds_max_u32 v1, v0"],
    "bytes next to each other": ["v_cmp_lt_u32_e32 vcc, 0xff, v0", "v_cndmask_b32_e64 v3, 0, 1, vcc",
                                "v_add_u32_e32 v3, v3, v1", "ds_write_b8 v3, v0"],
    "the first of two is waited for": ["ds_write_b32 v0, v0", "ds_write_b32 v0, v0 offset:512", "s_waitcnt lgkmcnt(1)",
                                       "s_barrier", "ds_read_b32 v2, v1"],
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(RACES))
def test_lds_races(name):
    lines, why = RACES[name]
    with pytest.raises(LdsRace, match=why) as caught:
        run(*_START, *lines, "s_endpgm", waves=2, lds=1024)
    assert re.search(r"wavefront [01] (wrote|read) by 'ds_.* by kernel probe, .* wavefront [01]", str(caught.value))


@pytest.mark.parametrize("name", sorted(FREE))
def test_no_lds_race(name):
    run(*_START, *FREE[name], "s_endpgm", waves=2, groups=3, lds=1024)


COPY = ["s_mov_b32 m0, 0", "global_load_lds_dword v1, s[4:5]"]


def test_copies_to_lds_complete_by_vmcnt():
    start = [*_START, "v_cmp_gt_u32_e32 vcc, 0x100, v0", "s_cbranch_vccz .L", *COPY, ".L:"]
    good = ["s_waitcnt vmcnt(0)", "s_barrier", "ds_read_b32 v2, v1", "s_endpgm"]
    run(*start, *good, memory=Memory(), waves=2, lds=256)
    with pytest.raises(LdsRace, match=r"not waited for \(vmcnt\) before the s_barrier"):
        run(*start, "s_waitcnt lgkmcnt(0)", *good[1:], memory=Memory(), waves=2, lds=256)


def test_lds_out_of_range():
    with pytest.raises(MemoryFault, match="outside the 256 bytes"):
        run("v_lshlrev_b32_e32 v0, 2, v0", "ds_write_b32 v0, v0 offset:4", "s_endpgm", lds=256)


# -- s_barrier ---------------------------------------------------------------------------------------------------------

_BRANCH = ["v_readfirstlane_b32 s6, v0", "s_cmp_lt_u32 s6, 64", "s_cbranch_scc1 .L"]


def test_wavefronts_at_different_barriers():
    code = [*_BRANCH, "s_barrier", "s_endpgm", ".L:", "s_nop 0", "s_barrier", "s_endpgm"]
    with pytest.raises(BarrierDivergence, match=r"waits at 's_barrier'.*not at the s_barrier by kernel probe"):
        run(*code, waves=2)
    run(*code, waves=2, strict_barriers=False)
    run(*code, groups=2)
    # Triton's ping-pong schedules, recognised by s_setprio: half of the wavefronts are one s_barrier behind.
    run("s_setprio 1", *code, waves=2)
    with pytest.raises(BarrierDivergence, match="waits at 's_barrier'"):
        run("s_setprio 1", *code, waves=2, strict_barriers=True)


def test_a_sibling_that_has_ended():
    code = [*_BRANCH, "s_barrier", "s_endpgm", ".L:", "s_endpgm"]
    with pytest.raises(BarrierDivergence, match="wavefront 0 of the work-group has ended at 's_endpgm'") as caught:
        run(*code, waves=2)
    assert caught.value.where["wavefront"] == 1
    with pytest.raises(BarrierDivergence, match="wavefront 0 of the work-group has ended at 's_endpgm'"):
        run("s_setprio 1", *code, waves=2)


def test_all_meet_at_each_barrier():
    run(*_BRANCH, "s_nop 0", ".L:", "s_barrier", "s_barrier", "s_endpgm", waves=4, groups=3)


# -- waiting for ever --------------------------------------------------------------------------------------------------


def test_waiting_for_memory_that_nobody_changes():
    emulator.activate(mode="check", closed=True)
    try:
        flag, out = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
        with pytest.raises(NoProgress) as caught:
            kernels.wait_for[(2,)](flag, out, num_warps=1)
        message = str(caught.value)
        assert f"{flag.data_ptr():#x} (inside argument flag" in message
        assert re.search(r"which holds 0x0, by 'global_[^']*', compared with 0x1 by '[^']*' \[0, 1\]", message), (
            "each wavefront is named"
        )
        flag.fill_(1)
        kernels.wait_for[(2,)](flag, out, num_warps=1)
        assert out.item() == 7
    finally:
        emulator.deactivate()


def test_ranks_under_one_scheduler():
    driver = emulator.activate(mode="check")
    try:
        flag, out = torch.zeros(1, dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
        with emulator.concurrent_ranks(driver) as ranks:
            with ranks.rank(0):
                kernels.wait_for[(1,)](flag, out, num_warps=1)
            with ranks.rank(1):
                kernels.put[(1,)](torch.ones(1, dtype=torch.int32), flag, 1, 1, 64, num_warps=1)
        assert out.tolist() == [7, 0]
        flag.zero_()
        with pytest.raises(NoProgress, match="polling 0x"), emulator.concurrent_ranks(driver) as ranks, ranks.rank(0):
            kernels.wait_for[(1,)](flag, out, num_warps=1)
    finally:
        emulator.deactivate()


# -- all faults --------------------------------------------------------------------------------------------------------


def test_reports_are_plain_data():
    with pytest.raises(DeviceFault) as caught:
        run(
            "v_mov_b32_e32 v0, 0",
            "global_load_dword v1, v0, s[4:5]",
            "v_mov_b32_e32 v2, v1",
            "s_endpgm",
            memory=Memory(),
        )
    report = caught.value.report()
    assert report["kind"] == "MissingWait"
    assert (report["kernel"], report["wavefront"], report["register"]) == ("probe", 0, "v1")
    assert report["instruction"] == "v_mov_b32_e32 v2, v1"


def test_options_of_the_mode():
    with pytest.raises(ValueError, match="does not take the options"):
        emulator.activate(mode="check", strict=True)
