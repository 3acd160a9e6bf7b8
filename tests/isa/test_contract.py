"""Contracts of compiled kernels: the code of correct kernels passes, and every planted fault is named."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from conformance.isa import test_contract
from conformance.isa.catalogue import CALLS
from conformance.isa.contract import Code, Contract, Own, broken, codes_of, contracts, flags_of, promises
from harness import isa
from harness.errors import HarnessError
from harness.isa import protocol
from tests.isa import kernels
from tests.isa.protocol_kernels import added, announced, exchange, largest, listing, locked, words

AMD, PTX = "gfx942", "sm_90"
EXCHANGE = Contract("exchange", flags=("swap", "store"), own=Own(waits=1, store=16))
LOCKED = Contract("locked", flags=("swap", "store"), own=Own(waits=1, load=16, store=16))


def judged(text: str, contract: Contract = EXCHANGE, is_own: bool = True, usage: str = "") -> list[str]:
    """Return what a listing breaks of a contract."""
    return broken(contract, [Code("exchange", isa.fingerprint(text, usage), protocol.read(text), text)], is_own)


@pytest.mark.parametrize("arch", [AMD, "gfx950", PTX])
@pytest.mark.parametrize(("kernel", "contract"), [(exchange, EXCHANGE), (locked, LOCKED)])
def test_correct_code_keeps_its_contract(kernel, contract, arch):
    assert judged(listing(kernel, arch), contract) == []


def cut(pattern: str, into: str = "", count: int = 0) -> Callable[[str], str]:
    """Return the fault that replaces ``pattern`` in a listing: everywhere, or the first ``count`` times."""
    return lambda text: re.sub(pattern, into, text, count=count, flags=re.MULTILINE)


HERE, AMD_FENCES, PTX_FENCES = "tests/isa/protocol_kernels.py", "device/targets/amd.py", "device/targets/nvidia.py"
WAIT = r"s_waitcnt vmcnt\(0\) lgkmcnt\(0\)\n"
POLL = r"(global_load_dword v\d+, v\[.*\], off) sc0 sc1"
FENCES = {AMD: "buffer_wbl2 sc0 sc1", PTX: "fence.acq_rel.sys"}
OTHERS = "missing s_waitcnt vmcnt(0) in every wavefront and s_barrier"

AMD_FAULTS = {
    "no write-back": (cut(r"^\s*buffer_wbl2.*\n"), "missing buffer_wbl2 sc0 sc1 between the store", HERE),
    "write-back of the GPU only": (cut("wbl2 sc0 sc1", "wbl2 sc1"), "missing buffer_wbl2 sc0 sc1", HERE),
    "write-back not waited for": (cut(WAIT), "missing s_waitcnt vmcnt(0) after the buffer_wbl2", HERE),
    "a wait for fewer": (cut(r"vmcnt\(0\) lgkmcnt", "vmcnt(1) lgkmcnt"), "missing s_waitcnt vmcnt(0)", HERE),
    "no barrier before the flag": (cut(r"^\s*s_barrier\n", count=1), OTHERS, HERE),
    "barrier before the wait": (cut(rf"({WAIT})((?:.*\n)*?)(\s*s_barrier\n)", r"\3\2\1", count=1), OTHERS, HERE),
    "no invalidation": (cut(r"^\s*buffer_inv.*\n"), "missing buffer_inv sc0 sc1 between the poll", AMD_FENCES),
    "no wait for a load": (
        cut(r"^\s*s_waitcnt lgkmcnt\(0\)\n"), "missing s_waitcnt lgkmcnt between 's_load_dword", "exchange (gfx942)",
    ),
    "invalidation of the GPU only": (cut("inv sc0 sc1", "inv sc1"), "missing buffer_inv sc0 sc1", AMD_FENCES),
    "poll from a cache": (cut(POLL, r"\1"), "does not read at scope sys: missing sc0 sc1", AMD_FENCES),
    "poll of the GPU only": (cut(POLL, r"\1 sc1"), "missing sc0 sc1", AMD_FENCES),
    "poll with a hint only": (cut(POLL, r"\1 nt"), "missing sc0 sc1", AMD_FENCES),
    "poll before the loop only": (
        cut(r"(s_sleep(?:.*\n)*?)\s*global_load_dword v\d+, v.*\n", r"\1"), "reads nothing: it never ends", AMD_FENCES,
    ),
    "poll of half a flag": (
        cut(r"load_dword (v\d+, v\[.*\], off sc0 sc1)", r"load_ushort \1"), "reads 2 bytes of a flag of 4", AMD_FENCES,
    ),
    "another word before the loop": (cut(POLL, r"\1 offset:4 sc0 sc1", 1), "reads otherwise than the loop", AMD_FENCES),
    "another word in the loop": (
        cut(rf"(s_sleep(?:.*\n)*?\s*){POLL}", r"\1\2 offset:4 sc0 sc1"), "reads otherwise than the loop", AMD_FENCES,
    ),
    "no back-off": (cut("s_sleep 1", "s_nop 0"), "does not back off: missing s_sleep", AMD_FENCES),
    "flag of the GPU only": (cut("(global_atomic_swap .*) sc1", r"\1"), "not written at scope sys: missing sc1", HERE),
    "spill": (cut(r"(\.vgpr_spill_count:\s+)0", r"\g<1>3"), "3 spilt registers", "exchange (gfx942)"),
    "narrow store": (cut("buffer_store_dwordx4", "buffer_store_dwordx2", 1), "is 8 bytes wide, wanted 16", HERE),
    "store with a hint": (cut("(buffer_store_dwordx4 .*)", r"\1 nt", 1), "has the cache bits nt, wanted none", HERE),
}  # fmt: skip
"""Name -> fault of an amdgcn listing, text of the finding, and its place."""


@pytest.mark.parametrize("name", AMD_FAULTS)
def test_a_fault_is_found_in_amdgcn(name):
    fault, wanted, place = AMD_FAULTS[name]
    check(exchange, AMD, fault, wanted, place)


@pytest.mark.parametrize(("states", "wanted"), [(3, "needs 4 wait states"), (4, "")])
def test_too_few_wait_states_are_found_whoever_wrote_the_library(states, wanted):
    """Of LLVM's rules: v_readfirstlane_b32 writes the register that v_readlane_b32 takes the lane from, 4 later."""
    pair = f"\tv_readfirstlane_b32 s0, v1\n\ts_nop {states - 1}\n\tv_readlane_b32 s1, v2, s0\n"
    text = re.sub(r"^(\s*s_endpgm)", rf"{pair}\1", listing(exchange, AMD), count=1, flags=re.MULTILINE)
    for is_own in (True, False):
        lines = judged(text, is_own=is_own)
        assert (any(wanted in line and line.startswith("exchange (gfx942)") for line in lines)) if wanted else not lines


