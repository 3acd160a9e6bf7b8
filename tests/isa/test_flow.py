"""Origin of addresses in the code of kernels whose remote pointer takes a way that has to be followed.

``flow_kernels`` are compiled for three GPUs, without one.
"""

import functools
import re

import pytest
import torch
import triton

from harness.isa import Roots, fingerprint, remote_mismatch
from harness.isa.compile_only import target
from harness.isa.flow import words
from harness.isa.flow.origin import UNKNOWN
from harness.isa.flow.registers import Registers
from harness.isa.flow.shared import Shared
from harness.isa.flow.solve import solve
from harness.isa.flow.words import Token
from tests.isa import flow_kernels

ARCHS = {"gfx942": ("hip", "gfx942"), "gfx950": ("hip", "gfx950"), "sm_90": ("cuda", 90)}
EACH_AMD = ["gfx942", pytest.param("gfx950", marks=pytest.mark.nightly)]
EACH = [*EACH_AMD, "sm_90"]
TABLE, TARGET, OUT = 0, 1, 2


@functools.cache
def code(kernel, arch, **options):
    backend, number = ARCHS[arch]
    if backend == "hip" and kernel in flow_kernels.REFUSED_FOR_AMD:
        pytest.skip(f"Triton {triton.__version__} cannot compile {kernel} for AMD GPUs")
    gluon = {"LANES": 64 if backend == "hip" else 32} if "LANES" in getattr(flow_kernels, kernel).arg_names else {}
    table, data = torch.zeros(256, dtype=torch.int64), torch.zeros(4096, dtype=torch.int32)
    with target(backend, number):
        compiled = getattr(flow_kernels, kernel)[(1,)](table, data, data, 17, 2, 5, num_warps=4, **gluon, **options)
        return str(compiled.asm["amdgcn" if backend == "hip" else "ptx"])


def stores(text, roots=UNKNOWN):
    """Return the places of the stores and atomics."""
    listed = fingerprint(text, roots=roots).accesses
    return {access.where: access.count for access in listed if access.kind != "load"}


WAYS = (
    "by_select", "by_scalar_select", "by_loop", "by_limits", "by_reduction", "by_two_tables", "by_tuple", "by_context",
    "by_memory", "by_shared_memory", "by_gluon_loop", "by_rank", "by_turns", "by_bytes",
)  # fmt: skip


# A GPU for each way in turn, and the others at night.
@pytest.mark.parametrize(
    ("kernel", "arch"),
    [
        pytest.param(way, arch, marks=() if arch == ("gfx942", "sm_90")[turn % 2] else pytest.mark.nightly)
        for turn, way in enumerate(WAYS)
        for arch in ARCHS
    ],
)
def test_a_remote_pointer_is_followed_and_a_local_one_stays_local(kernel, arch):
    text = code(kernel, arch)
    assert set(stores(text)) == {"remote", "local"}
    counts = fingerprint(text)
    assert {access.where for access in counts.accesses if access.kind == "load"} == {"local"}, "the table is local"
    local = [access for access in counts.accesses if access.where == "local" and access.kind == "store"]
    assert all("flow_kernels" in access.source for access in local)
    # Known roots change nothing; without a table nothing is remote.
    assert stores(text, Roots(tables=frozenset({TABLE}))) == stores(text)
    assert set(stores(text, Roots(tables=frozenset()))) == {"local"}


@pytest.mark.parametrize("arch", EACH)
def test_pointers_that_change_places_are_both_remote(arch):
    text = code("by_rotation", arch)
    accesses = fingerprint(text).accesses
    assert {access.where for access in accesses if access.kind == "store"} == {"remote", "local"}


@pytest.mark.parametrize("arch", EACH)
def test_calls_are_followed_into_functions_and_back(arch):
    text = code("by_function", arch)
    assert "s_swappc_b64" in text or "call.uni" in text, "the compiler did inline the functions"
    assert stores(text) == {"remote": 1, "local": 1}


@pytest.mark.parametrize("arch", EACH)
def test_what_is_written_to_is_no_table(arch):
    assert set(stores(code("by_boxes", arch))) == {"remote", "local"}
    remote = fingerprint(code("by_boxes", arch)).widths("remote", "store")
    assert remote.pop(8) == 1, "the box"
    assert remote, "what is reached by an address from a box"


@pytest.mark.parametrize("arch", EACH)
def test_text_for_the_host_goes_to_no_peer(arch):
    text = code("by_assertion", arch, debug=True)
    counts = fingerprint(text)
    assert counts.widths("local", "store").get(8, 0) > 8 or "__assertfail" in text, "nothing is asserted"
    assert set(counts.widths("remote", "store")) <= {4, 16} and not counts.widths("unattributed", "store")


