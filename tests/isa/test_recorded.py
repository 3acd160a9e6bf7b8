"""Recorded cases are judged again: what the right listings pass, and a changed listing or record is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest

from conformance import recorded
from conformance.isa import recorded as rules
from conformance.isa.catalogue import CALLS
from conformance.isa.contract import contracts
from conformance.rma.operations import TRANSFERS
from conformance.x.operations import TILES
from harness.evidence import Case, Evidence, Requirement, Verdict
from harness.isa import Roots, fingerprint
from harness.isa.listed import ListedKernel
from tests.evidence import samples
from tests.isa import kernels, test_atomic_order
from tests.isa.protocol_kernels import exchange
from tests.isa.protocol_kernels import listing as protocol_listing

ROOTS, NO_ROOTS = Roots(frozenset({0})), Roots()
WIDE = {"kind": "store", "width": 16, "where": "remote", "peer": True, "executions": 8, "lanes": 512, "bytes": 8192}


def kernel(name: str, text: str, roots: Roots = NO_ROOTS) -> ListedKernel:
    return ListedKernel(name.ljust(64, "0"), name, fingerprint(text, roots=roots), roots, lambda: text)


def put(name: str = "put") -> ListedKernel:
    return kernel(name, kernels.listing("put", "fp16"), ROOTS)


def changed(listed: ListedKernel, pattern: str, into: str, count: int = 1) -> ListedKernel:
    """Return a kernel with an edited listing, whose record agrees with it."""
    text, times = re.subn(pattern, into, listed.text(), count=count, flags=re.MULTILINE)
    assert times
    return kernel(listed.name, text, listed.roots)


def clauses(
    requirement: str,
    launched: list[ListedKernel],
    fields: dict[str, Any] | None = None,
    *,
    accesses: tuple[dict[str, Any], ...] = (WIDE,),
    launches: int = 1,
    implementation: str = "another",
    triton: str = "3.9.0",
    same_suite: bool = True,
    **changes: Any,
) -> list[str]:
    """Return what is wrong with a case of the requirement that launched these kernels, and passed."""
    run = samples.run(
        implementation={"name": implementation}, environment={"packages": {"triton": triton}, "python": "3"}
    )
    values: dict[str, Any] = {
        "id": "0" * 16, "requirement": requirement, "group": f"{requirement}[ranks=2]", "nodeid": "x::test", "seed": 1,
        "case": {"type": "Case", "fields": fields or {}, "data": {"op": "put"}}, "phase": "explicit",
        "verdict": Verdict.PASS, "repeat": "", "kernels": tuple(each.hash for each in launched),
        "launches": {each.hash: {"launches": launches, "accesses": list(accesses)} for each in launched},
    }  # fmt: skip
    case = Case(**{**values, **changes})
    return list(recorded.contradictions(case, launched, Evidence(runs=[run]), same_suite=same_suite))


MOVED = {"dtype": "fp32", "n": 2048, "targets": [[1], []], "direction": "to"}
GATHERED = {"dtype": "fp16", "m": 32, "n": 128}
TRANSFER = {"load_modifier": None, "store_modifier": ".cs", "volatile": False}
ATOMIC = {"op": "add", "sem": "acq_rel", "scope": "sys"}
STREAMED = changed(put(), r"(global_store_dwordx4 .*)$", r"\1 nt", 0)
EXCHANGE = kernel("tile_kernel", protocol_listing(exchange, "gfx942"))
ADDED = kernel("by_context", test_atomic_order.listing("tile"))
PLAIN, TRACED = (kernel(f"gluon_{name}", kernels.listing("put")) for name in ("plain", "traced"))

RIGHT: dict[str, tuple[list[ListedKernel], dict[str, Any]]] = {
    "ISA-WIDTH-001": ([put()], MOVED),
    "ISA-WIDTH-002": ([put("gather_0"), put("gather_1")], GATHERED),
    "ISA-WIDTH-005": ([ADDED], {}),
    "ISA-CONTRACT-001": ([EXCHANGE], {"call": "all_gather triton"}),
    "ATOMIC-ORDER-001": ([ADDED], ATOMIC),
    "HOST-DEVICE-BARRIER-004": ([EXCHANGE], {}),
    "X-ORDER-001": ([EXCHANGE], {"op": "reduce_scatter"}),
    "X-WIDTH-001": ([put("tile_kernel")], {"op": "all_gather_rows"}),
    "RMA-CACHE-001": ([STREAMED], TRANSFER),
    "TRACE-COST-001": ([PLAIN, TRACED], {}),
}
NARROW, NO_WRITEBACK = (r"_store_dwordx4", "_store_dwordx2"), (r"^\s*buffer_wbl2.*\n", "")
FORGED: dict[tuple[str, str], tuple[tuple[str, str], str]] = {
    ("ISA-WIDTH-001", "narrow"): (NARROW, "in its listing remote store accesses are 1 x 8"),
    ("ISA-WIDTH-002", "narrow"): (NARROW, "in its listing remote store accesses are 1 x 8"),
    ("ISA-WIDTH-001", "gone"): ((r"global_store_dwordx4.*", "s_nop 0"), "no listing of its kernels has a remote"),
    ("ISA-WIDTH-005", "single"): ((r"global_atomic_add ", "global_atomic_add_x2 "), "instead of atomics of 4 bytes"),
    ("ISA-CONTRACT-001", "fence"): (NO_WRITEBACK, "breaks the contract of all_gather: tile_kernel (gfx942): missing"),
    ("ATOMIC-ORDER-001", "fence"): (NO_WRITEBACK, "missing buffer_wbl2 sc0 sc1 before"),
    ("HOST-DEVICE-BARRIER-004", "fence"): (NO_WRITEBACK, "its kernels lack: release at system scope"),
    ("X-ORDER-001", "fence"): ((r"^\s*buffer_inv.*\n", ""), "tile_kernel lacks: acquire at system scope"),
    ("X-WIDTH-001", "narrow"): (NARROW, "in the listing of tile_kernel remote store accesses are 1 x 8"),
    ("RMA-CACHE-001", "dropped"): ((r"(global_store_dwordx4 .*) nt$", r"\1"), "have the cache words"),
    ("TRACE-COST-001", "more"): ((r"(^\s*s_endpgm)", r"\tbuffer_wbl2 sc1\n\1"), "no kernel with calls to record"),
}  # fmt: skip


@pytest.mark.parametrize("requirement", RIGHT)
def test_a_right_listing_passes(requirement):
    launched, fields = RIGHT[requirement]
    assert clauses(requirement, launched, fields) == []


@pytest.mark.parametrize(("requirement", "fault"), FORGED)
def test_a_changed_listing_is_refused(requirement, fault):
    launched, fields = RIGHT[requirement]
    edit, expected = FORGED[requirement, fault]
    forged = [*launched[:-1], changed(launched[-1], *edit, count=0)]
    assert expected in " | ".join(clauses(requirement, forged, fields))


def test_every_rule_has_a_planted_fault():
    assert {requirement for requirement, _ in FORGED} == set(rules.RULES) == set(RIGHT)
    assert set(rules.MOVED) == {"ISA-WIDTH-001", "ISA-WIDTH-002"} == set(rules.WIDTHS)
    assert set(recorded.RULES) == {*rules.RULES, "ORDER-LITMUS-001"}


@pytest.mark.parametrize("requirement", RIGHT)
def test_a_case_without_its_kernels_is_refused(requirement):
    assert clauses(requirement, [], RIGHT[requirement][1])


def test_a_case_that_did_not_pass_is_not_judged():
    forged = [changed(put(), *NARROW)]
    assert clauses("ISA-WIDTH-001", forged, verdict=Verdict.FAIL, message="narrow") == []


@pytest.mark.parametrize(
    ("accesses", "expected"),
    [
        ((), "executed no remote load or store"),
        (({**WIDE, "where": "local", "peer": False},), "executed no remote load or store"),
        (({**WIDE, "width": 2, "bytes": 1024},), "executed a remote store of 2 bytes"),
    ],
)
def test_executed_accesses_are_judged_where_the_device_counts_them(accesses, expected):
    assert clauses("ISA-WIDTH-001", [put()], accesses=accesses, same_suite=False) == [expected]


TO_ITSELF, COPIED = {**MOVED, "targets": [[0], []]}, {"op": "copy"}
LOADED = {**WIDE, "kind": "load"}


@pytest.mark.parametrize(
    ("fields", "changes", "expected"),
    [
        (MOVED, {}, []),
        (MOVED, {"launches": 2}, ["moved 8,192 bytes by remote stores, and its payload is 16,384"]),
        ({**MOVED, "n": 2047}, {}, ["moved 8,192 bytes by remote stores, and its payload is 8,188"]),
        (
            {**MOVED, "targets": [[1], [0]]},
            {},
            ["launched 1 kernels, which is not a multiple of 2, the number of its calls"],
        ),
        (TO_ITSELF, {}, ["moved 8,192 bytes by remote stores, and its payload is 0"]),
        (MOVED, {"data": COPIED}, []),
        ({**MOVED, "direction": "from"}, {"data": COPIED, "accesses": (LOADED,)}, []),
        ({**MOVED, "direction": "from"}, {"data": COPIED}, ["moved 0 bytes by remote loads, and its payload is 8,192"]),
        (MOVED, {"data": {"op": "get"}, "accesses": (LOADED,)}, []),
    ],
)
def test_the_moved_bytes_of_a_transfer_are_those_of_its_payload(fields, changes, expected):
    data = changes.get("data", {"op": "put"})
    further = {name: value for name, value in changes.items() if name != "data"}
    listed = clauses("ISA-WIDTH-001", [put()], case={"type": "Case", "fields": fields, "data": data}, **further)
    assert listed == expected


def test_the_moved_bytes_of_a_gather_are_those_of_its_rows():
    launched = RIGHT["ISA-WIDTH-002"][0]
    [line] = clauses("ISA-WIDTH-002", launched, {**GATHERED, "m": 33})
    assert line == "moved 16,384 bytes by remote stores, and its payload is 16,896"
    assert clauses("ISA-WIDTH-002", launched, {**GATHERED, "m": 33}, same_suite=False) == []
    assert "has no number of bits in its name" in clauses("ISA-WIDTH-002", launched, {**GATHERED, "dtype": "float"})[0]


def test_roots_that_hide_the_remote_accesses():
    """The forger's record calls the table of heap bases an ordinary argument: then no access is remote."""
    hidden = kernel("put", kernels.listing("put", "fp16"), Roots(frozenset()))
    assert clauses("ISA-WIDTH-001", [hidden], same_suite=False) == [
        "no listing of its kernels has a remote load or store"
    ]