PTX_FAULTS = {
    "no fence": (cut("@first fence.acq_rel.sys;"), "missing fence.acq_rel.sys between the store", HERE),
    "fence of the GPU only": (
        cut("@first fence.acq_rel.sys", "@first fence.acq_rel.gpu"), "missing fence.acq_rel.sys", HERE,
    ),
    "no barrier before the fence": (cut(r"^\s*bar.sync.*\n", count=1), "missing bar.sync before the fence", HERE),
    "no fence after the wait": (cut(r"^(\s*)fence.acq_rel.sys;"), "ld.acquire.sys between the poll", PTX_FENCES),
    "poll from a cache": (cut("ld.relaxed.sys.global", "ld.global"), "missing .relaxed.sys", PTX_FENCES),
    "poll of the GPU only": (cut("ld.relaxed.sys.global", "ld.relaxed.gpu.global"), "missing .relaxed.sys", PTX_FENCES),
    "flag of the GPU only": (cut("atom.global.sys", "atom.global.gpu"), "is not written at scope sys", HERE),
    "narrow store": (cut("st.global.v4.b32", "st.global.v2.b32", 1), "is 8 bytes wide, wanted 16", HERE),
}  # fmt: skip
"""The same of PTX."""


@pytest.mark.parametrize("name", PTX_FAULTS)
def test_a_fault_is_found_in_ptx(name):
    fault, wanted, place = PTX_FAULTS[name]
    check(exchange, PTX, fault, wanted, place)


WORDS = Contract("words", acquires=False, own=Own(waits=1, words=8))
WORD_FAULTS = {
    "a word that a cache keeps": (cut("(global_store_dwordx2 .*) sc0 sc1", r"\1"), "not at scope sys: missing sc0 sc1"),
    "a word in two pieces": (cut("global_store_dwordx2", "global_store_dword"), "is 4 bytes wide, wanted 8"),
    "polls from a cache": (cut("(global_load_dwordx2 .*) sc0 sc1", r"\1"), "does not read at scope sys"),
    "one poll of the GPU only": (cut("(global_load_dwordx2 .*) sc0 sc1", r"\1 sc1", 1), "missing sc0 sc1"),
    "no back-off": (cut("s_sleep 1", "s_nop 0"), "missing s_sleep"),
}  # fmt: skip


