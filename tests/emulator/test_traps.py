"""Known mistakes of simple emulators, one micro-test each, and the contents of a fault.

One such mistake applies to this device outside mode ``weak``: memory stronger than the hardware's (an atomic that
flushes every cache, s_waitcnt without effect). Its memory is coherent, so a missing fence has no effect. ``watch`` has
the tests of the memory model.
"""

import multiprocessing
import re
from multiprocessing import shared_memory

import numpy as np
import pytest
import torch

from harness import emulator
from harness.emulator import KernelTrap, MemoryFault, UnimplementedInstruction
from harness.emulator.program.decode import decode
from tests.emulator import kernels
from tests.emulator.covering import covers
from tests.emulator.single import execute, listing, program, run_kernel

LANES = list(range(64))


@pytest.fixture
def device():
    yield emulator.activate()
    emulator.deactivate()


# -- traps -------------------------------------------------------------------------------------------------------------


def test_write_back_and_invalidate_are_no_loads(device):
    """A put with a release: buffer_wbl2 has no operands, and so no address that could fault."""
    result = execute(
        "buffer_wbl2 sc0 sc1",
        "s_waitcnt vmcnt(0)",
        "buffer_inv sc0 sc1",
        v={0: LANES, 1: 5},
        s={0: 1, 1: 2, 2: 3, 3: 4},
    )
    assert result.v(0) == LANES
    assert result.v(1) == [5] * 64
    flag, out = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    code = kernels.scalar_atomic[(1,)](flag, out, 0, "xchg", "acq_rel", "sys", num_warps=4).asm["amdgcn"]
    assert "buffer_wbl2" in code
    assert "buffer_inv" in code
    assert flag.item() == 1