def test_warps_that_specialise_are_followed_and_what_they_share():
    text = code("by_roles", "sm_90", WIDTH=4)
    assert "brx.idx" in text and "ld.shared.b64" in text, "no jump table, or nothing is handed over: it tests nothing"
    wide, narrow = (fingerprint(code("by_roles", "sm_90", WIDTH=width)) for width in (4, 2))
    assert [wide.widths(where, "store") for where in ("remote", "local", "unattributed")] == [{16: 1}, {4: 1}, {}]
    assert remote_mismatch(wide, "store", 16) is None
    assert "1 x 8 bytes wide" in remote_mismatch(narrow, "store", 16)


@pytest.mark.parametrize("arch", EACH_AMD)
def test_jumps_by_register_over_long_code_are_followed(arch):
    text = code("by_gluon_loop", arch)
    far = re.sub(
        r"s_branch (\S+)",
        r"s_getpc_b64 s[98:99]\n.Lpost_getpc0:\n\ts_add_u32 s98, s98, (\1-.Lpost_getpc0)&4294967295\n"
        r"\ts_addc_u32 s99, s99, (\1-.Lpost_getpc0)>>32\n\ts_setpc_b64 s[98:99]",
        text,
    )
    assert far != text, "the kernel does not jump: it tests nothing"
    assert stores(far) == stores(text)


@pytest.mark.parametrize("arch", EACH_AMD)
def test_spilled_addresses_are_followed(arch):
    text = code("by_spills", arch, waves_per_eu=8, COUNT=40)
    assert fingerprint(text).vgpr_spills, "the kernel does not spill: it tests nothing"
    counts = stores(text)
    assert counts["remote"] == counts["local"] and set(counts) == {"remote", "local"}


@pytest.mark.parametrize("arch", EACH)
def test_loaded_indices_are_no_addresses(arch):
    assert set(stores(code("by_offsets", arch))) == {"local"}


@pytest.mark.parametrize("arch", EACH)
def test_a_table_of_local_pointers_is_local_where_the_heap_table_is_known(arch):
    text = code("by_local_table", arch)
    assert set(stores(text)) == {"remote"}, "without knowledge any table may be that of the heap bases"
    assert set(stores(text, Roots(tables=frozenset({TABLE})))) == {"remote", "local"}
    assert set(stores(text, Roots(tables=frozenset({OUT})))) == {"remote", "local"}
    assert set(stores(text, Roots(tables=frozenset()))) == {"local"}


@pytest.mark.parametrize("arch", EACH)
def test_an_argument_may_point_to_a_peer_itself(arch):
    assert set(stores(code("by_offsets", arch), Roots(frozenset(), peers=frozenset({OUT})))) == {"remote", "local"}


@pytest.mark.parametrize("arch", EACH)
def test_an_index_hides_neither_a_base_nor_a_peer(arch):
    text = code("by_loaded_offset", arch)
    for table in (TABLE, OUT):
        assert set(stores(text, Roots(tables=frozenset({table})))) == {"remote", "local"}
    assert set(stores(text, Roots(tables=frozenset()))) == {"local"}
    text = code("by_range", arch)
    assert set(stores(text, Roots(frozenset(), peers=frozenset({TARGET})))) == {"remote", "local"}
    assert set(stores(text, Roots(tables=frozenset()))) == {"local"}


def test_an_address_that_is_made_of_nothing_known_is_no_local_one():
    text = re.sub(r"(?=global_store_dword v\[(\d+):)", r"v_bfrev_b32_e32 v\1, v\1\n\t", code("by_loop", "gfx942"))
    assert "unattributed" in stores(text)
    assert "cannot be followed" in remote_mismatch(fingerprint(text), "store", 16)


def test_a_place_is_visited_when_all_ways_to_it_were_followed():
    # A chain of blocks, each of which may go to the next one by a block at the end of the code, as a call seldom made.
    length, visits = 40, 0

    def run(key, state):
        nonlocal visits
        visits += 1
        (at, calls), last = key, length - 1
        if at > last:
            state[f"s{at}"] = words.of_token(Token("p0"))
            yield (at - length + 1, calls), state
        elif at < last:
            yield (at + 1, calls), state
            yield (at + length, calls), state
        else:
            ends.append(dict(state.words))

    ends = []
    solve(0, Registers(Shared()), run)
    assert len(ends[-1]) == length - 1, "not every way was followed to the end"
    assert visits <= 2 * 2 * length
