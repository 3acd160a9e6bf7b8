"""Mode check in native code: what it checks by itself, where the interpreter decides, and when it is not used."""

import pytest
import torch

from harness import emulator
from harness.emulator.driver import checked
from harness.emulator.faults import LdsRace, MemoryFault, MissingWait, UndefinedValue
from harness.emulator.listing.parser import parse
from harness.emulator.watch.check import Check
from harness.emulator.watch.check.facts import stretches, suspects, waits
from harness.emulator.watch.check.shadow import SCC, first_of, vectors
from tests.emulator.single import listing
from tests.emulator.watch import check_kernels as kernels
from tests.emulator.watch.checking import Memory, run


@pytest.fixture
def interpreted(monkeypatch, request):
    """The operations that native code left to the interpreter, of programs that run in native code at once."""
    seen = []
    find, go_on_at = checked.CheckedHeat.find, checked.CheckedScheduler._go_on_at

    def forced(heat, launch):
        heat.force(True)
        return find(heat, launch)

    def noted(scheduler, wave, number):
        seen.append(scheduler.translation.places[wave.position].instruction.mnemonic)
        return go_on_at(scheduler, wave, number)

    monkeypatch.setattr(checked.CheckedHeat, "find", forced)
    monkeypatch.setattr(checked.CheckedScheduler, "_go_on_at", noted)
    return seen


@pytest.fixture
def native(monkeypatch):
    """The number of launches that ran in native code."""
    launches = []
    begin = checked.CheckedScheduler.run
    monkeypatch.setattr(checked.CheckedScheduler, "run", lambda self: (launches.append(self.launch), begin(self))[1])
    return launches


def program(*lines, lds=0):
    return checked.decode(parse(listing(*lines)), Check(wait_states=False))


# -- what the interpreter has to do ------------------------------------------------------------------------------------


def test_a_clean_kernel_needs_no_interpreter(interpreted, native):
    emulator.activate(mode="check")
    try:
        src, dst = torch.arange(64 * 64, dtype=torch.int32), torch.zeros(64 * 64, dtype=torch.int32)
        kernels.turn_through_lds[(1,)](src, dst, 4)
        assert torch.equal(dst.reshape(64, 64), src.reshape(64, 64).T)
    finally:
        emulator.deactivate()
    assert len(native) == 1 and not interpreted


def test_bits_that_do_not_matter_are_followed_by_the_interpreter(interpreted):
    """v5 was never written: half of it is masked out, and the rest is stored only where it is defined."""
    memory = Memory()
    run(
        "v_lshlrev_b32_e32 v0, 2, v0", "v_and_b32_e32 v1, 0, v5", "v_add_u32_e32 v1, 7, v1",
        "global_store_dword v0, v1, s[4:5]", "s_endpgm", memory=memory,
    )  # fmt: skip
    assert interpreted == ["v_and_b32_e32"]
    assert memory.words[:64].tolist() == [7] * 64


@pytest.mark.parametrize("clean", [True, False])
def test_the_upper_half_of_a_sum_may_be_undefined_without_the_interpreter(interpreted, clean):
    memory = Memory()
    lines = ["v_mov_b32_e32 v2, v0", "v_mad_u64_u32 v[4:5], s[6:7], v0, 4, v[2:3]"]
    store = f"global_store_dword v0, v{4 if clean else 5}, s[4:5]"
    lines = ["v_lshlrev_b32_e32 v0, 2, v0", *lines, store, "s_endpgm"]
    if clean:
        run(*lines, memory=memory)
        assert not interpreted and memory.words[:4].tolist() == [0, 20, 40, 60]
        return
    with pytest.raises(UndefinedValue, match=r"an undefined value is stored to .*lane 0, instruction 'global_store"):
        run(*lines, memory=memory)
    assert interpreted == ["global_store_dword"]


def test_registers_written_in_some_lanes_are_defined_in_these_only(interpreted):
    head = ["v_lshlrev_b32_e32 v0, 2, v0", "s_mov_b64 s[8:9], exec", "s_mov_b64 exec, 0xff", "v_mov_b32_e32 v1, 3"]
    memory = Memory()
    run(*head, "global_store_dword v0, v1, s[4:5]", "s_endpgm", memory=memory)
    assert not interpreted and memory.words[:9].tolist() == [3] * 8 + [0]
    with pytest.raises(UndefinedValue, match=r"wavefront 0, lane 8, instruction 'global_store_dword"):
        run(*head, "s_mov_b64 exec, s[8:9]", "global_store_dword v0, v1, s[4:5]", "s_endpgm", memory=memory)