@pytest.mark.parametrize("arch", [AMD, PTX])
def test_words_that_carry_their_flag_need_no_fence(arch):
    assert judged(listing(words, arch), WORDS) == []
    assert any("missing" in line for line in judged(listing(words, arch), replace(WORDS, acquires=True)))


@pytest.mark.parametrize("name", WORD_FAULTS)
def test_a_fault_of_such_a_word_is_found(name):
    check(words, AMD, *WORD_FAULTS[name], "device/targets/amd.py", WORDS)


def test_stack_of_machine_code_is_a_spill():
    usage = "REG:18 STACK:16 SHARED:0 LOCAL:0"
    assert any("16 spilt registers or bytes" in line for line in judged(listing(exchange, PTX), usage=usage))


@pytest.mark.parametrize("arch", [AMD, PTX])
def test_an_atomic_on_a_peer_s_memory_of_the_gpu_only_is_found(arch):
    # LLVM makes a loop around a compare-and-swap of a maximum at system scope.
    reducing, text = Contract("largest", own=Own(retries=True)), listing(largest, arch)
    assert judged(text, reducing) == []
    narrow = (
        cut("(global_atomic_cmpswap .*) sc1", r"\1") if arch == AMD else cut(r"((?:red|atom)\.global)\.sys", r"\1.gpu")
    )
    assert narrow(text) != text
    lines = judged(narrow(text), reducing)
    assert lines and all("the remote atomic" in line and "is not at scope sys: missing" in line for line in lines)
    assert HERE in lines[0]
    assert judged(narrow(text), reducing, is_own=False) == []


LOCK_FAULTS = {
    "the lock is only this GPU's": (cut("(global_atomic_swap .* sc0) sc1", r"\1"), "read at scope sys: missing sc1"),
    "no invalidation after it was taken": (cut(r"^\s*buffer_inv.*\n"), "missing buffer_inv sc0 sc1 between the poll"),
    "released before its stores": (cut(r"^\s*buffer_wbl2.*\n"), "missing buffer_wbl2 sc0 sc1 between the store"),
    "no back-off": (cut("s_sleep 1", "s_nop 0"), "missing s_sleep"),
}  # fmt: skip


@pytest.mark.parametrize("name", LOCK_FAULTS)
def test_a_fault_of_a_lock_is_found(name):
    fault, wanted = LOCK_FAULTS[name]
    check(locked, AMD, fault, wanted, HERE, LOCKED)


def check(kernel, arch, fault, wanted, place, contract=EXCHANGE):
    """A planted fault is found, with the kernel, the source line and what is missing."""
    text = listing(kernel, arch)
    assert fault(text) != text, "the fault is not planted"
    lines = judged(fault(text), contract)
    named = [line for line in lines if wanted in line and place in line]
    assert named, lines
    assert all(line.startswith(f"exchange ({arch}") for line in lines)


@pytest.mark.parametrize(("bits", "count", "faulty"), [("sc1", 1, False), ("sc1", 0, True), ("", 1, True)])
def test_another_library_may_also_wait_for_its_own_gpu(bits, count, faulty):
    """But not only for it, and no poll may read a cache that the writer does not reach."""
    text = listing(words, AMD)
    wrong = re.sub("(global_load_dwordx2 .*) sc0 sc1", rf"\1 {bits}", text, count=count)
    assert wrong != text
    lines = judged(wrong, WORDS, is_own=False)
    assert bool(lines) is faulty and all("does not read at scope sys" in line for line in lines)


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
    names = (
        "no back-off",
        "another word before the loop",
        "spill",
        "narrow store",
        "no barrier before the flag",
        "write-back not waited for",
    )
    for name in (*names, "poll of half a flag"):
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
            re.sub(r"(buffer_store_dwordx4 v\[\d+:\d+\], v\d+, s\[\d+:\d+\], 0 offen)", r"\1 sc0 sc1", text),
        ),
    ],
    ids=["one writes back for all", "written through"],
)  # fmt: skip
def test_other_correct_recipes_pass(recipe):
    text = recipe(listing(exchange, AMD))
    assert text != listing(exchange, AMD)
    assert judged(text, replace(EXCHANGE, own=Own(waits=1))) == []


