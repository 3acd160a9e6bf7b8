"""The conformance suite's checks of compiled code: they accept the library's code and reject each planted fault."""

import json
import subprocess
import sys
from dataclasses import dataclass, replace

import pytest
import triton

from conformance.atomics.operations import SCOPES, SEMS
from conformance.isa.listing import expect_width
from conformance.isa.targets import LOADS, PLAIN, STORES, order_faults, seen_order, wanted_order
from conformance.rma.test_cache_modifiers import expect_bits
from fixtures.findings import Findings
from harness.isa import fingerprint
from tests.isa import kernels


@dataclass(frozen=True)
class Launch:
    """Record of a launch on a GPU that has only the code."""

    listing: str
    kernel: str = "put"
    sass = None
    usage = ""
    accesses = ()


def width_finding(listing, kind="store", counted=False):
    findings = Findings(rank=0)
    expect_width(findings, [Launch(listing)], kind, payload_bytes=4096, counted=counted)
    return findings.first


def test_wide_stores_pass_on_both_targets():
    assert width_finding(kernels.ptx("put", "fp16")) is None
    assert width_finding(kernels.listing("put", "fp16")) is None


WIDE_PTX = "st.global.v4.b32"


@pytest.mark.parametrize(
    ("listing", "fault", "finding"),
    [
        (kernels.ptx, lambda text: text.replace(WIDE_PTX, "st.global.v2.b32", 1), "1 x 8 bytes wide"),
        (kernels.ptx, lambda text: text.replace(WIDE_PTX, "ld.global.v4.b32"), "there is no remote store"),
        (kernels.listing, lambda text: text.replace("_store_dwordx4", "_store_dwordx2", 1), "1 x 8"),
        (kernels.listing, lambda text: text.replace("global_store_dwordx4", "v_nop"), "there is no remote store"),
    ],
    ids=["narrowed", "gone", "amdgcn narrowed", "amdgcn gone"],
)
def test_a_fault_of_width_is_found(listing, fault, finding):
    text = listing("put", "i32")
    assert fault(text) != text
    assert finding in str(width_finding(fault(text)))


def test_where_launches_are_counted_an_access_that_was_not_executed_is_found():
    assert "bytes of remote stores" in str(width_finding(kernels.listing("put", "fp16"), counted=True))


def test_no_launch_is_a_finding():
    findings = Findings(rank=0)
    expect_width(findings, [], "store", 0, counted=False)
    assert "launches with remote" in str(findings.first)


def order_finding(text, sem, scope):
    return next(iter(order_faults(fingerprint(text), text, sem, scope)), None)


ORDERS = [(sem, scope) for sem in SEMS for scope in SCOPES if sem and scope]


@pytest.mark.parametrize("listing", [kernels.listing, kernels.ptx], ids=["amdgcn", "ptx"])
def test_the_order_that_was_asked_for_is_the_only_one_that_passes(listing):
    passing = [order for order in ORDERS if order_finding(listing("add"), *order) is None]
    assert passing == [("acq_rel", "sys")]


@pytest.mark.parametrize(
    "fault",
    [
        lambda text: text.replace(".sys.acq_rel.", ".gpu.acq_rel."),
        lambda text: text.replace(".sys.acq_rel.", ".sys.release."),
        lambda text: text.replace("atom.global.sys.acq_rel.add", "atom.global.add"),
        lambda text: text.replace("atom.global.sys.acq_rel.add", "st.global.sys.relaxed"),
        lambda text: text.replace("\n\tret;", "\n\tfence.acq_rel.sys;\n\tret;"),
    ],
    ids=["scope", "order", "none", "no atomic", "a fence next to it"],
)
def test_a_dropped_order_is_found(fault):
    text = kernels.ptx("add")
    assert fault(text) != text
    assert order_finding(fault(text), "acq_rel", "sys") is not None


CTA = [(sem, "cta") for sem in SEMS if sem]


@pytest.mark.parametrize(
    ("language", "alike"),
    [
        ("amdgcn", [[("relaxed", "gpu"), *CTA]]),
        ("ptx", []),
        ("sass", [[("relaxed", "cta"), ("acquire", "cta")], [("release", "cta"), ("acq_rel", "cta")]]),
    ],
)
def test_orders_that_a_target_does_not_tell_apart(language, alike):
    seen = {}
    for order in ORDERS:
        seen.setdefault(str(wanted_order(language, *order)), []).append(order)
    assert [orders for orders in seen.values() if len(orders) > 1] == alike


