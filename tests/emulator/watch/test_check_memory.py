"""Mode check: red zones, memory that was never written, alignment, undefined registers."""

import mmap

import pytest
import torch

from harness import emulator
from harness.emulator.faults import MemoryFault, UndefinedValue
from harness.emulator.operations.table import TABLE, Builder
from harness.emulator.watch.check import crosslane
from tests.emulator.watch import check_kernels as kernels
from tests.emulator.watch.checking import Memory, run

pytestmark = pytest.mark.usefixtures("form")


@pytest.fixture
def driver():
    yield emulator.activate(mode="check")
    emulator.deactivate()


# -- red zones ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def heaps(driver):
    """Two ranks' segments of one symmetric heap, as rank 0 maps them."""
    memory = [mmap.mmap(-1, 2 * mmap.PAGESIZE) for _ in range(2)]
    tensors = [torch.frombuffer(m, dtype=torch.float32) for m in memory]
    for rank, heap in enumerate(tensors):
        driver.register_memory(heap.data_ptr(), 2 * mmap.PAGESIZE, f"heap of rank {rank}", peer=rank or None)
    yield tensors
    for heap in tensors:
        driver.unregister_memory(heap.data_ptr())


def test_outside_carved_allocations_is_a_red_zone(driver, heaps):
    for heap in heaps:
        kernels.put[(1,)](heap, heap[1024:], 64, 64, 64)  # nothing carved: all of the segment
    driver.carve(heaps[0].data_ptr(), 64 * 4, "tile")
    driver.carve(heaps[0].data_ptr() + 4096, 60 * 4, "result")
    for heap in heaps:
        kernels.put[(1,)](heap, heap[1024:], 64, 60, 64)
        with pytest.raises(MemoryFault, match=r"0 bytes past the end of result in heap of rank \d") as caught:
            kernels.put[(1,)](heap, heap[1024:], 64, 61, 64)
        assert "check_kernels.py" in str(caught.value)
        with pytest.raises(MemoryFault, match="bytes before result"):
            kernels.put[(1,)](heap, heap[1020:], 64, 60, 64)
    driver.uncarve(heaps[0].data_ptr() + 4096)
    with pytest.raises(MemoryFault, match="past the end of tile"):
        kernels.put[(1,)](heaps[1], heaps[1][1024:], 64, 60, 64)


def test_carving_is_checked(driver, heaps):
    start = heaps[0].data_ptr()
    driver.carve(start, 100, "one")
    for address, size in ((start + 99, 4), (8, 4), (start + 200, 4 * mmap.PAGESIZE), (start + 200, 0)):
        with pytest.raises(ValueError, match="cannot carve"):
            driver.carve(address, size, "another")
    with pytest.raises(ValueError, match="nothing was carved"):
        driver.uncarve(start + 4)


def test_other_modes_ignore_what_was_carved():
    driver = emulator.activate()
    try:
        memory = mmap.mmap(-1, mmap.PAGESIZE)
        heap = torch.frombuffer(memory, dtype=torch.float32)
        driver.register_memory(heap.data_ptr(), mmap.PAGESIZE, "heap")
        driver.carve(heap.data_ptr(), 64, "tile")
        driver.forget(heap)
        heap[:64] = 1
        kernels.put[(1,)](heap, heap[512:], 64, 64, 64)
        assert (heap[512:576] == 1).all()
    finally:
        emulator.deactivate()


@pytest.mark.parametrize(
    ("dtype", "count"), [(torch.int8, 61), (torch.int8, 63), (torch.float16, 61), (torch.int16, 63)]
)
def test_the_last_bytes_of_a_tensor_are_its_last(driver, dtype, count):
    src, dst = torch.ones(64, dtype=dtype), torch.zeros(count, dtype=dtype)
    kernels.put[(1,)](src, dst, 64, count, 64)
    assert (dst == 1).all()
    with pytest.raises(MemoryFault, match="0 bytes past the end of argument dst"):
        kernels.put[(1,)](src, dst, 64, count + 1, 64)
    with pytest.raises(MemoryFault, match="0 bytes past the end of argument src"):
        kernels.put[(1,)](dst, src, count + 1, 64, 64)


