"""Registers that amdgcn code uses before it has waited for the load that writes them."""

from __future__ import annotations

import pytest

from harness.isa import protocol
from tests.isa.protocol_kernels import exchange, listing

FRAME = '\t.amdgcn_target "amdgcn-amd-amdhsa--gfx942"\nkernel:\n{}\n\ts_endpgm\n.Lfunc_end0:\n'
LOAD = "global_load_dword v2, v[0:1], off"


def lacks(*lines: str) -> list[tuple[str, str]]:
    """Return the user and the counter of each missing wait; a line with a colon is a label."""
    text = FRAME.format("\n".join(line if line.endswith(":") else f"\t{line}" for line in lines))
    return [(lack.user.text, lack.counter) for lack in protocol.unwaited(protocol.read(text))]


ADD = "v_add_u32 v3, v2, v2"
SCALAR, USER = "s_load_dword s2, s[0:1], 0x0", "s_add_u32 s4, s2, s2"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([LOAD, "s_waitcnt vmcnt(0)", ADD], []),
        ([LOAD, ADD], [(ADD, "vmcnt")]),
        ([LOAD, "s_waitcnt lgkmcnt(0)", ADD], [(ADD, "vmcnt")]),
        ([LOAD, "v_mov_b32 v2, 0"], [("v_mov_b32 v2, 0", "vmcnt")]),  # the load may write it later
        ([LOAD, "global_store_dword v[0:1], v2, off"], [("global_store_dword v[0:1], v2, off", "vmcnt")]),
        ([LOAD, "global_load_dword v5, v[0:1], off", "s_waitcnt vmcnt(1)", ADD], []),
        ([LOAD, "global_store_dword v[0:1], v9, off", "s_waitcnt vmcnt(1)", ADD], []),
        ([LOAD, "s_waitcnt vmcnt(1)", ADD], [(ADD, "vmcnt")]),
        ([LOAD, "s_waitcnt 0", ADD], []),
        ([LOAD, "s_waitcnt 0xf70", ADD], []),
        ([LOAD, "s_waitcnt 0xf71", ADD], [(ADD, "vmcnt")]),
        ([LOAD, "global_load_dword v2, v[0:1], off"], []),  # in order: the later one writes last
        (["global_load_dword v0, v[0:1], off", LOAD], [(LOAD, "vmcnt")]),
        (["global_load_lds_dword v[2:3], off", ADD], []),  # its registers are an address
        (["buffer_load_dword v2, s[0:3], 0 offen lds", ADD], []),
        (["global_atomic_add v2, v[0:1], v4, off sc0", ADD], [(ADD, "vmcnt")]),
        (["global_atomic_add v[0:1], v2, off", ADD], []),
        (["ds_permute_b32 v2, v5, v2", ADD], [(ADD, "lgkmcnt")]),
        (["ds_read_b32 v2, v5", "ds_read_b32 v6, v5", "s_waitcnt lgkmcnt(1)", ADD], []),
        ([SCALAR, "s_load_dword s3, s[0:1], 0x4", "s_waitcnt lgkmcnt(1)", USER], [(USER, "lgkmcnt")]),  # in any order
        ([SCALAR, "s_waitcnt lgkmcnt(0)", USER], []),
        (["flat_load_dword v2, v[0:1]", "s_waitcnt vmcnt(0)", ADD], [(ADD, "lgkmcnt")]),
        (["flat_load_dword v2, v[0:1]", "s_waitcnt vmcnt(0) lgkmcnt(0)", ADD], []),
    ],
)  # fmt: skip
def test_a_register_is_used_after_the_wait_for_its_load(lines, expected):
    assert lacks(*lines) == expected


def test_a_wait_on_one_way_is_not_one_on_the_other():
    waits = [LOAD, "s_cbranch_scc1 .LBB0_2", "s_waitcnt vmcnt(0)", ".LBB0_2:", ADD]
    assert lacks(*waits) == [(ADD, "vmcnt")]
    assert lacks(*waits[:4], "s_waitcnt vmcnt(0)", ADD) == []


def test_a_loop_carries_what_is_in_flight():
    lines = [".LBB0_1:", ADD, LOAD, "s_cbranch_scc1 .LBB0_1", "s_waitcnt vmcnt(0)"]
    assert lacks(*lines) == [(ADD, "vmcnt")]
    assert lacks(*lines[:3], "s_waitcnt vmcnt(0)", *lines[3:]) == []


def test_ptx_waits_by_itself():
    assert protocol.unwaited(protocol.read(listing(exchange, "sm_90"))) == []
