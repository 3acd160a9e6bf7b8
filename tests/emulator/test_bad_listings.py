"""Listings and launches that a GPU could not run are refused before anything runs, with the value and the limit."""

import threading

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.errors import OutOfResources

from harness import emulator, threads
from harness.emulator import ListingError, MemoryFault, NoProgress, TimeLimit, UnimplementedInstruction
from harness.emulator.driver import patience
from harness.emulator.listing import limits
from harness.emulator.listing.parser import parse
from harness.emulator.program.decode import decode
from tests.emulator import kernels
from tests.emulator.single import execute, listing, run_kernel


@pytest.fixture
def device():
    yield emulator.activate()
    emulator.deactivate()


def with_directive(text, *lines):
    return text.replace("\t.end_amdhsa_kernel", "".join(f"\t\t{line}\n" for line in lines) + "\t.end_amdhsa_kernel")


def with_metadata(text, *lines):
    return text.replace("  - .name: probe\n", "  - .name: probe\n" + "".join(f"    {line}\n" for line in lines))


CODE = listing("s_endpgm")


@pytest.mark.parametrize("arch", ["gfx90a", "gfx1100", "gfx1250"])
def test_another_arch(arch):
    with pytest.raises(ListingError, match=f"compiled for {arch}, not for gfx942 or gfx950"):
        parse(listing("s_endpgm", arch=arch))


def test_another_arch_than_the_device(device):
    emulator.deactivate()
    other = emulator.activate("gfx950")
    with pytest.raises(ListingError, match=r"for gfx942, but the emulated device is a gfx950: .*activate\('gfx942'\)"):
        limits.check_arch(parse(CODE), other.arch)
    limits.check_arch(parse(CODE), "gfx942")


@pytest.mark.parametrize(
    "text",
    [
        with_directive(CODE, ".amdhsa_frobnicate 1"),
        with_directive(CODE, ".amdhsa_wavefront_size32 1"),
        with_directive(CODE, ".amdhsa_memory_ordered 1"),
        CODE.replace("probe:\n", "\t.frobnicate 4\nprobe:\n"),
        listing(".frobnicate 4", "s_endpgm"),
    ],
)
def test_an_unknown_directive(text):
    names = ("frob", "size32", "ordered")
    line = 1 + next(n for n, code in enumerate(text.splitlines()) if any(name in code for name in names))
    with pytest.raises(ListingError, match=f"kernel probe, listing line {line}: unknown directive \\.") as error:
        parse(text)
    assert text.splitlines()[line - 1].split()[0] in str(error.value)


def test_what_triton_writes_is_known(device):
    """Metadata lines look like directives, but are not."""
    src = torch.arange(64, dtype=torch.int32)
    text = kernels.counted[(1,)](src, src.clone(), 50, num_warps=1).asm["amdgcn"]
    assert {d.removeprefix(".amdhsa_") for d in text.split() if d.startswith(".amdhsa_")} <= limits.KERNEL_DIRECTIVES
    assert ".value_kind:" in text


def test_no_code():
    with pytest.raises(ListingError, match="kernel probe: the listing holds no instructions"):
        parse(listing())
    with pytest.raises(ListingError, match="found 0"):
        parse(CODE.replace(".amdhsa_kernel probe", ""))
    with pytest.raises(ListingError, match="names no target"):
        parse(CODE.replace('.amdgcn_target "amdgcn-amd-amdhsa--gfx942"', ""))


@pytest.mark.parametrize("jump", ["s_branch .LBB0_7", "s_cbranch_execz .LBB0_7"])
def test_a_branch_to_an_unknown_label(jump):
    with pytest.raises(ListingError, match=f"branch to an unknown label in '{jump}'"):
        decode(listing(jump, "s_endpgm"))


@pytest.mark.parametrize(("arch", "limit"), [("gfx942", 65536), ("gfx950", 163840)])
def test_too_much_lds(arch, limit):
    text = listing("s_endpgm", arch=arch)
    limits.check_sizes(parse(text), 1, limit)
    for code, lds in ((text, limit + 1), (with_directive(text, f".amdhsa_group_segment_fixed_size {limit + 1}"), 0)):
        with pytest.raises(ListingError, match=f"{limit + 1} bytes of LDS, a {arch} has {limit}: use smaller blocks"):
            limits.check_sizes(parse(code), 1, lds)


def test_too_many_wavefronts():
    limits.check_sizes(parse(CODE), 16, 0)
    with pytest.raises(ListingError, match=r"17 wavefronts in a work-group, which holds 16 .* use num_warps=16"):
        limits.check_sizes(parse(CODE), 17, 0)
    compiled = parse(with_metadata(CODE, ".max_flat_workgroup_size: 256"))
    limits.check_sizes(compiled, 4, 0)
    with pytest.raises(ListingError, match="320 work-items in a work-group, but it was compiled for 256"):
        limits.check_sizes(compiled, 5, 0)
    with pytest.raises(ListingError, match="wavefronts of 32 lanes, expected 64 on gfx942"):
        limits.check_sizes(parse(with_metadata(CODE, ".wavefront_size: 32")), 1, 0)


