"""The operators on gfx942 listings."""

from __future__ import annotations

import pytest

from mutants.binary.operators import changes, key_of, mutants_in

LISTING = """\t.text
put:                                    ; @put
\ts_load_dwordx2 s[2:3], s[0:1], 0x0
\ts_waitcnt lgkmcnt(0)
\ts_and_saveexec_b64 s[6:7], vcc
\tglobal_store_dwordx4 v[0:1], v[2:5], off ; comment sc1
\ts_endpgm
.Lfunc_end0:
\ts_waitcnt in_metadata(0)
"""


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("buffer_wbl2 sc0 sc1", {("fence-dropped", "s_nop 0"), ("scope-sc0", "buffer_wbl2 sc1"),
                                 ("scope-sc1", "buffer_wbl2 sc0")}),
        ("s_barrier", {("barrier-dropped", "s_nop 0")}),
        ("s_waitcnt vmcnt(0) lgkmcnt(1)", {("wait-dropped", "s_nop 0"),
                                           ("wait-counter", "s_waitcnt vmcnt(63) lgkmcnt(1)"),
                                           ("wait-counter", "s_waitcnt vmcnt(0) lgkmcnt(15)")}),
        ("global_store_dwordx4 v[0:1], v[2:5], off", {
            ("width-narrowed", "global_store_dwordx2 v[0:1], v[2:3], off"),
            ("offset-shifted", "global_store_dwordx4 v[0:1], v[2:5], off offset:4")}),
        ("global_load_dword v0, v[10:11], off offset:8 sc0 sc1", {
            ("scope-sc0", "global_load_dword v0, v[10:11], off offset:8 sc1"),
            ("scope-sc1", "global_load_dword v0, v[10:11], off offset:8 sc0"),
            ("width-narrowed", "global_load_ushort v0, v[10:11], off offset:8 sc0 sc1"),
            ("offset-shifted", "global_load_dword v0, v[10:11], off offset:12 sc0 sc1"),
            ("offset-dropped", "global_load_dword v0, v[10:11], off sc0 sc1")}),
        ("global_atomic_add v1, v2, v3, s[0:1] sc0 sc1", {
            ("result-dropped", "global_atomic_add v2, v3, s[0:1] sc1"),
            ("scope-sc1", "global_atomic_add v1, v2, v3, s[0:1] sc0"),
            ("offset-shifted", "global_atomic_add v1, v2, v3, s[0:1] offset:4 sc0 sc1")}),
        ("global_atomic_add v2, v3, s[0:1] sc1", {
            ("scope-sc1", "global_atomic_add v2, v3, s[0:1]"),
            ("offset-shifted", "global_atomic_add v2, v3, s[0:1] offset:4 sc1")}),
        ("s_and_saveexec_b64 s[6:7], vcc", {("mask-dropped", "s_mov_b64 s[6:7], exec")}),
        ("v_cmp_gt_i32_e32 vcc, s8, v0", {("compare-edge", "v_cmp_ge_i32_e32 vcc, s8, v0")}),
        ("v_sub_u32_e32 v1, v2, v3", {("swap-operands", "v_sub_u32_e32 v1, v3, v2")}),
        ("v_subb_co_u32_e64 v1, s[0:1], v2, v3, s[0:1]", {
            ("swap-operands", "v_subb_co_u32_e64 v1, s[0:1], v3, v2, s[0:1]")}),
        ("v_add_u32_e32 v1, v2, v3", set()),
    ],
)  # fmt: skip
def test_the_changes_of_an_instruction(instruction, expected):
    assert set(changes(instruction)) == expected


def test_only_the_code_of_the_kernel_is_changed():
    mutants = mutants_in("put", LISTING)
    assert {mutant.line for mutant in mutants} == {4, 5, 6}
    for mutant in mutants:
        assert mutant.applied(LISTING).count("\n") == LISTING.count("\n")
    assert len({mutant.id for mutant in mutants}) == len(mutants)


INLINED = """\t.file 1 "/elsewhere/conformance/rma" "transfer.py"
\t.file 2 "/elsewhere/iris_under_test/device" "rma.py"
\t.file 3 "/python/triton/language" "standard.py"
put:
\t.loc\t1 7 3 ; transfer.py:7:3
\ts_waitcnt vmcnt(0)
\t.loc\t2 40 5 ; rma.py:40:5 @[ transfer.py:9:2 ]
\tbuffer_wbl2 sc1
\ts_barrier
\t.loc\t3 8 1 ; standard.py:8:1 @[ rma.py:41:5 @[ transfer.py:9:2 ] ]
\tv_sub_u32_e32 v1, v2, v3
\t.loc\t1 10 3 ; transfer.py:10:3
\tglobal_store_dword v[0:1], v2, off
\ts_endpgm
.Lfunc_end0:
"""


def test_only_the_code_of_the_library_is_changed():
    assert {mutant.line for mutant in mutants_in("put", INLINED)} == {6, 8, 9, 11, 13}
    assert {mutant.line for mutant in mutants_in("put", INLINED, "iris_under_test")} == {8, 9, 11}
    assert mutants_in("put", INLINED, "another") == []


def test_a_key_is_of_the_code_and_not_of_the_source_s_place():
    source, debug = '\t.file\t1 "/home/a" "put.py"\n\t.loc\t1 7 3 ; put.py:7\n', '\t.section\t".debug_str"\n"/home/a"\n'
    text = source + LISTING + debug
    moved = text.replace("/home/a", "/srv").replace("1 7 3", "1 9 3").replace("put.py:7", "put.py:9")
    assert moved != text and key_of(moved) == key_of(text)
    assert key_of(text.replace("lgkmcnt(0)", "lgkmcnt(1)")) != key_of(text)