@pytest.mark.parametrize(("triton", "faults"), [("3.6.0", 0), ("3.7.1+git", 0), ("3.8.0", 1), ("3.10.0", 1), ("?", 1)])
def test_what_an_older_triton_does_to_atomics_is_excused(triton, faults):
    """Its releases do not wait for the write-back; a missing fence is never excused."""
    wait = (r"(buffer_wbl2.*\n)\s*s_waitcnt vmcnt\(0\).*\n", r"\1")
    unwaited = changed(ADDED, *wait)
    wrong = clauses("ATOMIC-ORDER-001", [unwaited], ATOMIC, triton=triton)
    assert bool(wrong) == bool(faults), wrong
    assert clauses("ATOMIC-ORDER-001", [changed(ADDED, *NO_WRITEBACK)], ATOMIC, triton=triton)


def test_a_volatile_load_is_compared_with_the_plain_one_of_the_case():
    fields = {**TRANSFER, "volatile": True, "store_modifier": None}
    assert "no kernel of it shows" in clauses("RMA-CACHE-001", [put()], fields)[0]
    assert clauses("RMA-CACHE-001", [put(), put("plain_load")], fields) == []
    cached = changed(put("plain_load"), r"(global_load_dwordx4 .*|buffer_load_dwordx4 .*)$", r"\1 nt", 0)
    assert "have the cache words" in clauses("RMA-CACHE-001", [put(), cached], fields)[0]


