"""The instructions that end a block: branches on each condition, s_barrier, s_sleep, s_endpgm."""

import numpy as np
import pytest

from tests.emulator.covering import covers
from tests.emulator.single import run_kernel

OUT = np.zeros(8, np.uint32)
ADDRESS = OUT.ctypes.data
MEMORY = ((ADDRESS, OUT.nbytes, "out"),)
assert ADDRESS & 0xFFFFFFFF < 0xFFFFFFC0  # no carry into the upper half
STORE = (f"v_mov_b32_e32 v0, {ADDRESS & 0xFFFFFFFF:#x}", f"v_mov_b32_e32 v1, {ADDRESS >> 32:#x}")


def taken(*lines: str) -> bool:
    """Return whether the last of ``lines``, a branch to ``there``, is taken, by the constant that reaches memory."""
    OUT[:] = 0
    run_kernel(
        *STORE,
        *lines,
        "v_mov_b32_e32 v2, 1",
        "s_branch store",
        "there:",
        "v_mov_b32_e32 v2, 2",
        "store:",
        "s_mov_b64 exec, -1",
        "global_store_dword v[0:1], v2, off",
        "s_endpgm",
        "v_mov_b32_e32 v2, 3",  # after the end: never executed
        "global_store_dword v[0:1], v2, off",
        memory=MEMORY,
    )
    assert OUT[0] in (1, 2)
    return bool(OUT[0] == 2)


@covers("s_branch s_endpgm s_cbranch_scc0 s_cbranch_scc1")
@pytest.mark.parametrize("equal", [True, False])
def test_branches_on_scc(equal):
    compare = "s_cmp_eq_u32 0, 0" if equal else "s_cmp_eq_u32 0, 1"
    assert taken(compare, "s_cbranch_scc1 there") is equal
    assert taken(compare, "s_cbranch_scc0 there") is not equal


@covers("s_cbranch_vccz s_cbranch_vccnz")
@pytest.mark.parametrize("mask", ["0", "1", "0x80000000", "-1"])
@pytest.mark.parametrize("half", ["vcc_lo", "vcc_hi"])
def test_branches_on_vcc_look_at_all_64_bits(mask, half):
    lines = ("s_mov_b64 vcc, 0", f"s_mov_b32 {half}, {mask}")
    assert taken(*lines, "s_cbranch_vccz there") is (mask == "0")
    assert taken(*lines, "s_cbranch_vccnz there") is (mask != "0")


@covers("s_cbranch_execz s_cbranch_execnz")
@pytest.mark.parametrize("mask", ["0", "1", "0x80000000", "-1"])
@pytest.mark.parametrize("half", ["exec_lo", "exec_hi"])
def test_branches_on_exec_look_at_all_64_bits(mask, half):
    lines = ("v_mov_b32_e32 v2, 0", "s_mov_b64 exec, 0", f"s_mov_b32 {half}, {mask}")
    # Under EXEC 0 nothing is written: each path sets EXEC before it records that it was taken.
    OUT[:] = 0
    for branch, when in (("s_cbranch_execz", mask == "0"), ("s_cbranch_execnz", mask != "0")):
        run_kernel(
            *STORE,
            *lines,
            f"{branch} there",
            "s_mov_b64 exec, -1",
            "v_mov_b32_e32 v2, 1",
            "s_branch store",
            "there:",
            "s_mov_b64 exec, -1",
            "v_mov_b32_e32 v2, 2",
            "store:",
            "global_store_dword v[0:1], v2, off",
            "s_endpgm",
            memory=MEMORY,
        )
        assert OUT[0] == (2 if when else 1)


@covers("s_barrier s_sleep")
def test_a_barrier_holds_wavefronts_until_all_of_the_group_are_there():
    """Wavefront 0 sleeps before it stores; each wavefront then keeps the value that it reads after the barrier."""
    OUT[:] = 0
    run_kernel(
        "v_readfirstlane_b32 s20, v0",  # the wavefront's first thread
        "v_lshrrev_b32_e32 v5, 4, v0",
        "v_and_b32_e32 v5, 12, v5",
        *STORE,
        "v_add_u32_e32 v6, v0, v5",
        "v_mov_b32_e32 v7, v1",
        "v_mov_b32_e32 v3, 7",
        "s_cmp_lg_u32 s20, 0",
        "s_cbranch_scc1 join",
        "s_mov_b32 s20, 0",
        "wait:",
        "s_sleep 1",
        "s_add_u32 s20, s20, 1",
        "s_cmp_lt_u32 s20, 5",
        "s_cbranch_scc1 wait",
        "global_store_dword v[0:1], v3, off",
        "s_waitcnt vmcnt(0)",
        "join:",
        "s_barrier",
        "global_load_dword v4, v[0:1], off",
        "s_waitcnt vmcnt(0)",
        "global_store_dword v[6:7], v4, off offset:4",
        "s_endpgm",
        waves=4,
        memory=MEMORY,
    )
    assert OUT.tolist() == [7, 7, 7, 7, 7, 0, 0, 0]
