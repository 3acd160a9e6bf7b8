"""The session of binary mutants, on a stand-in for the ranks whose calls fail as each test needs it."""

from __future__ import annotations

from harness import adversary
from harness.evidence import Verdict
from mutants.binary import session
from mutants.binary.operators import key_of, mutants_in
from mutants.binary.session import Call, Session

LISTING = "put:\n\ts_barrier\n\ts_waitcnt vmcnt(0)\n\ts_endpgm\n.Lfunc_end0:\n"
BARRIER, WAIT = mutants_in("put", LISTING)


def call(name: str, memory: str | None = None) -> Call:
    case = {"type": "Case", "fields": {"name": name}, **({adversary.KEY: memory} if memory else {})}
    return Call("RMA-PUT-001", f"test_put.py::{name}", 2, "fixtures.worker:run_case", {"function": "f", "case": case})


class Ranks:
    """Stand-in for a rank group. ``fails(new, case)`` returns whether a case fails while an instruction is ``new``;
    ``spoils``: an instruction that leaves wrong state behind, until the ranks are replaced.
    """

    def __init__(self, fails=lambda new, case: False, spoils: str = "") -> None:
        self.fails, self.spoils = fails, spoils
        self.new, self.spoiled, self.replaced = "", False, 0

    def call(self, target, payload=None, deadline=30.0):
        name = target.rpartition(":")[2]
        if name == "watch":
            self.new = ""
        elif name == "change":
            self.new = payload["new"]
        elif name == "leave":
            self.replaced, self.spoiled = self.replaced + 1, False
        elif name == "launched":
            return [{key_of(LISTING): ("put", LISTING)}]
        else:
            self.spoiled = self.spoiled or (self.new != "" and self.new == self.spoils)
            wrong = self.spoiled or (self.new != "" and self.fails(self.new, payload["case"]))
            difference = {"what": "slot", "rank": 0, "index": 1, "got": 1, "wanted": 2} if wrong else None
            empty = {"launches": {}, "kernels": {}, "telemetry": {}, "outcomes": {}, "remarks": []}
            return [{"error": None, "difference": difference, **empty}]
        return None


def started(ranks: Ranks, *calls: Call) -> Session:
    return Session(ranks, calls, 10.0)


def test_the_kernels_of_the_calls_give_the_mutants():
    assert started(Ranks(), call("one")).mutants() == [BARRIER, WAIT]


def test_the_first_failing_call_kills():
    ranks = Ranks(lambda new, case: new == "s_nop 0" and case["fields"]["name"] == "two")
    outcome, killer = started(ranks, call("one"), call("two"), call("three")).judge(WAIT)
    assert outcome.verdict is Verdict.FAIL and killer.nodeid == "test_put.py::two" and ranks.new == ""


def test_a_mutant_that_spoils_the_state_costs_the_ranks():
    ranks = Ranks(spoils="s_nop 0")
    session_ = started(ranks, call("one"))
    assert session_.judge(WAIT)[0].verdict is Verdict.FAIL and ranks.replaced == 1
    ranks.spoils = ""
    assert session_.judge(BARRIER)[0].verdict is Verdict.PASS, "judged on fresh ranks"


def test_a_survivor_that_no_call_reaches_is_explained():
    outcome, killer = started(Ranks(), call("one")).judge(WAIT)
    assert killer is None and outcome.message == session.UNREACHED


def test_a_survivor_that_weak_memory_would_show_is_explained():
    ranks = Ranks(lambda new, case: "s_trap" in new or adversary.KEY in case)
    outcome, killer = started(ranks, call("one")).judge(WAIT)
    assert killer is None and outcome.message == session.WEAK


def test_calls_in_weak_memory_come_first_on_fresh_ranks():
    order = []
    ranks = Ranks(lambda new, case: order.append((case["fields"]["name"], ranks.replaced)) or False)
    started(ranks, call("plain"), call("weak", "lazy:7")).judge(WAIT)
    assert order[:2] == [("weak", 1), ("plain", 1)]


def test_each_test_has_a_call_among_those_that_are_repeated():
    order = []
    ranks = Ranks(lambda new, case: order.append(case["fields"]["name"]) or False)
    calls = [*(call("one") for _ in range(session.CALLS_LIMIT)), call("two")]
    started(ranks, *calls).judge(WAIT)
    assert order[:3] == ["one", "two", "one"]
