"""Contracts of compiled kernels: the code of correct kernels passes, and every planted fault is named."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from conformance.isa.catalogue import CALLS
from conformance.isa.contract import Code, Contract, Own, broken, contracts
from harness import isa
from harness.errors import HarnessError
from harness.isa import protocol
from tests.isa.protocol_kernels import added, exchange, listing, locked

AMD, PTX = "gfx942", "sm_90"
EXCHANGE = Contract("exchange", flags=("swap", "store"), own=Own(waits=1, store=16))
LOCKED = Contract("locked", flags=("swap", "store"), own=Own(waits=1, load=16, store=16))


def judged(text: str, contract: Contract = EXCHANGE, is_own: bool = True, usage: str = "") -> list[str]:
    """Return what a listing breaks of a contract."""
    return broken(contract, [Code("exchange", isa.fingerprint(text, usage), protocol.read(text))], is_own)


@pytest.mark.parametrize("arch", [AMD, "gfx950", PTX])
@pytest.mark.parametrize(("kernel", "contract"), [(exchange, EXCHANGE), (locked, LOCKED)])
def test_correct_code_keeps_its_contract(kernel, contract, arch):
    assert judged(listing(kernel, arch), contract) == []


def cut(pattern: str, into: str = "", count: int = 0) -> Callable[[str], str]:
    """Return the fault that replaces ``pattern`` in a listing: everywhere, or the first ``count`` times."""
    return lambda text: re.sub(pattern, into, text, count=count, flags=re.MULTILINE)


WAIT = r"s_waitcnt vmcnt\(0\) lgkmcnt\(0\)\n"
FENCES = "device/targets/amd.py"

AMD_FAULTS = {
    "no write-back": (cut(r"^\s*buffer_wbl2.*\n"), "missing buffer_wbl2 sc0 sc1 between the store", "protocol_kernels"),
    "write-back of the GPU only": (cut("buffer_wbl2 sc0 sc1", "buffer_wbl2 sc1"), "missing buffer_wbl2 sc0 sc1", "protocol_kernels"),
    "write-back not waited for": (cut(WAIT), "missing s_waitcnt vmcnt(0) after the buffer_wbl2", "protocol_kernels"),
    "a wait for fewer": (cut(r"vmcnt\(0\) lgkmcnt", "vmcnt(1) lgkmcnt"), "missing s_waitcnt vmcnt(0)", "protocol_kernels"),
    "no barrier before the flag": (cut(r"^\s*s_barrier\n", count=1), "in every wavefront and s_barrier", "protocol_kernels"),
    "barrier before the wait": (
        cut(rf"({WAIT})((?:.*\n)*?)(\s*s_barrier\n)", r"\3\2\1", count=1), "in every wavefront and s_barrier", "protocol_kernels"),
    "no invalidation": (cut(r"^\s*buffer_inv.*\n"), "missing buffer_inv sc0 sc1 between the load", FENCES),
    "invalidation of the GPU only": (cut("buffer_inv sc0 sc1", "buffer_inv sc1"), "missing buffer_inv sc0 sc1", FENCES),
    "poll from a cache": (cut(r"(global_load_dword v\d+, v\[.*\], off) sc0 sc1", r"\1"), "missing sc0 sc1", FENCES),
    "poll of the GPU only": (cut(r"(global_load_dword v\d+, v\[.*\], off) sc0 sc1", r"\1 sc1"), "missing sc0 sc1", FENCES),
    "poll with a hint only": (cut(r"(global_load_dword v\d+, v\[.*\], off) sc0 sc1", r"\1 nt"), "missing sc0 sc1", FENCES),
    "poll before the loop only": (cut(r"(s_sleep(?:.*\n)*?)\s*global_load_dword v\d+, v.*\n", r"\1"), "reads nothing: it never ends", FENCES),
    "no back-off": (cut(r"s_sleep 1", "s_nop 0"), "does not back off: missing s_sleep", FENCES),
    "flag of the GPU only": (cut(r"(global_atomic_swap .*) sc1", r"\1"), "the flag 'global_atomic_swap", "protocol_kernels"),
    "spill": (cut(r"(\.vgpr_spill_count:\s+)0", r"\g<1>3"), "3 spilt registers", "exchange (gfx942)"),
    "narrow store": (cut("buffer_store_dwordx4", "buffer_store_dwordx2", 1), "is 8 bytes wide, wanted 16", "protocol_kernels"),
}  # fmt: skip
"""Name -> fault of an amdgcn listing, what the finding says, and where it is."""


@pytest.mark.parametrize("name", AMD_FAULTS)
def test_a_fault_is_found_in_amdgcn(name):
    fault, says, place = AMD_FAULTS[name]
    check(exchange, AMD, fault, says, place)


PTX_FAULTS = {
    "no fence": (cut(r"@first fence.acq_rel.sys;"), "missing fence.acq_rel.sys between the store", "protocol_kernels"),
    "fence of the GPU only": (cut("@first fence.acq_rel.sys", "@first fence.acq_rel.gpu"), "missing fence.acq_rel.sys", "protocol_kernels"),
    "no barrier before the fence": (cut(r"^\s*bar.sync.*\n", count=1), "bar.sync before the fence", "protocol_kernels"),
    "no fence after the wait": (cut(r"^(\s*)fence.acq_rel.sys;"), "ld.acquire.sys between the load", "device/targets/nvidia.py"),
    "poll from a cache": (cut(r"ld\.relaxed\.sys\.global", "ld.global"), "missing .relaxed.sys", "device/targets/nvidia.py"),
    "poll of the GPU only": (cut(r"ld\.relaxed\.sys\.global", "ld.relaxed.gpu.global"), "missing .relaxed.sys", "device/targets/nvidia.py"),
    "flag of the GPU only": (cut(r"atom.global.sys.relaxed.exch", "atom.global.gpu.relaxed.exch"), "the flag", "protocol_kernels"),
    "narrow store": (cut(r"st.global.v4.b32", "st.global.v2.b32", 1), "is 8 bytes wide, wanted 16", "protocol_kernels"),
}  # fmt: skip


@pytest.mark.parametrize("name", PTX_FAULTS)
def test_a_fault_is_found_in_ptx(name):
    fault, says, place = PTX_FAULTS[name]
    check(exchange, PTX, fault, says, place)


def test_stack_of_machine_code_is_a_spill():
    usage = "REG:18 STACK:16 SHARED:0 LOCAL:0"
    assert any("16 spilt registers or bytes" in line for line in judged(listing(exchange, PTX), usage=usage))


LOCK_FAULTS = {
    "the lock is only this GPU's": (cut(r"(global_atomic_swap .* sc0) sc1", r"\1"), "does not read at scope sys: missing sc1"),
    "no invalidation after it was taken": (cut(r"^\s*buffer_inv.*\n"), "missing buffer_inv sc0 sc1 between the load"),
    "released before its stores": (cut(r"^\s*buffer_wbl2.*\n"), "missing buffer_wbl2 sc0 sc1 between the store"),
    "no back-off": (cut(r"s_sleep 1", "s_nop 0"), "missing s_sleep"),
}  # fmt: skip


@pytest.mark.parametrize("name", LOCK_FAULTS)
def test_a_fault_of_a_lock_is_found(name):
    fault, says = LOCK_FAULTS[name]
    check(locked, AMD, fault, says, "protocol_kernels", LOCKED)


def check(kernel, arch, fault, says, place, contract=EXCHANGE):
    """A planted fault is found, with the kernel, the source line and what is missing."""
    text = listing(kernel, arch)
    assert fault(text) != text, "the fault is not planted"
    lines = judged(fault(text), contract)
    named = [line for line in lines if says in line and place in line]
    assert named, lines
    assert all(line.startswith(f"exchange ({arch}") for line in lines)


def test_an_atomic_made_of_a_loop_is_no_wait():
    contract = Contract("added")
    assert judged(listing(added, PTX), contract) == []
    loops = judged(listing(added, AMD), contract)
    assert loops and all("a loop around the compare-and-swap 'global_atomic_cmpswap" in line for line in loops)
    assert judged(listing(added, AMD), Contract("added", own=Own(retries=True))) == []
    assert judged(listing(added, AMD), contract, is_own=False) == []


def test_another_library_keeps_the_order_of_memory_only():
    """Widths, registers, spills, back-off and how many flags are set back are its own affair."""
    text = listing(exchange, AMD)
    for name in ("no back-off", "spill", "narrow store", "no barrier before the flag", "write-back not waited for"):
        assert judged(AMD_FAULTS[name][0](text), is_own=False) == [], name
    for name in ("no write-back", "no invalidation", "poll from a cache", "poll of the GPU only"):
        assert judged(AMD_FAULTS[name][0](text), is_own=False), name


@pytest.mark.parametrize(
    "recipe",
    [
        # Each wavefront waits, and one writes back for all.
        lambda text: re.sub(
            rf"\s*buffer_wbl2 sc0 sc1\n{WAIT}((?:.*\n)*?)(\s*s_barrier\n)((?:.*\n)*?)(\s*global_atomic_swap)",
            r"\n\ts_waitcnt vmcnt(0)\n\1\2\3\n\tbuffer_wbl2 sc0 sc1\n\ts_waitcnt vmcnt(0)\n\4", text, count=1,
        ),
        # The stores are written through, and each wavefront waits.
        lambda text: re.sub(
            r"\s*buffer_wbl2 sc0 sc1\n", "\n",
            re.sub(r"(buffer_store_dwordx4 v\[\d+:\d+\], v\d+, s\[0:3\], 0 offen)", r"\1 sc0 sc1", text),
        ),
    ],
    ids=["one writes back for all", "written through"],
)  # fmt: skip
def test_other_correct_recipes_pass(recipe):
    text = recipe(listing(exchange, AMD))
    assert text != listing(exchange, AMD)
    assert judged(text) == []


def test_triton_s_own_release_waits_in_one_wavefront_only():
    """The release that Triton 3.9 emits: a barrier, then write-back and wait in the wavefront that has the atomic."""
    text = re.sub(
        rf"\s*buffer_wbl2 sc0 sc1\n{WAIT}((?:.*\n)*?)(\s*s_barrier\n)((?:.*\n)*?)(\s*global_atomic_swap)",
        r"\n\1\2\3\n\tbuffer_wbl2 sc0 sc1\n\ts_waitcnt vmcnt(0)\n\4", listing(exchange, AMD), count=1,
    )  # fmt: skip
    assert any("s_waitcnt vmcnt(0) in every wavefront" in line for line in judged(text))
    assert judged(text, is_own=False) == []


def test_every_call_of_the_catalogue_has_one_contract_and_every_contract_a_call():
    assert {entry.contract for entry in CALLS.values()} == set(contracts())


def test_a_wrong_key_is_refused(tmp_path):
    (tmp_path / "wrong.toml").write_text('[put]\nscopes = "sys"\n', encoding="utf-8")
    with pytest.raises(HarnessError, match=r"put: expected keys among .*'scope'.*, got \['scopes'\]"):
        contracts(tmp_path)


def test_limits_of_registers_and_spin_loops():
    text = listing(exchange, AMD)
    (line,) = judged(text, Contract("exchange", own=Own(registers={AMD: 8})))
    assert re.search(r"exchange \(gfx942\): \d+ registers, at most 8 wanted", line)
    (line,) = judged(text, Contract("exchange", own=Own(waits=2)))
    assert "1 spin loops, wanted 2" in line