def test_dpp_obeys_row_and_bank_masks():
    result = execute("v_mov_b32_dpp v0, v1 row_shr:4 row_mask:0xa bank_mask:0xe", v={0: 1000, 1: LANES})
    wanted = [n - 4 if n // 16 in (1, 3) and n % 16 >= 4 else 1000 for n in LANES]
    assert result.v(0) == wanted


def test_dpp_reads_its_source_before_it_writes():
    """Source and destination are one register, as in a prefix sum by LLVM's atomic optimiser."""
    steps = [
        "v_add_u32_dpp v0, v0, v0 row_shr:1 row_mask:0xf bank_mask:0xf",
        "v_add_u32_dpp v0, v0, v0 row_shr:2 row_mask:0xf bank_mask:0xf",
        "v_add_u32_dpp v0, v0, v0 row_shr:4 row_mask:0xf bank_mask:0xe",
        "v_add_u32_dpp v0, v0, v0 row_shr:8 row_mask:0xf bank_mask:0xc",
        "v_add_u32_dpp v0, v0, v0 row_bcast:15 row_mask:0xa bank_mask:0xf",
        "v_add_u32_dpp v0, v0, v0 row_bcast:31 row_mask:0xc bank_mask:0xf",
    ]
    assert execute(*steps, v={0: 1}).v(0) == [n + 1 for n in LANES]
    assert execute(*steps, v={0: LANES}).v(0) == [n * (n + 1) // 2 for n in LANES]


@pytest.mark.parametrize("first", [0, 1])
def test_work_groups_that_wait_for_each_other_end(first):
    """Work-group ``first`` waits for the flag that the other one raises; whichever starts first, both end."""
    memory = np.zeros(16, np.uint32)
    address = memory.ctypes.data
    run_kernel(
        f"v_mov_b32_e32 v0, {address & 0xFFFFFFFF:#x}",
        f"v_mov_b32_e32 v1, {address >> 32:#x}",
        "v_mov_b32_e32 v2, 1",
        "s_mov_b64 exec, 1",
        f"s_cmp_eq_u32 s0, {first}",
        "s_cbranch_scc0 .LBB0_2",
        ".LBB0_1:",
        "global_load_dword v3, v[0:1], off sc0 sc1",
        "s_waitcnt vmcnt(0)",
        "v_readfirstlane_b32 s4, v3",
        "s_cmp_lg_u32 s4, 1",
        "s_cbranch_scc1 .LBB0_1",
        "global_store_dword v[0:1], v2, off offset:8 sc0 sc1",
        "s_endpgm",
        ".LBB0_2:",
        "global_store_dword v[0:1], v2, off sc0 sc1",
        "s_endpgm",
        groups=2,
        memory=[(address, 64, "flags")],
    )
    assert memory[0] == 1
    assert memory[2] == 1


def test_the_preload_prologue_and_the_entry_behind_it_agree(device):
    """Firmware without kernarg preload runs the first 256 bytes, which load by s_load what others find in registers."""
    src, dst = torch.arange(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    text = kernels.counted[(1,)](src, dst, 50, num_warps=1).asm["amdgcn"]
    after_prologue, whole = decode(text), decode(text, entry=0)
    preload = after_prologue.listing.directives["user_sgpr_kernarg_preload_length"]
    assert preload > 0
    assert after_prologue.listing.entry > 0
    launcher = next(iter(kernels.counted.device_caches[0][0].values())).run
    outcomes, own = [], launcher.program
    for code in (after_prologue, whole):
        dst.zero_()
        if code is whole:
            # The values that preloading provides must not be needed.
            code.listing.directives["user_sgpr_kernarg_preload_length"] = 0
            assert code.listing.directives["user_sgpr_count"] >= 2 + preload
        launcher.program = code
        try:
            kernels.counted[(1,)](src, dst, 50, num_warps=1)
        finally:
            launcher.program = own
        outcomes.append(dst.clone())
    assert torch.equal(outcomes[0], outcomes[1])
    assert torch.equal(outcomes[0][:50], src[:50])
    assert not outcomes[0][50:].any()


# -- faults ------------------------------------------------------------------------------------------------------------


def test_a_bad_store_names_everything(device):
    memory = torch.zeros(64 * 2 + 16, dtype=torch.int32)
    inside = memory.nbytes - 4 * 100
    with pytest.raises(MemoryFault) as caught:
        kernels.far_store[(1,)](memory, inside, 2, num_warps=2)
    where, text = caught.value.where, str(caught.value)
    assert where["kernel"] == "far_store"
    assert where["address"] == memory.data_ptr() + memory.nbytes
    assert where["nearest"].startswith("0 bytes past the end of argument pointer")
    assert (where["wavefront"], where["lane"]) == (1, 100 - 64)
    assert where["group"] == [0, 0, 0]
    assert where["instruction"].startswith("global_store_dword")
    with open(kernels.__file__) as source:
        lines = source.read().splitlines()
    chain = [int(re.search(r"kernels\.py:(\d+):\d+$", frame).group(1)) for frame in where["source"]]
    assert "gl.store(moved(pointer, delta), 1)" in lines[chain[0] - 1]
    assert "store_one(pointer + offsets, delta)" in lines[chain[1] - 1]
    for part in (
        hex(where["address"]),
        "argument pointer",
        "far_store",
        "wavefront 1",
        "lane 36",
        "global_store_dword",
        "kernels.py",
    ):
        assert part in text
    assert device.drain_launches()[-1].kernel == "far_store"


def test_a_fault_survives_pickling(device):
    import pickle

    with pytest.raises(MemoryFault) as caught:
        kernels.far_store[(1,)](torch.zeros(1, dtype=torch.int32), 1 << 40, 1, num_warps=1)
    again = pickle.loads(pickle.dumps(caught.value))
    assert again.report() == caught.value.report()


def test_a_peer_that_is_not_mapped_is_no_memory(device):
    memory = torch.zeros(64, dtype=torch.int32)
    other = torch.zeros(64, dtype=torch.int32)
    delta = other.data_ptr() - memory.data_ptr()
    with pytest.raises(MemoryFault):
        kernels.far_store[(1,)](memory, delta, 1, num_warps=1)
    device.register_memory(other.data_ptr(), other.nbytes, "a peer's heap", peer=3)
    kernels.far_store[(1,)](memory, delta, 1, num_warps=1)
    assert other.tolist() == [1] * 64
    device.unregister_memory(other.data_ptr())
    with pytest.raises(MemoryFault):
        kernels.far_store[(1,)](memory, delta, 1, num_warps=1)


def test_an_unknown_opcode_says_which_and_where():
    code = listing("v_add_u32_e32 v0, v1, v2", "v_frobnicate_f32 v0, v1, s[2:3] clamp", "s_endpgm")
    with pytest.raises(UnimplementedInstruction) as caught:
        decode(code)
    line = code.splitlines().index("\tv_frobnicate_f32 v0, v1, s[2:3] clamp") + 1
    assert "'v_frobnicate_f32 v0, v1, s[2:3] clamp'" in str(caught.value)
    assert "kernel probe" in str(caught.value)
    assert f"line {line}" in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["v_add_u32_e32 v0, v1", "v_add_f64 v[1:2], v[2:3], v[4:5]", "v_mov_b32_e32 v0, banana", "s_add_u32 v0, s1, s2"],
)
def test_an_operand_form_that_is_not_there_is_refused(text):
    with pytest.raises(UnimplementedInstruction, match=r"kernel probe"):
        program(text)


def test_a_barrier_counts_arrivals_and_not_which_barrier_it_is():
    """As on hardware, wavefronts may arrive at different s_barrier instructions, and ended wavefronts are not awaited.

    So divergence at a barrier alone never deadlocks; if a wavefront spins for ever while others wait, that is a hang,
    and the caller's deadline ends it.
    """
    out = np.zeros(16, np.uint32)
    address = out.ctypes.data
    launch = run_kernel(
        f"v_mov_b32_e32 v2, {address & 0xFFFFFFFF:#x}",
        f"v_mov_b32_e32 v3, {address >> 32:#x}",
        "v_mov_b32_e32 v4, 1",
        "v_readfirstlane_b32 s4, v0",
        "s_mov_b64 exec, 1",
        "s_cmp_eq_u32 s4, 0",
        "s_cbranch_scc1 .LBB0_1",
        "s_barrier",
        "global_store_dword v[2:3], v4, off offset:4",
        "s_endpgm",
        ".LBB0_1:",
        "s_barrier",
        "s_barrier",
        "global_store_dword v[2:3], v4, off",
        "s_endpgm",
        waves=2,
        memory=[(address, 64, "out")],
    )
    assert out[:2].tolist() == [1, 1]
    assert launch.record("hash", "listing").instructions["barrier"] == 3


@covers("s_trap")
def test_a_trap_is_a_fault():
    with pytest.raises(KernelTrap, match="s_trap 2"):
        execute("s_trap 2")


# -- atomicity across processes ----------------------------------------------------------------------------------------

ROUNDS, GROUPS = 40, 25
# A plain addition; a compare-and-swap loop of the kernel's own; one of the compiler's: a float addition at system
# scope.
COUNTERS = (("int32", False), ("int64", True), ("float32", False))


def hammer(name: str, start) -> None:
    """Rank side: add 1 to each shared counter ROUNDS * GROUPS times, through the emulator."""
    device = emulator.activate()
    memory = shared_memory.SharedMemory(name=name)
    for slot, (dtype, cas) in enumerate(COUNTERS):
        counter = torch.frombuffer(memory.buf, dtype=getattr(torch, dtype), count=1, offset=64 * slot)
        device.register_memory(counter.data_ptr(), counter.nbytes, "a shared counter")
        start.wait(60)
        kernels.count_up[(GROUPS,)](counter, ROUNDS, cas, num_warps=1)
        device.unregister_memory(counter.data_ptr())
        del counter
    memory.close()


@pytest.mark.nightly
def test_atomics_of_several_processes_lose_no_update():
    memory = shared_memory.SharedMemory(create=True, size=64 * len(COUNTERS))
    try:
        context = multiprocessing.get_context("spawn")
        start = context.Barrier(2)
        workers = [context.Process(target=hammer, args=(memory.name, start)) for _ in range(2)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(90)
            assert worker.exitcode == 0
        for slot, (dtype, _) in enumerate(COUNTERS):
            total = np.frombuffer(memory.buf, getattr(np, dtype), 1, 64 * slot)[0].item()
            assert total == 2 * ROUNDS * GROUPS, f"{dtype}: {total}"
    finally:
        memory.close()
        memory.unlink()


# -- counters ----------------------------------------------------------------------------------------------------------


def test_the_launch_record_of_a_small_kernel(device):
    """One wavefront, 50 of 64 lanes: the counts can be derived from the listing."""
    src, dst = torch.arange(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    device.drain_launches()
    compiled = kernels.counted[(3,)](src, dst, 50, num_warps=1)
    (record,) = device.drain_launches()
    assert record.kernel == "counted"
    assert record.hash == compiled.hash
    assert record.listing == compiled.asm["amdgcn"]
    assert (record.grid, record.num_warps) == ((3, 1, 1), 1)
    accesses = {a.kind: a for a in record.accesses}
    assert set(accesses) == {"load", "store"}
    for access in accesses.values():
        assert (access.width, access.where, access.executions, access.lanes, access.bytes) == (4, "local", 3, 150, 600)
        assert "kernels.py" in access.source
    assert record.instructions["vmem"] == 6
    assert record.lanes["vmem"] == 150 + 150
    program = decode(record.listing)
    straight = [i.mnemonic for b in program.blocks for s in b.segments for i in s.instructions]
    # No branch is taken in this kernel, so every instruction from the entry on is executed once by each wavefront.
    executed = sum(record.instructions.values())
    per_wave = sum(count for b in program.blocks for s in b.segments for count in s.counts.values())
    assert executed == 3 * per_wave
    assert record.instructions["valu"] == 3 * sum(m.startswith("v_") for m in straight)


def test_counted_by_hand():
    launch = run_kernel(
        "s_mov_b32 s4, 3",
        ".LBB0_1:",
        "v_add_u32_e32 v1, v1, v2",
        "s_add_i32 s4, s4, -1",
        "s_cmp_lg_u32 s4, 0",
        "s_cbranch_scc1 .LBB0_1",
        "s_mov_b64 exec, 7",
        "v_mov_b32_e32 v3, v1",
        "ds_write_b32 v3, v3",
        "s_barrier",
        "s_waitcnt lgkmcnt(0)",
        "s_endpgm",
        waves=2,
        groups=5,
        lds=64,
    )
    record = launch.record("hash", "listing")
    assert record.instructions == {
        "salu": 10 * (1 + 3 * 2 + 1),
        "valu": 10 * 4,
        "branch": 10 * (3 + 1),
        "lds": 10,
        "barrier": 10,
        "wait": 10,
    }
    assert record.lanes == {"valu": 10 * (3 * 64 + 3), "lds": 30}
    assert record.accesses == []