def test_rules_that_read_fields_hold_for_the_same_suite_only():
    narrow = [changed(put("tile_kernel"), *NARROW)]
    assert clauses("X-WIDTH-001", narrow, {"op": "all_gather_rows"}, same_suite=False) == []
    assert clauses("ISA-WIDTH-001", narrow, same_suite=False)


@pytest.mark.parametrize("fields", [{}, {"op": "unheard of"}, {"op": 3}])
def test_fields_that_a_rule_cannot_read(fields):
    [problem] = clauses("X-WIDTH-001", [put("tile_kernel")], fields)
    assert problem.startswith("it cannot be judged again: ")


def test_a_form_has_the_rule_of_its_requirement():
    form = Requirement("ISA-WIDTH-003", "the same", "x", form_of="ISA-WIDTH-001")
    run = samples.run()
    case = Case(
        "0" * 16, "ISA-WIDTH-003", "ISA-WIDTH-003[ranks=2]", "x::test", {"type": "C", "fields": {}}, 1, "explicit",
        Verdict.PASS, "",
    )  # fmt: skip
    evidence = Evidence(runs=[run], statements={"ISA-WIDTH-003": form})
    assert recorded.rejudged(case, evidence, same_suite=False)
    assert list(recorded.contradictions(case, [], evidence, same_suite=False))