def test_triton_s_own_release_waits_in_one_wavefront_only():
    """The release that Triton 3.9 emits: a barrier, then write-back and wait in the wavefront that has the atomic."""
    text = re.sub(
        rf"\s*buffer_wbl2 sc0 sc1\n{WAIT}((?:.*\n)*?)(\s*s_barrier\n)((?:.*\n)*?)(\s*global_atomic_swap)",
        r"\n\1\2\3\n\tbuffer_wbl2 sc0 sc1\n\ts_waitcnt vmcnt(0)\n\4", listing(exchange, AMD), count=1,
    )  # fmt: skip
    assert any("s_waitcnt vmcnt(0) in every wavefront" in line for line in judged(text))
    assert judged(text, is_own=False) == []


@pytest.mark.parametrize(
    ("fault", "wanted"),
    [
        (cut("buffer_wbl2 sc0 sc1", "buffer_wbl2 sc1"), "buffer_wbl2 (amdgcn): wanted ['sc0 sc1'] for acq_rel at"),
        (cut(r"^\s*buffer_inv.*\n"), "buffer_inv (amdgcn): wanted ['sc0 sc1']"),
        (cut("(global_atomic_add .*) sc1", r"\1"), "sc1 on the atomic (amdgcn): wanted [True]"),
        (
            cut(r"\s*(buffer_wbl2 .*\n)((?:.*\n)*?)(\s*global_atomic_add.*\n)", r"\n\2\3\t\1"),
            "missing buffer_wbl2 sc0 sc1 before 'global_atomic_add",
        ),
    ],
)  # fmt: skip
def test_the_order_of_the_only_atomic_is_part_of_a_contract(fault, wanted):
    contract, text = Contract("add", order=("acq_rel", "sys")), kernels.listing("add")
    assert judged(text, contract) == []
    assert fault(text) != text
    assert any(wanted in line for line in judged(fault(text), contract))


def test_an_atomic_with_an_order_of_its_own_may_have_a_narrower_scope():
    text = re.sub("(buffer_wbl2|buffer_inv) sc0 sc1", r"\1 sc1", kernels.listing("add"))
    text = re.sub("(global_atomic_add .*) sc1", r"\1", text)
    assert judged(text, Contract("add", order=("acq_rel", "gpu"))) == []
    assert any("is not at scope sys" in line for line in judged(text, Contract("add")))


def test_every_call_of_the_catalogue_has_one_contract_and_every_contract_a_call():
    assert {entry.contract for entry in CALLS.values()} == set(contracts())


def test_a_wrong_key_is_refused(tmp_path):
    (tmp_path / "wrong.toml").write_text('[put]\nscopes = "sys"\n', encoding="utf-8")
    with pytest.raises(HarnessError, match=r"put: expected keys among .*'scope'.*, got \['scopes'\]"):
        contracts(tmp_path)


def test_a_call_has_one_contract_and_the_defaults_of_its_file(tmp_path):
    text = '[defaults]\nscope = "gpu"\n[defaults.own]\nwaits = 2\n[put]\n[get]\nscope = "sys"\nown = {waits = 1}\n'
    (tmp_path / "a.toml").write_text(text, encoding="utf-8")
    put, get = contracts(tmp_path).values()
    assert (put.name, put.scope, put.own.waits) == ("put", "gpu", 2)
    assert (get.name, get.scope, get.own.waits) == ("get", "sys", 1)
    folder = tmp_path / "twice"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / f"{name}.toml").write_text("[put]\n", encoding="utf-8")
    with pytest.raises(HarnessError, match=r"b\.toml: 'put' has a contract in another file"):
        contracts(folder)


def test_limits_of_registers_and_spin_loops():
    text = listing(exchange, AMD)
    (line,) = judged(text, Contract("exchange", own=Own(registers={AMD: 8})))
    assert re.search(r"exchange \(gfx942\): \d+ registers, at most 8 wanted", line)
    (line,) = judged(text, Contract("exchange", own=Own(waits=2)))
    assert "1 spin loops, wanted 2" in line
    ptx, usage = listing(exchange, PTX), "REG:18 STACK:0 SHARED:0 LOCAL:0"
    arch = isa.fingerprint(ptx, usage).arch
    (line,) = judged(ptx, Contract("exchange", own=Own(registers={arch: 17})), usage=usage)
    assert line == f"exchange ({arch}): 18 registers, at most 17 wanted"