@pytest.mark.parametrize("lane", [3, 20])
def test_another_lane_is_read_that_was_not_written(interpreted, lane):
    """Eight lanes of v1 are written; a move between lanes reads one of them, or another one."""
    memory = Memory()
    head = ["v_lshlrev_b32_e32 v0, 2, v0", "s_mov_b64 exec, 0xff", "v_mov_b32_e32 v1, 3"]
    tail = [f"v_readlane_b32 s8, v1, {lane}", "v_mov_b32_e32 v2, s8", "global_store_dword v0, v2, s[4:5]", "s_endpgm"]
    if lane < 8:
        run(*head, *tail, memory=memory)
        assert memory.words[:9].tolist() == [3] * 8 + [0]
        return
    with pytest.raises(UndefinedValue, match="an undefined value is stored"):
        run(*head, *tail, memory=memory)


def test_bytes_of_the_share_are_defined_one_by_one(interpreted):
    """The second byte of each dword was never written, and only the first one is stored to memory."""
    head = ["v_lshlrev_b32_e32 v0, 2, v0", "v_mov_b32_e32 v1, 9", "ds_write_b8 v0, v1", "s_waitcnt lgkmcnt(0)"]
    tail = ["ds_read_u16 v2, v0", "s_waitcnt lgkmcnt(0)", "global_store_byte v0, v2, s[4:5]", "s_endpgm"]
    memory = Memory()
    for waves in (1, 2):
        barrier = ["s_barrier"] if waves == 2 else []
        run(*head, *barrier, *tail, memory=memory, lds=512, waves=waves)
    assert memory.bytes[:5].tolist() == [9, 0, 0, 0, 9]
    assert "ds_read_u16" in interpreted
    with pytest.raises(UndefinedValue, match="an undefined value is stored"):
        run(*head, *tail[:2], "global_store_short v0, v2, s[4:5]", "s_endpgm", memory=memory, lds=512)


# -- the data share ----------------------------------------------------------------------------------------------------

_EACH = "v_lshlrev_b32_e32 v0, 2, v0"
RACES = {
    # Both wavefronts write their number to the same dwords, or read the other's.
    "two writes": ("v_and_b32_e32 v1, 0xfc, v0", "ds_write_b32 v1, v0"),
    "a read after a write": ("v_xor_b32_e32 v1, 0x100, v0", "ds_write_b32 v0, v0", "ds_read_b32 v2, v1"),
    "a byte of a dword": ("v_and_b32_e32 v1, 0xfc, v0", "v_lshrrev_b32_e32 v2, 1, v0", "ds_write_b8 v1, v2 offset:1"),
    # Bytes 2 to 9 of one wavefront, 8 to 15 of the other.
    "pairs that share half a dword": (
        "v_lshrrev_b32_e32 v1, 8, v0",
        "v_mul_u32_u24_e32 v1, 6, v1",
        "v_mov_b32_e32 v2, v0",
        "v_mov_b32_e32 v3, v0",
        "s_mov_b64 exec, 1",
        "ds_write_b64 v1, v[2:3] offset:2",
    ),
    "an atomic after a write": (
        "v_xor_b32_e32 v1, 0x100, v0",
        "ds_write_b32 v0, v0", "s_waitcnt lgkmcnt(0)", "ds_add_u32 v1, v0",
    ),
    "a misaligned pair": ("v_and_b32_e32 v1, 0xfc, v0", "v_mov_b32_e32 v2, v0", "v_mov_b32_e32 v3, v0",
                          "ds_write_b64 v1, v[2:3] offset:2"),
}  # fmt: skip


@pytest.mark.parametrize("name", RACES)
def test_races_in_the_share(name, form, native):
    lines = [_EACH, *RACES[name], "s_waitcnt lgkmcnt(0)", "s_endpgm"]
    with pytest.raises(LdsRace):
        run(*lines, waves=2, lds=1024)
    assert len(native) == (form == "native")
    run(*lines, waves=1, lds=1024) if "read" not in name else None