def litmus(outcomes: dict[str, int], test: str = "MP", scope: str = "sys", order: str = "") -> list[str]:
    fields = {"test": test, "release": order or "release", "acquire": order or "acquire", "scope": scope}
    return clauses("ORDER-LITMUS-001", [], fields, outcomes=outcomes)


def test_outcomes_of_a_litmus_test():
    assert litmus({"observed (1, 1), final (1, 1, 0)": 64}) == []
    assert litmus({"observed (1, 0), final (1, 1, 0)": 1}) == [
        "recorded the outcome observed (1, 0), final (1, 1, 0), which MP forbids"
    ]
    assert litmus({"observed (), final (1, 0, 0)": 2}, "CoWW") == [
        "recorded the outcome observed (), final (1, 0, 0), which CoWW forbids"
    ]
    assert litmus({"observed (0, 0), final (1, 1, 0)": 1}, scope="cta") == []
    assert litmus({"observed (1, 0), final (1, 1, 0)": 1}, scope="cta") != []
    assert litmus({"observed (0, 0), final (1, 1, 0)": 1}, "SB") == []
    assert litmus({"observed (0, 0), final (1, 1, 0)": 1}, "SB", order="acq_rel") != []
    assert litmus({}) == ["recorded no outcome"]
    assert litmus({"timeout": 3}) == ["recorded the outcome timeout, in which a wait did not end"]
    assert "cannot be judged again" in litmus({"observed (1,), final (1, 1, 0)": 1}, "unheard of")[0]


# -- The tables of the rules, which cannot import the operations: those need Triton ------------------------------------


def test_the_tables_are_those_of_the_operations():
    assert {op: (each.loads or "", each.stores or "") for op, each in TRANSFERS.items()} == rules.SIDES
    assert {op: each.remote for op, each in TILES.items() if each.remote} == rules.TILES
    assert tuple(op for op, each in TILES.items() if each.remote and not each.static_width) == rules.ONLY_EXECUTED
    without = tuple(op for op, each in TILES.items() if each.adds_to_output and not each.locks)
    assert without == rules.WITHOUT_LOCKS


@pytest.mark.parametrize(("call", "entry"), CALLS.items())
def test_the_contract_of_a_call_is_found_by_its_name(call, entry):
    assert rules.contract_of(call) == contracts()[entry.contract]