def test_spills_are_allowed_by_name_of_the_target():
    text = re.sub(r"(\.vgpr_spill_count:\s+)0", r"\g<1>3", listing(exchange, AMD))
    own = EXCHANGE.own
    for allowed, wanted in (({}, 0), ({"sm_90a": 8}, 0), ({AMD: 2}, 2)):
        (line,) = judged(text, replace(EXCHANGE, own=replace(own, spills=allowed)))
        assert line == f"exchange (gfx942): 3 spilt registers or bytes of stack, at most {wanted} wanted"
    assert judged(text, replace(EXCHANGE, own=replace(own, spills={AMD: 3}))) == []


def test_a_limit_is_for_the_architecture_that_it_names():
    text = listing(exchange, AMD)
    registers = isa.fingerprint(text, "").vgprs
    assert judged(text, Contract("exchange", own=Own(registers={"gfx950": 0}, lds={"gfx950": 0}))) == []
    assert judged(text, Contract("exchange", own=Own(registers={AMD: registers}))) == []
    (line,) = judged(text, Contract("exchange", own=Own(registers={AMD: registers - 1})))
    assert line == f"exchange ({AMD}): {registers} registers, at most {registers - 1} wanted"
    ptx = listing(exchange, PTX)
    assert isa.fingerprint(ptx, "").registers is None, "ptxas has not counted them"
    assert judged(ptx, Contract("exchange", own=Own(registers={isa.fingerprint(ptx, "").arch: 0}))) == []