def test_accesses_before_a_barrier_do_not_race(form):
    write = [_EACH, "ds_write_b32 v0, v0", "s_waitcnt lgkmcnt(0)", "s_barrier"]
    turn = ["v_xor_b32_e32 v1, 0x100, v0", "ds_read_b32 v2, v1", "s_waitcnt lgkmcnt(0)"]
    memory = Memory()
    for _ in range(2):  # the second launch finds the records of the first one
        run(*write, *turn, "global_store_dword v0, v2, s[4:5]", "s_endpgm", memory=memory, waves=2, lds=512, groups=3)
    assert memory.words[:128].tolist() == [*range(256, 512, 4), *range(0, 256, 4)]
    with pytest.raises(LdsRace):
        run(*write, *turn, "ds_write_b32 v0, v2", "s_endpgm", memory=memory, waves=2, lds=512)


@pytest.mark.parametrize("writer", [0, 1])
@pytest.mark.parametrize("lanes", ["1", "-1"])
@pytest.mark.parametrize("size", [8, 16, 32])
def test_a_write_after_reads_of_two_wavefronts(form, native, size, lanes, writer):
    """The wavefront that writes has read before; the other one has read since the last barrier."""
    head = [
        "v_readfirstlane_b32 s6, v0", "s_lshr_b32 s6, s6, 6", "v_and_b32_e32 v0, 63, v0", _EACH,
        "s_cmp_lg_u32 s6, 0", "s_cbranch_scc1 .L", "ds_write_b32 v0, v0", "s_waitcnt lgkmcnt(0)", ".L:", "s_barrier",
        f"s_mov_b64 exec, {lanes}", {8: "ds_read_u8 v2, v0", 16: "ds_read_u16 v2, v0", 32: "ds_read_b32 v2, v0"}[size],
        "s_waitcnt lgkmcnt(0)",
    ]  # fmt: skip
    write = [
        f"s_cmp_lg_u32 s6, {writer}", "s_cbranch_scc1 .Lend", f"ds_write_b{size} v0, v0", "s_waitcnt lgkmcnt(0)",
        ".Lend:",
    ]  # fmt: skip
    run(*head, "s_barrier", *write, "s_endpgm", waves=2, lds=512)
    with pytest.raises(LdsRace, match=f"wavefront {writer}"):
        run(*head, "s_sleep 1", *write, "s_endpgm", waves=2, lds=512)  # the other wavefront has its turn
    assert len(native) == 2 * (form == "native")


@pytest.mark.parametrize("size", [32, 64, 128])
@pytest.mark.parametrize("second", ["read", "write"])
def test_an_access_to_what_the_first_wavefront_wrote_since_the_barrier(form, native, second, size):
    """All of it was defined before the barrier."""
    data = {32: "v4", 64: "v[4:5]", 128: "v[4:7]"}[size]
    head = [
        "v_readfirstlane_b32 s6, v0", "s_lshr_b32 s6, s6, 6", "v_and_b32_e32 v1, 63, v0",
        f"v_mul_u32_u24_e32 v1, {size // 8}, v1", *(f"v_mov_b32_e32 v{4 + i}, v0" for i in range(4)),
        "s_cmp_lg_u32 s6, 0", "s_cbranch_scc1 .L", f"ds_write_b{size} v1, {data}", "s_waitcnt lgkmcnt(0)", ".L:",
        "s_barrier", "s_cmp_lg_u32 s6, 0", "s_cbranch_scc1 .Lsecond", f"ds_write_b{size} v1, {data}",
        "s_waitcnt lgkmcnt(0)", ".Lsecond:",
    ]  # fmt: skip
    access = f"ds_write_b{size} v1, {data}" if second == "write" else f"ds_read_b{size} {data}, v1"
    tail = ["s_cmp_eq_u32 s6, 0", "s_cbranch_scc1 .Lend", access, "s_waitcnt lgkmcnt(0)", ".Lend:", "s_endpgm"]
    run(*head, "s_barrier", *tail, waves=2, lds=1024)
    with pytest.raises(LdsRace, match="wavefront 1"):
        run(*head, *tail, waves=2, lds=1024)
    assert len(native) == 2 * (form == "native")


