"""Mode ``trace``: the log equals the execution, and the file follows the rules of Chrome's trace format."""

import json
import re
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch

from harness import emulator
from harness.emulator.driver.schedule import Scheduler
from harness.emulator.execution.allocations import Allocations
from harness.emulator.execution.launch import Launch
from harness.emulator.program.decode import decode
from harness.emulator.watch.trace import Trace
from tests.emulator.watch import litmus
from tests.emulator.watch import race_kernels as kernels

BLOCK = 128


@pytest.fixture(autouse=True)
def _no_driver_left():
    yield
    emulator.deactivate()


@pytest.fixture
def driver():
    return emulator.activate(mode="trace", choices=3)


def message(driver, groups=2, warps=2, delta=0):
    """Rank 0 puts blocks into rank 1's memory and raises flags; rank 1 copies them."""
    source, out = torch.arange(groups * BLOCK, dtype=torch.int32), torch.zeros(groups * BLOCK, dtype=torch.int32)
    shared = torch.zeros(2 * groups * BLOCK, dtype=torch.int32)
    inbox, flag = shared[: groups * BLOCK], shared[groups * BLOCK : groups * BLOCK + groups]
    driver.register_memory(shared.data_ptr(), shared.nbytes, "heap of rank 1", peer=1)
    with emulator.concurrent_ranks(driver) as ranks:
        with ranks.rank(0):
            kernels.put[(groups,)](source, inbox, flag, BLOCK, "release", "sys", False, num_warps=warps)
        with ranks.rank(1):
            kernels.get[(groups,)](inbox, flag, out, BLOCK, "acquire", "sys", num_warps=warps)
    driver.unregister_memory(shared.data_ptr())
    assert torch.equal(out, source)


def events(driver, tmp_path) -> list[dict]:
    driver.watch.write(tmp_path / "run.json")
    return json.loads((tmp_path / "run.json").read_text())["traceEvents"]


def test_time_is_the_number_of_executed_wavefront_instructions(driver):
    message(driver)
    assert driver.watch.timeline.now == sum(sum(r.instructions.values()) for r in driver.drain_launches())


def test_the_log_agrees_with_the_launch_records(driver):
    """Bytes are compared by instruction and by the owner of the memory."""
    message(driver)
    logged: dict[tuple, int] = defaultdict(int)
    for a in driver.watch.accesses:
        logged[a.launch, a.instruction.split()[0], a.source, "peer" if a.peer else "local"] += a.bytes
    counted: dict[tuple, int] = defaultdict(int)
    for number, record in enumerate(driver.drain_launches()):
        for access in record.accesses:
            counted[number, access.mnemonic, access.source, access.where] += access.bytes
    assert logged == counted
    assert {where for *_, where in logged} == {"local", "peer"}


def test_a_record_says_who_accessed_what(driver):
    message(driver)
    put = next(a for a in driver.watch.accesses if a.kind == "store")
    assert (put.rank, put.launch, put.bytes, put.peer) == (0, 0, 256, True)
    assert put.allocation == "heap of rank 1"
    assert put.offset % 256 == 0 and put.offset < 2 * BLOCK * 4
    assert "race_kernels.py" in put.source
    steps = [a.step for a in driver.watch.accesses]
    assert steps == sorted(steps) and len(set(steps)) == len(steps)


def test_arrows_lead_from_a_store_to_the_first_load_of_its_value(driver):
    message(driver)
    flows = driver.watch.timeline.flows
    payload = [(s, e) for s, e in flows if s.kind == "store"]
    assert {(s.rank, e.rank) for s, e in payload} == {(0, 1)}
    assert len(payload) == 4  # each store of a wavefront once
    for store, load in payload:
        assert store.step < load.step and store.offset == load.offset
    flags = [(s, e) for s, e in flows if s.kind == "atomic" and s.rank == 0]
    assert len(flags) == 2 and all(e.rank == 1 for _, e in flags)


def test_a_compare_and_swap_that_fails_writes_nothing(driver):
    """Both work-groups try to take the lock; arrows lead only to successful swaps and unlocks."""
    lock, counter = torch.zeros(1, dtype=torch.int32), torch.zeros(BLOCK, dtype=torch.int32)
    kernels.count_under_lock[(2,)](lock, counter, BLOCK, "release", "gpu", False, num_warps=2)
    arrows = [(s, e) for s, e in driver.watch.timeline.flows if s.allocation == "argument lock"]
    tries = [a for a in driver.watch.accesses if "cmpswap" in a.instruction]
    assert len(tries) > 2
    assert len(arrows) <= 4


