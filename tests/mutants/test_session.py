"""The session of binary mutants, on a stand-in for the ranks whose calls fail as each test needs it."""

from __future__ import annotations

import pytest

from harness import adversary
from harness.errors import HarnessError
from harness.evidence import Verdict
from mutants.binary import session
from mutants.binary.operators import key_of, mutants_in
from mutants.binary.session import Call, Session

LISTING = "put:\n\ts_barrier\n\ts_waitcnt vmcnt(0)\n\ts_sub_u32 s0, s1, s2\n\ts_endpgm\n.Lfunc_end0:\n"
BARRIER, WAIT, SWAPPED = mutants_in("put", LISTING)


def call(name: str, memory: str | None = None) -> Call:
    case = {"type": "Case", "fields": {"name": name}, **({adversary.KEY: memory} if memory else {})}
    return Call("RMA-PUT-001", f"test_put.py::{name}", 2, "fixtures.worker:run_case", {"function": "f", "case": case})


class Ranks:
    """Stand-in for a rank group. ``fails(new, case)`` returns whether a case fails while an instruction is ``new``;
    ``spoils``: an instruction that leaves wrong state behind, until the ranks are replaced. ``renewed``: how often they
    had a new instance of the library. ``made``: the instruction of each call.
    """

    def __init__(self, fails=lambda new, case: False, spoils: str = "") -> None:
        self.fails, self.spoils = fails, spoils
        self.new, self.spoiled, self.replaced, self.renewed = "", False, 0, 0
        self.made: list[str] = []

    def call(self, target, payload=None, deadline=30.0):
        name = target.rpartition(":")[2]
        if name == "watch":
            self.new = ""
        elif name == "change":
            self.new = payload["new"]
        elif name == "renew":
            self.renewed += 1
        elif name == "leave":
            self.replaced, self.spoiled = self.replaced + 1, False
        elif name == "launched":
            return [{}, {key_of(LISTING): ("put", LISTING)}]  # a group of rank 0 alone has a kernel of its own
        else:
            self.made.append(self.new)
            self.spoiled = self.spoiled or (self.new != "" and self.new == self.spoils)
            wrong = self.spoiled or (self.new != "" and self.fails(self.new, payload["case"]))
            difference = {"what": "slot", "rank": 0, "index": 1, "got": 1, "wanted": 2} if wrong else None
            empty = {"launches": {}, "kernels": {}, "telemetry": {}, "outcomes": {}, "remarks": [], "sharing": 0}
            return [{"error": None, "difference": difference, **empty}]
        return None


def started(ranks: Ranks, *calls: Call, further: tuple[Call, ...] = ()) -> Session:
    return Session(ranks, calls, 10.0, further=further)


def test_the_kernels_of_the_calls_on_any_rank_give_the_mutants():
    assert started(Ranks(), call("one")).mutants() == [BARRIER, WAIT, SWAPPED]


def test_the_first_failing_call_kills():
    ranks = Ranks(lambda new, case: new == "s_nop 0" and case["fields"]["name"] == "two")
    outcome, killer = started(ranks, call("one"), call("two"), call("three")).judge(WAIT)
    assert outcome.verdict is Verdict.FAIL and killer.nodeid == "test_put.py::two" and ranks.new == ""


def test_a_kill_is_repeated_without_the_mutant():
    ranks = Ranks(lambda new, case: True)
    session_ = started(ranks, call("one"))
    ranks.made.clear()
    assert session_.judge(WAIT)[0].verdict is Verdict.FAIL
    assert ranks.made == ["s_nop 0", ""] and (ranks.renewed, ranks.replaced) == (2, 0)


def test_a_mutant_that_spoils_the_state_costs_the_ranks():
    ranks = Ranks(spoils="s_nop 0")
    session_ = started(ranks, call("one"))
    with pytest.raises(HarnessError, match="fails on new processes without the mutant"):
        session_.judge(WAIT)  # it spoils new ranks too
    ranks.spoils, ranks.spoiled, ranks.replaced = "", True, 0
    assert session_.judge(BARRIER)[0].verdict is Verdict.PASS and ranks.replaced == 1, "judged again on new ranks"


def test_a_survivor_that_no_call_reaches_is_explained():
    outcome, killer = started(Ranks(), call("one")).judge(WAIT)
    assert killer is None and outcome.message == session.UNREACHED


def test_a_survivor_that_weak_memory_would_show_is_explained():
    ranks = Ranks(lambda new, case: "s_trap" in new or adversary.KEY in case)
    outcome, killer = started(ranks, call("one")).judge(WAIT)
    assert killer is None and outcome.message == session.WEAK


@pytest.mark.parametrize(("mutant", "expected"), [(WAIT, ["weak", "plain"]), (SWAPPED, ["plain", "weak"])])
def test_calls_with_a_schedule_come_first_where_order_is_at_stake(mutant, expected):
    order = []
    ranks = Ranks(lambda new, case: order.append((case["fields"]["name"], ranks.renewed)) or False)
    started(ranks, call("plain"), call("weak", "lazy:7")).judge(mutant)
    assert [name for name, _ in order[:2]] == expected
    assert [renewed for _, renewed in order[:2]] == [1, 2], "each part has a new instance of the library"


def test_all_calls_are_repeated_the_first_of_each_test_first():
    order = []
    ranks = Ranks(lambda new, case: order.append(case["fields"]["name"]) or False)
    started(ranks, *(call("one") for _ in range(20)), call("two")).judge(WAIT)
    assert order[:21] == ["one", "two", *["one"] * 19]


def test_further_calls_judge_and_give_no_mutants():
    ranks = Ranks(lambda new, case: case["fields"]["name"] == "other")
    session_ = started(ranks, call("one"), further=(call("other"),))
    assert session_.mutants() == [BARRIER, WAIT, SWAPPED]
    outcome, killer = session_.judge(WAIT)
    assert outcome.verdict is Verdict.FAIL and killer.nodeid == "test_put.py::other"
    assert Session(ranks, [], 10.0, further=[call("other")]).mutants() == []