def test_a_write_of_the_same_value_to_bytes_that_another_wavefront_has_read(form, native):
    """Both write 0 to byte 0, which is not a race; the other one has read byte 1, to which the first one writes too."""
    lines = [
        "v_readfirstlane_b32 s6, v0", "s_lshr_b32 s6, s6, 6", "v_mov_b32_e32 v0, 0", "v_mov_b32_e32 v1, 0",
        "s_mov_b64 exec, 1", "s_cmp_lg_u32 s6, 0", "s_cbranch_scc1 .L", "ds_write_b32 v0, v1", "s_waitcnt lgkmcnt(0)",
        ".L:", "s_barrier", "ds_read_u8 v2, v0 offset:1", "s_waitcnt lgkmcnt(0)", "s_cmp_lg_u32 s6, 0",
        "s_cbranch_scc1 .Lsecond", "s_sleep 1", "ds_write_b16 v0, v1", "s_branch .Lend", ".Lsecond:",
        "ds_write_b8 v0, v1", ".Lend:", "s_waitcnt lgkmcnt(0)", "s_endpgm",
    ]  # fmt: skip
    with pytest.raises(LdsRace, match="wavefront 0"):
        run(*lines, waves=2, lds=512)
    assert len(native) == (form == "native")


@pytest.mark.parametrize("stride", [4, 8])
def test_a_work_group_does_not_read_what_another_one_wrote(form, stride):
    """All work-groups use the same memory for their share, one after the other; only the first one writes to it."""
    skip = [
        f"v_mul_u32_u24_e32 v1, {stride // 4}, v0",
        "s_cmp_lg_u32 s0, 0",
        "s_cbranch_scc1 .L",
        "ds_write_b32 v1, v0",
        "s_waitcnt lgkmcnt(0)",
        ".L:",
        "s_barrier",
    ]
    read = [
        "ds_read_b32 v2, v1",
        "s_waitcnt lgkmcnt(0)",
        "global_store_dword v0, v2, s[4:5]",
        "s_endpgm",
    ]
    with pytest.raises(UndefinedValue, match=r"work-group \(1, 0, 0\)"):
        run(_EACH, *skip, *read, memory=Memory(), waves=2, lds=1024, groups=2)


# -- facts -------------------------------------------------------------------------------------------------------------


def test_a_program_that_may_wait_too_little_is_interpreted(native):
    load = ["v_lshlrev_b32_e32 v0, 2, v0", "global_load_dword v1, v0, s[4:5]"]
    tail = ["s_cbranch_execz .L", "s_waitcnt vmcnt(0)", ".L:", "v_mov_b32_e32 v2, v1", "s_endpgm"]
    one = program(*load, *tail)
    assert not waits(one, one.facts) and not checked.can_check(one)
    other = program(*load, "s_waitcnt vmcnt(0)", *tail)
    assert waits(other, other.facts) and checked.can_check(other)
    with pytest.raises(MissingWait):
        run(*load, "v_mov_b32_e32 v2, v1", "s_endpgm", memory=Memory())
    assert not native


def test_accesses_to_the_share_outstanding_at_a_barrier_are_interpreted():
    for wait, checks in ((["s_waitcnt lgkmcnt(0)"], True), ([], False)):
        each = program(_EACH, "ds_write_b32 v0, v0", *wait, "s_barrier", "s_endpgm")
        assert checked.can_check(each) is checks


def test_stretches_name_what_is_read_first():
    each = program("v_mov_b32_e32 v1, v2", "v_add_u32_e32 v3, v1, v4", "s_cmp_eq_u32 s2, s3", "s_endpgm")
    (stretch,) = stretches(each.facts, range(3), set())
    masked, everywhere, elsewhere, written, wholly = stretch.registers
    assert (masked, elsewhere, written) == ([2, 4], [], [1, 3])
    assert [first_of(1 << number) for number in everywhere] == ["s2", "s3"] and 1 << wholly[0] == SCC
    assert suspects(each, each.facts, vectors(2)) == {0, 1}


# -- faults, and time --------------------------------------------------------------------------------------------------


def test_exact_ends_of_allocations(form):
    """The table of atomics ends at a whole dword, that of stores does not."""
    emulator.activate(mode="check")
    try:
        memory = torch.zeros(256, dtype=torch.int16)
        with pytest.raises(MemoryFault):
            kernels.put[(1,)](memory[:63], memory[128:191].clone(), 63, 64, 64)
    finally:
        emulator.deactivate()


def test_a_kernel_that_needs_the_interpreter_often_is_interpreted_as_a_whole(native, monkeypatch):
    monkeypatch.setattr(checked, "SHORT", 0.0)
    each = program("v_and_b32_e32 v1, 0, v5", "s_endpgm")
    heat = each.heat
    heat.force(True)

    class Launched:
        groups, waves_per_group, waves = 100, 4, [400] * len(each.segments)

    heat.interpreted(Launched, 1e-9)
    assert heat.spent > 0
    heat.interpreted(Launched, 1.0)
    assert heat.spent < 0 and heat.translation is None