def test_the_heat_map(driver):
    message(driver)
    heats = {(h.rank, h.allocation): h for h in driver.watch.heat_map()}
    heap = heats[0, "heap of rank 1"]
    assert (heap.peer, heap.size, heap.bucket) == (1, 2048, 32)
    assert heap.written == [32] * 32 + [0] * 32
    assert sum(heap.atomic) == 8 and heap.atomic[32] == 8 and not any(heap.read)
    assert sum(heats[0, "argument source"].read) == 2 * BLOCK * 4
    assert sum(heats[1, "argument out"].written) == 2 * BLOCK * 4
    line = next(row for row in driver.watch.heat_table().splitlines() if re.match(r"0 +heap of rank 1 +written", row))
    assert "1024" in line and line.endswith("@" * 32 + " " * 32)


def test_the_heat_map_as_a_page(driver, tmp_path):
    x = torch.zeros(300, dtype=torch.int32)
    kernels.blocks[(2,)](x, 200, BLOCK, 0)
    driver.watch.write_heat_map(tmp_path / "heat.html")
    page = (tmp_path / "heat.html").read_text()
    assert page.startswith("<!doctype html>") and page.count('class="h"') == 60  # of 20 bytes
    assert 'title="bytes 0 to 19: 20"' in page and 'title="bytes 1180 to 1199: 0"' in page
    assert "<th>argument out</th><th>written</th><th>800</th>" in page


# -- the file --------------------------------------------------------------------------------------------------------


def test_the_file_follows_the_format(driver, tmp_path):
    message(driver)
    recorded = events(driver, tmp_path)
    for event in recorded:
        assert event.keys() >= {"ph", "pid", "tid", "name"} and event["ph"] in "MXCsf"
        assert event["ph"] == "M" or (isinstance(event["ts"], int) and event["ts"] >= 0)
    times = [event["ts"] for event in recorded if event["ph"] != "M"]
    assert times == sorted(times)
    nested(recorded)
    counters = [event for event in recorded if event["ph"] == "C"]
    assert all(isinstance(value, int) for event in counters for value in event["args"].values())
    last = {event["pid"]: event["args"] for event in counters if event["name"] == "bytes accessed"}
    assert last[0] == {"local": 2 * BLOCK * 4, "peer": 2 * BLOCK * 4 + 8}


def nested(recorded) -> None:
    """Check that the slices of a thread are nested or disjoint, as the format requires."""
    threads = defaultdict(list)
    for event in recorded:
        if event["ph"] == "X":
            assert event["dur"] >= 0
            threads[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for slices in threads.values():
        open_ends: list[int] = []
        for start, end in slices:
            while open_ends and open_ends[-1] <= start:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1]
            open_ends.append(end)


def test_arrows_start_and_end_in_slices(driver, tmp_path):
    message(driver)
    recorded = events(driver, tmp_path)
    slices = {(e["pid"], e["tid"], e["ts"]): e["name"] for e in recorded if e["ph"] == "X" and e["dur"] == 1}
    starts, ends = ({e["id"]: e for e in recorded if e["ph"] == phase} for phase in "sf")
    assert starts.keys() == ends.keys() and starts
    for number, start in starts.items():
        end = ends[number]
        assert end["bp"] == "e" and start["ts"] < end["ts"] and start["cat"] == end["cat"] == "memory"
        assert all((e["pid"], e["tid"], e["ts"]) in slices for e in (start, end))


def test_ranks_wavefronts_launches_barriers_and_waits_have_tracks(driver, tmp_path):
    message(driver)
    recorded = events(driver, tmp_path)
    names = {e["args"]["name"] for e in recorded if e["name"] == "process_name"}
    assert names == {"rank 0", "rank 1"}
    tracks = {e["args"]["name"] for e in recorded if e["name"] == "thread_name" and e["pid"] == 0}
    assert tracks == {"launches", *(f"wavefront {i}" for i in range(4))}
    slices = {(e["pid"], e["tid"], e["name"]) for e in recorded if e["ph"] == "X"}
    assert {(0, 0, "put"), (1, 0, "get")} <= slices
    for name in ("s_barrier", "to s_barrier", "to the end", "s_waitcnt vmcnt(0)", "global_atomic_swap"):
        assert any(n == name for _, _, n in slices), name


def test_the_same_seed_gives_the_same_file(tmp_path):
    files = []
    for seed in (1, 1, 2):
        driver = emulator.activate(mode="trace", choices=seed)
        message(driver)
        driver.watch.write(tmp_path / "run.json")
        files.append((tmp_path / "run.json").read_text())
    assert files[0] == files[1] != files[2]


def test_lds_bank_conflicts_are_counted(tmp_path):
    """64 lanes, 128 bytes apart, write to one bank: 31 more cycles for each pass of 32 lanes."""
    watch = Trace()
    code = ["v_lshlrev_b32_e32 v1, 7, v0", "ds_write_b32 v1, v0", "ds_write_b32 v1, v0", "s_endpgm"]
    program = decode(litmus._LISTING.format(name="stride", code="\n".join("\t" + line for line in code)), watch=watch)
    launch = Launch(program, (1, 1, 1), 1, 64 * 128, np.zeros(8, np.uint8), Allocations())
    Scheduler([[launch]], watch).run()
    assert launch.lds_conflicts == 2 * 2 * 31
    watch.write(tmp_path / "run.json")
    recorded = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    assert [e["args"]["cycles"] for e in recorded if e["name"] == "LDS bank conflicts"] == [62, 124]