# -- memory that was never written ------------------------------------------------------------------------------------


def test_forgotten_memory_must_be_written_before_it_matters(driver):
    src, dst = torch.ones(64), torch.zeros(64)
    driver.forget(src)
    with pytest.raises(UndefinedValue, match=r"an undefined value is stored to 0x.* \(inside argument dst"):
        kernels.put[(1,)](src, dst, 64, 64, 64)
    kernels.put[(1,)](dst, src, 64, 32, 64)
    kernels.put[(1,)](src, dst, 64, 32, 64)  # the kernel wrote that half
    with pytest.raises(UndefinedValue):
        kernels.put[(1,)](src, dst, 64, 33, 64)
    src[32:] = 5  # written by the host
    kernels.put[(1,)](src, dst, 64, 64, 64)
    assert dst.tolist() == [0] * 32 + [5] * 32


def test_forgotten_memory_as_address_and_decision(driver):
    indices, src, dst = torch.zeros(64, dtype=torch.int32), torch.ones(64), torch.zeros(64)
    kernels.by_index[(1,)](src, indices, dst, 64, 64)
    driver.forget(indices)
    with pytest.raises(UndefinedValue, match="the address depends on an undefined value") as caught:
        kernels.by_index[(1,)](src, indices, dst, 64, 64)
    assert f"was loaded from {indices.data_ptr():#x} (inside argument indices" in str(caught.value)
    flag, out = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    kernels.if_flag[(1,)](flag, out)
    driver.forget(flag)
    with pytest.raises(UndefinedValue, match="depends on an undefined value"):
        kernels.if_flag[(1,)](flag, out)


def test_one_undefined_byte_is_enough_and_masked_ones_do_not_matter(driver):
    src, dst = torch.ones(64, dtype=torch.int16), torch.zeros(64, dtype=torch.int16)
    driver.forget(src.data_ptr() + 21, 1)
    kernels.put[(1,)](src, dst, 10, 10, 64)
    with pytest.raises(UndefinedValue):
        kernels.put[(1,)](src, dst, 11, 11, 64)


def test_only_one_run_of_bytes_can_be_forgotten(driver):
    with pytest.raises(ValueError, match="not one run of bytes"):
        driver.forget(torch.zeros(8, 8).t()[:, :4])


# -- alignment ---------------------------------------------------------------------------------------------------------


def test_a_hint_that_does_not_hold(driver):
    src, dst = torch.ones(1024, dtype=torch.float16), torch.zeros(1024, dtype=torch.float16)
    kernels.hinted_put[(1,)](src, dst, True, num_warps=1)
    with pytest.raises(MemoryFault, match=r"misaligned 16-byte access at address .* \(inside argument dst"):
        kernels.hinted_put[(1,)](src, dst[1:], True, num_warps=1)


WIDE = [
    ("global_load_dword v2, v1, s[4:5] offset:2", "4-byte"),
    ("global_store_dwordx2 v1, v[2:3], s[4:5] offset:6", "8-byte"),
    ("ds_read_b64 v[2:3], v1 offset:4", "8-byte LDS access at 0x4: expected a multiple of 8"),
    ("ds_write_b128 v1, v[2:5] offset:8", "16-byte LDS access at 0x8: expected a multiple of 16"),
    ("ds_read2_b64 v[2:5], v1 offset1:1", None),
    ("ds_read_b96 v[2:4], v1 offset:16", None),
    ("global_load_dwordx4 v[2:5], v1, s[4:5] offset:4", None),
    ("global_load_ushort v2, v1, s[4:5] offset:1", None),
]