@pytest.mark.parametrize(
    ("text", "promised"),
    [
        ("COMPILED_CODE = True\n", True), ("x = 1\nA = COMPILED_CODE = True\n", True),
        ("COMPILED_CODE = False\n", False),
        ("COMPILED_CODE = 1\n", False), ("OTHER = True\n", False), ("x.COMPILED_CODE = True\n", False),
        ("COMPILED_CODE = bool(1)\n", False), ("def f():\n    COMPILED_CODE = True\n", False), (None, False),
    ],
)  # fmt: skip
def test_a_library_promises_the_code_in_its_module(tmp_path, monkeypatch, text, promised):
    """The module is read, and not imported."""
    folder = tmp_path / "promising"
    folder.mkdir()
    (folder / "__init__.py").write_text("raise ImportError\n", encoding="utf-8")
    if text is not None:
        (folder / "promises.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    assert promises("promising") is promised


def test_what_is_not_a_package_promises_nothing():
    assert promises("iris_under_test")
    for name in ("no_such_package", "not a name", "json.decoder"):
        assert not promises(name)


def test_another_library_may_write_a_flag_for_programs_of_its_own_gpu():
    text = AMD_FAULTS["flag of the GPU only"][0](listing(exchange, AMD))
    assert any("is not written at scope sys" in line for line in judged(text))
    assert not any("is not written at scope" in line for line in judged(text, is_own=False))


@pytest.mark.parametrize(("shared", "bytes_"), [(None, 64), (0, 0), (128, 128)])
def test_shared_memory_is_that_of_the_launch_if_it_is_known(shared, bytes_):
    """Triton allocates shared memory at a launch, beyond what a listing states."""
    text = listing(exchange, AMD)
    code = Code("exchange", replace(isa.fingerprint(text, ""), lds=64), protocol.read(text), text, shared)
    assert code.lds == bytes_
    lines = broken(Contract("exchange", own=Own(lds={AMD: 63})), [code], is_own=True)
    assert lines == ([f"exchange ({AMD}): {bytes_} bytes of LDS, at most 63 wanted"] if bytes_ > 63 else [])


def test_the_code_of_a_launch_is_what_a_contract_judges():
    text = listing(exchange, AMD)
    (code,) = codes_of(SimpleNamespace(kernel="exchange", listing=text))
    assert (code.kernel, code.listing, code.shared) == ("exchange", text, None)
    assert code.fingerprint == isa.fingerprint(text, "")
    assert broken(EXCHANGE, [code], is_own=True) == []
    (wrong,) = codes_of(SimpleNamespace(kernel="exchange", listing=AMD_FAULTS["no write-back"][0](text)))
    assert broken(EXCHANGE, [wrong], is_own=True)


@pytest.mark.parametrize(("flags", "some"), [((), False), (("swap",), False), (("store",), True)])
def test_only_the_operations_that_a_contract_names_write_flags(flags, some):
    steps = flags_of(replace(WORDS, flags=flags), protocol.read(listing(words, AMD)))
    assert bool(steps) is some and all(step.access == "store" for step in steps)


def test_words_that_a_loop_polls_or_swaps_again_are_no_flags():
    """The lock is taken by an exchange that is tried until it succeeds, and released by another one."""
    program = protocol.read(listing(locked, AMD))
    (released,) = flags_of(LOCKED, program)
    (spin,) = protocol.spins(program)
    assert {step.op for step in spin.polls} == {"swap"} == {released.op} and released not in spin.polls
    program = protocol.read(listing(added, AMD))
    assert protocol.retries(program) and flags_of(Contract("added", flags=("cmpswap",)), program) == []


def test_a_narrow_plain_store_is_data_and_no_flag():
    lines = judged(AMD_FAULTS["narrow store"][0](listing(exchange, AMD)))
    assert lines and not any("the flag" in line for line in lines)


def test_flags_that_may_be_written_without_a_release_are_counted():
    text, own = AMD_FAULTS["no write-back"][0](listing(exchange, AMD)), EXCHANGE.own
    assert judged(text, replace(EXCHANGE, own=replace(own, relaxed=1))) == []
    assert judged(text, replace(EXCHANGE, own=replace(own, relaxed=0)))


@pytest.mark.parametrize("arch", [AMD, PTX])
def test_a_flag_may_announce_what_earlier_kernels_have_stored(arch):
    """A kernel that only sets a flag: the end of the kernel before publishes its stores to the same GPU."""
    contract = Contract("announced", flags=("swap", "store"), own=Own(earlier=True))
    assert judged(listing(announced, arch), contract) == []
    fault = cut(r"^\s*(buffer_wbl2|@first fence).*\n")
    (line,) = judged(fault(listing(announced, arch)), contract)
    assert "between the stores of earlier kernels and the flag" in line and f"missing {FENCES[arch]}" in line
    assert judged(fault(listing(announced, arch)), replace(contract, own=Own())) == []
    assert judged(fault(listing(announced, arch)), contract, is_own=False) == []


@pytest.mark.parametrize(("kind", "name"), [("load", "put"), ("store", "add")])
def test_a_kernel_without_the_remote_accesses_whose_width_is_promised_is_reported(kind, name):
    (line,) = judged(kernels.listing(name), Contract(name, own=Own(**{kind: 16})))
    assert line == f"exchange (gfx942): no remote {kind}, wanted 16 bytes wide"


def test_a_kernel_without_the_words_that_carry_data_and_flag_is_reported():
    (line,) = judged(kernels.listing("add"), Contract("add", own=Own(words=8)))
    assert line == "exchange (gfx942): no remote store, wanted 8 bytes wide"


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        ({}, True), ({"space": "scalar"}, False), ({"width": 4, "bits": ("sc0", "sc1")}, False),
        ({"where": "local"}, False), ({"kind": "load"}, False),
    ],
    ids=["payload", "scalar", "flag", "local", "load"],
)  # fmt: skip
def test_the_widths_that_a_library_promises_are_those_of_its_payload(change, counts):
    """A narrow access besides the payload breaks nothing."""
    text = listing(exchange, AMD)
    print_ = isa.fingerprint(text, "")
    wide = next(each for each in print_.accesses if (each.kind, each.where) == ("store", "remote"))
    further = replace(wide, **{"width": 2, **change})
    code = Code("exchange", replace(print_, accesses=(wide, further)), protocol.read(text), text)
    lines = broken(EXCHANGE, [code], is_own=True)
    assert bool(lines) is counts and all("2 bytes wide, wanted 16" in line for line in lines)


def test_the_code_of_each_rank_is_read_by_one(monkeypatch):
    """Ranks 0 and 2 launched the same kernels; rank 1 another one, rank 3 one besides, and rank 4 none."""
    launched = [["a", "b"], ["c"], ["a", "b"], ["a", "b", "c"], []]
    every = torch.cat([test_contract._digest(hashes) for hashes in launched])

    def gathered(mine):
        assert (every == mine).all(1).any()
        return every

    monkeypatch.setattr(test_contract, "gathered", gathered)
    first = [test_contract._is_first_with(hashes, rank) for rank, hashes in enumerate(launched)]
    assert first == [True, True, False, True, True]