def run_listing(code):
    """Return the record of one wavefront of a listing in which s[0:1] is the address of a dword."""
    watch, dword = Trace(), np.zeros(1, np.uint32)
    kernarg = np.array([dword.ctypes.data], np.uint64).view(np.uint8)
    lines = ["s_load_dwordx2 s[0:1], s[0:1], 0x0", "s_waitcnt lgkmcnt(0)", "v_mov_b32_e32 v1, 0", *code, "s_endpgm"]
    text = "\n".join(line if line.endswith(":") else "\t" + line for line in lines)
    program = decode(litmus._LISTING.format(name="listed", code=text), watch=watch)
    allocations = Allocations()
    allocations.register(dword.ctypes.data, 4, "dword")
    launch = Launch(program, (1, 1, 1), 1, 0, kernarg, allocations)
    Scheduler([[launch]], watch).run()
    return launch.record("", "")


def stalls(record):
    """Return the count of each kind."""
    counts = defaultdict(int)
    for stall in record.stalls:
        counts[stall.kind] += stall.executions
    return dict(counts)


def test_waits_are_counted_by_what_is_outstanding():
    """The second wait finds one load and one store in flight and allows one: it waits for the load.

    The last wait finds nothing in flight.
    """
    record = run_listing([
        "global_load_dword v2, v1, s[0:1]", "global_store_dword v1, v1, s[0:1]", "s_waitcnt vmcnt(2)",
        "s_waitcnt vmcnt(1)", "s_waitcnt vmcnt(0)", "buffer_wbl2 sc0 sc1", "s_waitcnt vmcnt(0)", "s_waitcnt vmcnt(0)",
    ])  # fmt: skip
    assert stalls(record) == {"scalar": 1, "load": 1, "store": 1, "write-back": 1}


def test_waits_for_a_peer(driver):
    """Triton's release waits only for the stores of the wavefront that raises the flag: one per work-group."""
    message(driver)
    put, get = driver.drain_launches()
    assert stalls(put)["peer store"] == 2
    assert not any(stall.kind.startswith("peer") for stall in get.stalls)
    assert all("race_kernels.py" in stall.source for stall in (*put.stalls, *get.stalls))


def test_instructions_by_source_are_all_instructions(driver):
    message(driver)
    put, get = driver.drain_launches()
    for record in (put, get):
        assert sum(record.sources.values()) == sum(record.instructions.values())
    at = next(
        n
        for n, text in enumerate(Path(kernels.__file__).read_text().splitlines(), 1)
        if "while tl.atomic_add(flag" in text
    )
    polls = sum(count for source, count in get.sources.items() if f"race_kernels.py:{at}:" in source)
    assert 0 < polls < sum(get.sources.values())


# -- bounds ----------------------------------------------------------------------------------------------------------


def test_the_log_is_bounded_and_says_what_it_left_out(tmp_path):
    driver = emulator.activate(mode="trace", limit=5)
    message(driver)
    timeline = driver.watch.timeline
    assert len(timeline.accesses) == len(timeline.spans) == len(timeline.samples) == 5
    assert timeline.dropped["accesses"] > 0 and timeline.dropped["spans"] > 0
    assert sum(sum(heat.written) for heat in driver.watch.heat_map()) == 4 * BLOCK * 4
    driver.watch.write(tmp_path / "run.json")
    others = json.loads((tmp_path / "run.json").read_text())["otherData"]
    assert others["accesses left out"] == timeline.dropped["accesses"]


def test_wavefronts_beyond_the_limit_are_left_out_of_the_timeline(tmp_path):
    driver = emulator.activate(mode="trace", wavefronts=3)
    message(driver)
    recorded = events(driver, tmp_path)
    assert {e["tid"] for e in recorded if e["ph"] in "Xsf"} == {0, 1, 2, 3}
    assert [e["args"]["labels"] for e in recorded if e["name"] == "process_labels"] == ["1 wavefronts left out"] * 2


def test_a_launch_that_faults_is_shown_up_to_its_fault(driver, tmp_path):
    with pytest.raises(emulator.MemoryFault):
        kernels.blocks[(2,)](torch.zeros(BLOCK, dtype=torch.int32), 2 * BLOCK, BLOCK, 0)
    (launch,) = [e for e in events(driver, tmp_path) if e["ph"] == "X" and e["tid"] == 0]
    assert launch["dur"] == driver.watch.timeline.now > 0


@pytest.mark.parametrize("option", ["limit", "wavefronts", "buckets"])
def test_options_are_checked(option):
    with pytest.raises(ValueError, match=f"{option} must be at least 1, got 0"):
        Trace(**{option: 0})
