"""Every build of a kernel of collectives and fused products is read: ``conformance.isa.builds``."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from conformance.collectives.cases import CollectiveCase
from conformance.collectives.code import check_code
from conformance.isa.contract import contracts
from conformance.ops import products
from conformance.ops.cases import FusedCase
from conformance.x import tiles
from conformance.x.cases import TileCase
from tests.isa.protocol_kernels import exchange, listing, words

CASE = CollectiveCase(op="all_gather")


def environment(text, device="emulated", implementation="iris_under_test", rank=0, ranks=1):
    """Return a stand-in for the environment of a rank that has launched a kernel with this listing."""
    launch = SimpleNamespace(kernel="exchange", listing=text)
    return SimpleNamespace(
        rank=rank, world_size=ranks, fault=None, device=SimpleNamespace(name=device), implementation=implementation,
        launches=lambda: [launch],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("old", "missing"),
    [("buffer_wbl2 sc0 sc1", "missing buffer_wbl2 sc0 sc1"), ("s_waitcnt lgkmcnt(0)", "missing s_waitcnt lgkmcnt")],
)
def test_a_planted_fault_is_found_by_one_member(old, missing):
    text = listing(exchange, "gfx942")
    assert contracts()["all_gather"].flags, "the contract is about flags"
    assert [check_code(environment(text), CASE, place, 2) for place in range(2)] == [None, None]
    faulty = text.replace(old, "s_nop 0")
    findings = [check_code(environment(faulty), CASE, place, 2) for place in range(2)]
    assert findings.count(None) == 1
    [fault] = filter(None, findings)
    assert missing in fault["got"] and "all_gather" in fault["wanted"]


def test_each_member_of_an_op_with_a_root_reads_its_own_kernels():
    faulty = listing(exchange, "gfx942").replace("buffer_wbl2 sc0 sc1", "s_nop 1")
    for op in ("scatter", "gather", "broadcast"):
        findings = [check_code(environment(faulty), CollectiveCase(op=op), place, 2) for place in range(2)]
        assert None not in findings, op


def test_code_of_an_open_variant_keeps_the_contract_of_one():
    case, text = CollectiveCase(op="all_reduce", default=True), listing(exchange, "gfx942")
    assert check_code(environment(text), case, 0, 1) is None
    fault = check_code(environment(text.replace("buffer_wbl2 sc0 sc1", "s_nop 0")), case, 0, 1)
    assert "missing buffer_wbl2 sc0 sc1" in fault["got"] and "all_reduce two_shot" in fault["wanted"]


def test_words_of_data_and_flag_are_stored_past_all_caches():
    text, case = listing(words, "gfx942"), CollectiveCase(op="all_gather", protocol="ll")
    assert check_code(environment(text), case, 0, 1) is None
    faulty = re.sub(r"(global_store_dwordx2 .*) sc0 sc1", r"\1 sc0", text)
    fault = check_code(environment(faulty), case, 0, 1)
    assert "is not at scope sys: missing sc0 sc1" in fault["got"] and "all_gather ll" in fault["wanted"]


def test_nothing_is_read_without_a_call_of_a_gpu_and_of_a_library_without_promises():
    faulty = listing(exchange, "gfx942").replace("buffer_wbl2 sc0 sc1", "s_nop 0")
    assert check_code(environment(faulty), CASE, -1, 0) is None
    assert check_code(environment(faulty, "rocm"), CASE, 0, 1) is None
    assert check_code(environment(faulty, implementation="triton"), CASE, 0, 1) is None
    assert check_code(environment(faulty), CASE, 0, 1) is not None


def test_fused_products_and_collectives_of_one_tile_are_read():
    text = listing(exchange, "gfx942")
    faulty = text.replace("buffer_wbl2 sc0 sc1", "s_nop 2")
    calls = [
        (products.check_code, FusedCase("matmul_all_gather")),
        (products.check_code, FusedCase("matmul_all_reduce", variant="one_shot")),
        (tiles.check_code, TileCase("all_reduce_one_shot", "fp32", 1, 1, 1, 1, 1, methods=True)),
    ]
    for check, case in calls:
        assert check(environment(text), case) is None, case
        assert "missing buffer_wbl2 sc0 sc1" in check(environment(faulty), case)["got"], case


def test_members_share_the_kernels_of_a_fused_product_and_each_has_its_own_with_a_context():
    faulty = listing(exchange, "gfx942").replace("buffer_wbl2 sc0 sc1", "s_nop 4")
    own = TileCase("all_reduce_one_shot", "fp32", 1, 1, 1, 1, 1, methods=True)
    for check, case, readers in ((products.check_code, FusedCase("matmul_all_gather"), 1), (tiles.check_code, own, 2)):
        findings = [check(environment(faulty, rank=rank, ranks=2), case) for rank in range(2)]
        assert sum(one is not None for one in findings) == readers, case


def test_a_flag_that_the_suite_sets_itself_for_several_wavefronts_keeps_no_contract():
    faulty = listing(exchange, "gfx942").replace("buffer_wbl2 sc0 sc1", "s_nop 3")
    by_function = TileCase("all_reduce_one_shot", "fp32", 1, 1, 1, 1, 4, methods=False)
    assert tiles.check_code(environment(faulty), by_function) is None
    assert tiles.check_code(environment(faulty), replace(by_function, warps=1)) is not None