def test_code_without_an_atomic_has_no_order():
    for listing in (kernels.listing, kernels.ptx):
        code = fingerprint(listing("put"))
        assert all(seen_order(code) != wanted_order(code.language, *order) for order in ORDERS)


def bits_finding(code, kind, modifier, wanted):
    findings = Findings(rank=0)
    expect_bits(findings, code, kind, "remote", modifier, wanted)
    return findings.first


@pytest.mark.parametrize("modifier", [".wb", ".cg", ".cs", ".wt"])
def test_a_dropped_or_wrong_modifier_is_found(modifier):
    text = kernels.ptx("put", "fp16")
    right = fingerprint(text.replace("st.global.v4", f"st.global{modifier}.v4"))
    wanted = STORES["ptx"][modifier]
    assert bits_finding(right, "store", modifier, wanted) is None
    for wrong in (text, text.replace("st.global.v4", "st.global.L1::no_allocate.v4")):
        assert bits_finding(fingerprint(wrong), "store", modifier, wanted) is not None
    assert bits_finding(right, "store", None, ()) is not None, "and one that no caller requested"


def test_the_tables_speak_of_every_modifier_the_same_way():
    for table in (LOADS, STORES):
        assert list(table) == ["amdgcn", "ptx", "sass"]
        # Machine code cannot have an operation that PTX does not request.
        assert set(table["sass"]) == set(table["ptx"])
    assert all(words is PLAIN or isinstance(words, tuple) for table in LOADS.values() for words in table.values())


def test_one_of_several_accesses_with_another_modifier_is_found():
    code = fingerprint(kernels.ptx("put", "i32").replace("st.global.v4", "st.global.wt.v4"))
    first = next(access for access in code.accesses if access.kind == "store")
    mixed = replace(code, accesses=(*code.accesses, replace(first, bits=())))
    assert bits_finding(code, "store", ".wt", ("wt",)) is None
    assert bits_finding(mixed, "store", ".wt", ("wt",)) is not None


def suite(*arguments, planted=""):
    """Result of the conformance suite on its own code for sm_90; ``planted`` changes the library before."""
    program = f"from tests.isa import kernels, suite_for\n{planted}\nsuite_for.main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "cuda", "90", *arguments],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.nightly
def test_every_requirement_of_the_code_holds_for_sm_90():
    # `iris-harness isa check` judges the contracts for sm_90: they need the kernels of a rank that has peers.
    judged = ("test_order", "test_remote_width", "hinted_atomics", "barrier_order", "cache_modifiers")
    summary = suite("--examples", "3", "--only", *judged, "--machine-code", "40", "--worlds", "2", "8")
    assert (summary["errors"], summary["findings"]) == ({}, {})
    assert summary["cases"] > 250 and summary["kernels"] > 250


@pytest.mark.nightly
def test_every_kernel_of_the_suite_compiles_for_sm_90():
    summary = suite("--examples", "1", "--only", ".rma.", ".atomics.", ".ordering.", ".collectives.", ".negative.")
    assert summary["errors"] == {}
    assert summary["kernels"] > 200, f"Triton {triton.__version__}"


@pytest.mark.nightly
def test_a_library_that_loses_alignment_is_found():
    planted = "import iris_under_test.device.gluon.context as context\ncontext.translate = kernels.rebase"
    summary = suite("--examples", "2", "--only", "test_width", planted=planted)
    assert summary["errors"] == {}
    assert any("x 1 bytes wide" in finding for finding in summary["findings"])
    for op in ("put", "store", "get", "load", "copy"):
        assert any(f"'op': '{op}'" in case for case in summary["findings"].values()), op


@pytest.mark.nightly
def test_an_exchange_that_drops_the_scope_is_found():
    planted = (
        "from dataclasses import replace\n"
        "from conformance.atomics.operations import ATOMICS\n"
        "xchg = ATOMICS['xchg']\n"
        "ATOMICS['xchg'] = replace(xchg, calls={**xchg.calls, 'gluon': kernels.xchg_without_scope})"
    )
    summary = suite("--examples", "1", "--only", "test_order", planted=planted)
    assert summary["errors"] == {}
    assert any("of atomic_xchg with sem=" in finding for finding in summary["findings"]), summary
    assert not any("atomic_add" in finding for finding in summary["findings"])