@pytest.mark.parametrize(("vgprs", "waves", "fits"), [(512, 4, True), (505, 4, True), (513, 1, False), (256, 8, True),
                                                      (257, 5, False), (128, 16, True), (129, 16, False)])  # fmt: skip
def test_too_many_vector_registers(vgprs, waves, fits):
    """Four SIMDs of 512 registers per lane share a work-group's wavefronts; registers are allocated by eights."""
    code = parse(CODE.replace(".amdhsa_next_free_vgpr 128", f".amdhsa_next_free_vgpr {vgprs}"))
    if fits:
        limits.check_sizes(code, waves, 0)
        return
    per_simd = -(-waves // 4)
    with pytest.raises(ListingError, match=f"{vgprs} vector registers .* a SIMD's 512, {512 // per_simd} each"):
        limits.check_sizes(code, waves, 0)


def test_other_register_counts():
    with pytest.raises(ListingError, match=r"103 scalar registers .* a wavefront has 102"):
        limits.check_sizes(parse(with_directive(CODE, ".amdhsa_next_free_sgpr 103")), 1, 0)
    with pytest.raises(ListingError, match=r"accum_offset 66 is not one of 4, 8, \.\.\. 256"):
        limits.check_sizes(parse(CODE.replace("accum_offset 64", "accum_offset 66")), 1, 0)


# -- as a user of Triton sees them -------------------------------------------------------------------------------------


@triton.jit
def staged(a, b, c, K, BLOCK: tl.constexpr, DEPTH: tl.constexpr):
    i, k = tl.arange(0, BLOCK), tl.arange(0, DEPTH)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in range(0, K, DEPTH):
        left = tl.load(a + i[:, None] * K + (start + k)[None, :])
        right = tl.load(b + (start + k)[:, None] * BLOCK + i[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + i[:, None] * BLOCK + i[None, :], total)


@pytest.mark.nightly
def test_out_of_resources(device):
    """A pipelined product whose buffers exceed 64 KiB: Triton's own error, which autotuners catch."""
    a = torch.zeros(128, 512, dtype=torch.float16)
    b, c = torch.zeros(512, 128, dtype=torch.float16), torch.zeros(128, 128)
    with pytest.raises(OutOfResources, match=r"shared memory, Required: 131072, Hardware limit: 65536. Reducing"):
        staged[(1,)](a, b, c, 512, 128, 128, num_warps=4, num_stages=3)
    assert not device.drain_launches()


def test_the_checks_are_made_once_for_a_kernel(device, monkeypatch):
    calls = []
    plain = limits.check_sizes
    monkeypatch.setattr(limits, "check_sizes", lambda *arguments: (calls.append(arguments[0].name), plain(*arguments)))
    x = torch.zeros(64)
    for _ in range(3):
        checked_once[(1,)](x, num_warps=1)
    assert calls == ["checked_once"]
    assert x.tolist() == [3.0] * 64


@triton.jit
def checked_once(x):
    i = tl.arange(0, 64)
    tl.store(x + i, tl.load(x + i) + 1)


# -- code that no assembler has seen -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("v_mov_b32_e32 v64, v0", r"operand 'v64': the wavefront has v0 to v63"),
        ("v_mov_b32_e32 v0, a64", r"operand 'a64': the wavefront has a0 to a63"),
        ("s_load_dwordx2 s[101:102], s[0:1], 0x0", r"operand 's\[101:102\]': the wavefront has s0 to s101"),
        ("global_load_dword v99, v[0:1], off", "operand 'v99'"),
        ("global_load_dwordx4 v4, v[0:1], off", "expected an operand of 4 v registers for this access, got v4"),
        ("global_store_dword v0, v2, off", "expected an operand of 2 v registers for this access, got v0"),
        ("global_atomic_cmpswap v2, v1, v0, s[2:3] sc0", "expected an operand of 2 v registers"),
        ("buffer_load_dword v4, v1, s[4:5], 0 offen", "expected an operand of 4 s registers"),
        ("ds_read_b64 v0, v1", "expected an operand of 2 v registers"),
        ("ds_read_b32 v0, v1 offset:65536", "offset:65536: expected a number from 0 to 65535"),
        ("ds_write_b32 v0, v1 offset:-4", "offset:-4: expected a number from 0 to 65535"),
        ("global_load_dword v4, v[0:1], off offset:4096", "offset:4096: expected a number from -4096 to 4095"),
    ],
)
def test_registers_and_offsets_that_do_not_exist(text, why):
    """The compiled functions check no bounds: such an instruction read, or overwrote, memory of the process."""
    with pytest.raises(ListingError, match=why):
        decode(listing(text, "s_endpgm"))