@pytest.mark.parametrize(("line", "message"), WIDE, ids=[line.partition(" ")[0] for line, _ in WIDE])
def test_wide_accesses(line, message):
    code = ["v_mov_b32_e32 v1, 0", *(f"v_mov_b32_e32 v{r}, 0" for r in range(2, 6)), line, "s_endpgm"]
    if message is None:
        run(*code, memory=Memory(), lds=64)
        return
    with pytest.raises(MemoryFault, match=f"misaligned {message}"):
        run(*code, memory=Memory(), lds=64, strict_lds_alignment=True)
    run(*code, memory=Memory(), lds=64, strict_alignment=False)
    if "LDS" in message:
        run(*code, memory=Memory(), lds=64)


def test_a_scalar_load_drops_the_low_bits():
    with pytest.raises(MemoryFault, match=r"misaligned scalar load at address 0x.*2, whose two low bits are ignored"):
        run("s_load_dword s6, s[4:5], 0x2", "s_endpgm", memory=Memory())


# -- registers that were never written ---------------------------------------------------------------------------------

UNDEFINED = {
    "address": ("the address depends", "global_load_dword v2, v1, s[4:5]"),
    "base": ("the address depends", "global_load_dword v2, v0, s[8:9]"),
    "scalar address": ("undefined value in s9", "s_mov_b32 s8, 0", "s_load_dword s6, s[8:9], 0x0"),
    "data": ("an undefined value is stored", "global_store_dword v0, v1, s[4:5]"),
    "accumulator": ("an undefined value is stored", "global_store_dword v0, a3, s[4:5]"),
    "moved": ("an undefined value is stored", "v_mov_b32_e32 v2, v1", "v_add_u32_e32 v3, 1, v2",
              "global_store_dword v0, v3, s[4:5]"),
    "byte": ("an undefined value is stored", "v_lshlrev_b32_e32 v2, 7, v1", "global_store_byte v0, v2, s[4:5]"),
    "LDS address": ("the LDS address in v1 is undefined", "ds_read_b32 v2, v1"),
    "LDS data": ("an undefined value is stored", "v_mov_b32_e32 v1, 0", "ds_read_b32 v2, v1", "s_waitcnt lgkmcnt(0)",
                 "global_store_dword v0, v2, s[4:5]"),
    "scc": ("whether the branch is taken", "s_cbranch_scc1 .L"),
    "vcc": ("whether the branch is taken", "s_cbranch_vccnz .L"),
    "compare": ("whether the branch is taken", "s_cmp_eq_u32 s20, 0", "s_cbranch_scc1 .L"),
    "exec": ("which lanes are active", "v_cmp_eq_u32_e32 vcc, 0, v1", "s_and_saveexec_b64 s[6:7], vcc"),
    "lane": ("whether the branch is taken", "v_readfirstlane_b32 s6, v1", "s_cmp_eq_u32 s6, 0", "s_cbranch_scc1 .L"),
    "atomic": ("an undefined value is stored", "global_atomic_add v0, v1, s[4:5]"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(UNDEFINED))
def test_undefined_registers_are_found_where_they_matter(name):
    message, *lines = UNDEFINED[name]
    with pytest.raises(UndefinedValue, match=message):
        run("v_lshlrev_b32_e32 v0, 2, v0", *lines, ".L:", "s_endpgm", memory=Memory(), lds=256)


HARMLESS = {
    "copied only": ("v_mov_b32_e32 v2, v1", "v_add_f32_e32 v3, v1, v2"),
    "masked bits": ("v_and_b32_e32 v2, 0, v1", "global_store_dword v0, v2, s[4:5]"),
    "low byte": ("v_lshlrev_b32_e32 v2, 8, v1", "global_store_byte v0, v2, s[4:5]"),
    "inactive lanes": ("s_mov_b64 exec, 1", "v_mov_b32_e32 v1, 0", "global_store_dword v0, v1, s[4:5]"),
    "not chosen": ("v_cndmask_b32_e64 v2, v1, v0, -1", "global_store_dword v0, v2, s[4:5]"),
    "through LDS": ("ds_write_b8 v0, v0", "s_waitcnt lgkmcnt(0)", "ds_read_u8 v2, v0", "s_waitcnt lgkmcnt(0)",
                    "global_store_dword v0, v2, s[4:5]"),
    "another lane": ("v_writelane_b32 v1, 7, 2", "v_readlane_b32 s6, v1, 2", "s_cmp_eq_u32 s6, 7",
                     "s_cbranch_scc0 .L"),
    "a decided vcc": ("s_mov_b32 vcc_lo, 1", "s_cbranch_vccz .L"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(HARMLESS))
def test_undefined_registers_may_be_there(name):
    run("v_lshlrev_b32_e32 v0, 2, v0", *HARMLESS[name], ".L:", "s_endpgm", memory=Memory(), lds=256)


SPILLED = {
    "scratch": ["scratch_store_dword off, v1, off offset:8", "scratch_load_dword v2, off, off offset:8"],
    "a part": ["scratch_store_dwordx2 off, v[2:3], off", "scratch_store_short off, v1, off offset:4",
               "scratch_load_dwordx2 v[6:7], off, off", "s_waitcnt vmcnt(0)", "v_mov_b32_e32 v2, v7"],
    "never stored": ["scratch_load_dword v2, off, off offset:12"],
    "flat to scratch": ["flat_store_dword v[4:5], v1", "flat_load_dword v2, v[4:5]"],
    "flat to LDS": ["v_mov_b32_e32 v5, src_shared_base", "flat_store_dword v[4:5], v1", "flat_load_dword v2, v[4:5]"],
    "a dot product": ["v_dot4_i32_i8 v2, v1, v0, 0"],
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(SPILLED))
@pytest.mark.parametrize("defined", [False, True])
def test_undefined_values_pass_through_private_memory(name, defined):
    code = [
        "v_lshlrev_b32_e32 v0, 2, v0", f"v_mov_b32_e32 {'v1' if defined else 'v9'}, 5", "v_mov_b32_e32 v4, 0",
        "s_mov_b32 s6, 0x20000", "v_mov_b32_e32 v5, s6", "v_mov_b32_e32 v2, 1", "v_mov_b32_e32 v3, 1",
        *[line.replace("src_shared_base", "0x10000") for line in SPILLED[name]], "s_waitcnt vmcnt(0) lgkmcnt(0)",
        "global_store_dword v0, v2, s[4:5]", "s_endpgm",
    ]  # fmt: skip
    memory, waves = Memory(), 1 if "LDS" in name else 2
    if defined and name != "never stored":
        run(*code, memory=memory, lds=64, private=16, waves=waves)
    else:
        with pytest.raises(UndefinedValue, match="an undefined value is stored"):
            run(*code, memory=memory, lds=64, private=16, waves=waves)


def test_every_lane_instruction_says_how_undefined_bits_move():
    """A builder unknown to ``crosslane.flow`` would leave a defined result."""
    known = (*crosslane.MOVES, *crosslane.LANE_BY_LANE, *crosslane.STILL, "v_mfma", "v_smfmac")
    unknown = [
        name
        for name, entry in TABLE.items()
        if isinstance(entry, Builder) and entry.klass == "valu" and not name.startswith(known)
    ]
    assert not unknown, f"add them to harness/emulator/watch/check/crosslane.py: {unknown}"


def test_undefined_lanes_part_and_meet_with_their_wavefronts():
    """Only wavefront 1 defines v1; both wavefronts reconverge and store."""
    code = [
        "v_cmp_lt_u32_e32 vcc, 63, v0", "v_lshlrev_b32_e32 v0, 2, v0", "s_cbranch_vccz .L", "v_mov_b32_e32 v1, 3",
        ".L:", "s_nop 0", "{}", "global_store_dword v0, v1, s[4:5]", "s_endpgm",
    ]  # fmt: skip
    with pytest.raises(UndefinedValue, match="wavefront 0, lane 0"):
        run(*[line.format("s_nop 0") for line in code], memory=Memory(), waves=2)
    memory = Memory()
    run(*[line.format("v_cndmask_b32_e32 v1, 5, v1, vcc") for line in code], memory=memory, waves=2)
    assert memory.words[:128].tolist() == [5] * 64 + [3] * 64