@pytest.mark.parametrize(
    "text",
    ["ds_read_u16 v1, v2, v3", "v_readlane_b32 s0,", "global_atomic_swap sc1", "s_load_dwordx4 v0, 1",
     "buffer_store_dword v0, v1, s[4:7],", "ds_read_b32 v0, v1 offset:x"],
)  # fmt: skip
def test_operands_of_another_form(text):
    with pytest.raises(UnimplementedInstruction, match="form that the emulator does not know"):
        decode(listing(text, "s_endpgm"))


@pytest.mark.parametrize("text", ["global_store_dword v[0:1], v2, off", "global_load_dwordx4 v[4:7], v[0:1], off",
                                  "global_atomic_add v[0:1], v2, off"])  # fmt: skip
def test_an_address_at_the_end_of_the_address_space(text):
    """Address and size add up to more than 2**64, which must not look like an address before every end."""
    memory = np.zeros(64, np.uint32)
    for low in (0xFFFFFFFC, 0xFFFFFFFE, 0xFFFFFFFF):
        known = [(memory.ctypes.data, memory.nbytes, "memory")]
        with pytest.raises(MemoryFault):
            execute(text, v={0: low, 1: 0xFFFFFFFF}, memory=known)


def test_code_that_does_not_end():
    with pytest.raises(MemoryFault, match="execution goes on after the end of the code"):
        run_kernel("v_mov_b32_e32 v0, 0")


LOOPS = {
    "registers": (".LBB0_1:", "v_mov_b32_e32 v0, 7", "s_branch .LBB0_1"),
    "two loops": (".LBB0_1:", "s_mov_b32 s0, 5", ".LBB0_2:", "s_sub_u32 s0, s0, 1", "s_cmp_lg_u32 s0, 0",
                  "s_cbranch_scc1 .LBB0_2", "s_branch .LBB0_1"),
}  # fmt: skip


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_without_end_is_reported(loop, monkeypatch):
    monkeypatch.setattr(patience, "PATIENCE", 0.05)
    with pytest.raises(NoProgress, match="no wavefront can go on"):
        run_kernel(*LOOPS[loop], "s_endpgm", groups=3)


def test_a_thread_of_the_harness_does_not_keep_it_from_being_reported(monkeypatch):
    """It watches the output of ranks, in a process that runs kernels too; any other thread could change memory."""
    monkeypatch.setattr(patience, "PATIENCE", 0.05)
    before, done = threads.of_the_program(), threading.Event()
    own = threads.start(done.wait, (), "own")
    other = threading.Thread(target=done.wait, daemon=True)
    try:
        assert threads.of_the_program() == before
        with pytest.raises(NoProgress, match="no wavefront can go on"):
            run_kernel(*LOOPS["registers"], "s_endpgm")
        other.start()
        assert threads.of_the_program() == before + 1
    finally:
        done.set()
        own.join(10)
        other.join(10)


COUNTING = ("s_mov_b32 s0, 0", ".LBB0_1:", "s_add_u32 s0, s0, 1", "s_cmp_lg_u32 s0, 0x40000", "s_cbranch_scc1 .LBB0_1")


def test_a_long_loop_is_not_reported(monkeypatch):
    """It has no end in sight for the scheduler, but its registers change."""
    monkeypatch.setattr(patience, "PATIENCE", 0.0)
    launch = run_kernel(*COUNTING, "s_endpgm")
    assert launch.unstarted == 0


@triton.jit
def spinning(flag):
    while tl.atomic_add(flag, 0) == 0:
        pass


def test_a_poll_that_nothing_answers(device, monkeypatch):
    monkeypatch.setattr(patience, "PATIENCE", 0.05)
    flag = torch.zeros(1, dtype=torch.int32)
    with pytest.raises(NoProgress, match=r"polling 0x[0-9a-f]+ .inside argument flag"):
        spinning[(2,)](flag, num_warps=1)
    # Memory that another process may map is waited for.
    device.time_limit = 0.5
    with pytest.raises(TimeLimit, match=r"not ended after 0\.5 s"):
        spinning[(2,)](flag.share_memory_(), num_warps=1)


@pytest.mark.parametrize(
    ("grid", "why"),
    [((2**31 - 1, 2**9), "2147483647 work-groups in x, expected 0 to 67108863"), ((-1,), "-1 work-groups in x"),
     ((2**20, 2**20), "1099511627776 work-groups, the emulated device executes at most 2147483647")],
)  # fmt: skip
def test_a_grid_that_is_too_large(device, grid, why):
    with pytest.raises(ValueError, match=why):
        checked_once[grid](torch.zeros(64), num_warps=1)
    assert not device.drain_launches()
