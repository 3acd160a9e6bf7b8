"""Order of memory, order of atomics and spin loops, in programs of a few steps: what is missing is reported."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from harness.isa.protocol.atomics import unordered
from harness.isa.protocol.order import END, START, unacquired, unreleased
from harness.isa.protocol.program import Program, Step
from harness.isa.protocol.spins import retries, spins
from harness.isa.sources import Frame

_lines = itertools.count(1)


def step(text: str, **fields: Any) -> Step:
    """Return a step on the next line of a listing."""
    return Step(text, next(_lines), fields.pop("frames", ()), **fields)


def straight(*steps: Step, wavefronts: int = 1, needs_waits: bool = True) -> Program:
    return Program("amdgcn", [steps], [[]], wavefronts, needs_waits)


def store(text: str = "store", **fields: Any) -> Step:
    return step(text, access="store", **fields)


def load(text: str = "load", **fields: Any) -> Step:
    return step(text, access="load", **fields)


def atomic(text: str = "atomic", **fields: Any) -> Step:
    return step(text, access="atomic", **fields)


def wait() -> Step:
    return step("wait", waits=True)


def barrier() -> Step:
    return step("barrier", barrier=True)


def written_back(scope: Any = "sys") -> Step:
    return step("write back", releases=scope)


def invalidated(scope: Any = "sys") -> Step:
    return step("invalidate", acquires=scope)


FLAG: dict[str, Any] = {"text": "flag", "scope": "sys"}


def lacks(*steps: Step, **options: Any) -> list[tuple[str, str]]:
    """Return the accesses that the last step, a flag, overtakes, and what each lacks."""
    program = straight(*steps, **options)
    overtaken = unreleased(program, [steps[-1]], "sys")
    assert all(one.flag is steps[-1] for one in overtaken)
    return [(one.access.text, one.lack) for one in overtaken]


def test_a_store_needs_a_write_back_and_then_a_wait_before_a_flag() -> None:
    assert lacks(store(), store(**FLAG)) == [("store", "write-back")]
    assert lacks(store(), wait(), store(**FLAG)) == [("store", "write-back")]
    assert lacks(store(), written_back(), store(**FLAG)) == [("store", "wait for the write-back")]
    assert lacks(store(), wait(), written_back(), store(**FLAG)) == [("store", "wait for the write-back")]
    assert lacks(store(), written_back(), wait(), store(**FLAG)) == []
    assert lacks(written_back(), wait(), store(), store(**FLAG)) == [("store", "write-back")]


def test_a_narrower_fence_writes_nothing_back() -> None:
    assert lacks(store(), written_back("gpu"), wait(), store(**FLAG)) == [("store", "write-back")]


def test_what_no_cache_keeps_and_loads_need_only_a_wait() -> None:
    for access in (store(scope="sys"), load("load"), load("load", scope="sys")):
        assert lacks(access, store(**FLAG)) == [(access.text, "wait")]
        assert lacks(access, written_back(), store(**FLAG)) == [(access.text, "wait")]
        assert lacks(access, wait(), store(**FLAG)) == []
    assert lacks(store(scope="gpu"), wait(), store(**FLAG)) == [("store", "write-back")]


def test_fences_that_wait_themselves() -> None:
    """As in PTX, where a fence orders stores, and loads need nothing."""
    assert lacks(store(), store(**FLAG), needs_waits=False) == [("store", "write-back")]
    assert lacks(store(), written_back(), store(**FLAG), needs_waits=False) == []
    assert lacks(store(scope="sys"), load(), store(**FLAG), needs_waits=False) == []
    assert lacks(store(), barrier(), written_back(), store(**FLAG), needs_waits=False, wavefronts=4) == []


def test_a_flag_with_a_release_of_its_own_is_a_fence_before_itself() -> None:
    assert lacks(store(), store("flag", releases="sys"), needs_waits=False) == []
    assert lacks(store(), store("flag", releases="gpu"), needs_waits=False) == [("store", "write-back")]


def test_every_open_access_is_reported_once_in_the_order_of_the_listing() -> None:
    steps = store("first"), load("second"), store("third"), store(**FLAG)
    assert lacks(*steps) == [("first", "write-back"), ("second", "wait"), ("third", "write-back")]


def test_what_earlier_kernels_have_stored_needs_a_write_back_too() -> None:
    flag = store(**FLAG)

    def lacking(*steps: Step, wavefronts: int = 1) -> list[tuple[Step, str]]:
        program = straight(*steps, flag, wavefronts=wavefronts)
        return [(one.access, one.lack) for one in unreleased(program, [flag], "sys", earlier_kernels=True)]

    for wavefronts in (1, 4):
        assert lacking(written_back(), wait(), wavefronts=wavefronts) == []
        assert lacking(barrier(), written_back(), wait(), barrier(), wavefronts=wavefronts) == []
        assert lacking(wait(), wavefronts=wavefronts) == [(START, "write-back")]
        assert lacking(written_back(), wavefronts=wavefronts) == [(START, "wait for the write-back")]
        assert lacking(written_back("gpu"), wait(), wavefronts=wavefronts) == [(START, "write-back")]
    stored = store("stored", scope="sys")
    assert lacking(stored, wait()) == [(START, "write-back")], "it was written through"
    assert [access for access, _ in lacking(stored)] == [stored, START], "what the kernel itself lacks comes first"
    assert unreleased(straight(flag), [flag], "sys") == []


def test_flags_and_polls_do_not_wait_for_each_other() -> None:
    flags, poll = [store(f"flag {number}", scope="sys") for number in range(2)], load("poll", scope="sys")
    program = straight(poll, *flags)
    assert [one.access for one in unreleased(program, flags, "sys")] == [poll, poll]
    assert unreleased(program, flags, "sys", [poll]) == []


def test_the_accesses_of_other_wavefronts_need_a_barrier_before_the_fence() -> None:
    fenced = written_back(), wait(), store(**FLAG)
    for wavefronts in (2, 4):
        assert lacks(store(), *fenced, wavefronts=wavefronts) == [("store", "other wavefronts")]
    assert lacks(store(), *fenced, wavefronts=1) == []
    assert lacks(store(), wait(), barrier(), *fenced, wavefronts=2) == []
    assert lacks(load(), wait(), *fenced, wavefronts=4) == [], "another wavefront's load is its own"


def test_the_accesses_of_other_wavefronts_are_complete_before_the_barrier() -> None:
    fenced = written_back(), wait(), store(**FLAG)
    assert lacks(store(), barrier(), *fenced, wavefronts=4) == [("store", "other wavefronts")]
    assert lacks(store(), barrier(), *fenced, wavefronts=1) == []
    assert lacks(load(), barrier(), wait(), store(**FLAG), wavefronts=4) == [("load", "other wavefronts")]
    assert lacks(store(), written_back(), barrier(), wait(), store(**FLAG), wavefronts=4) == [
        ("store", "other wavefronts")
    ]
    assert lacks(store(), barrier(), store(**FLAG), wavefronts=4) == [("store", "write-back")], (
        "its own store is nearer"
    )
    assert lacks(store(), wait(), barrier(), written_back(), store(**FLAG), wavefronts=4) == [
        ("store", "wait for the write-back")
    ]


def test_the_write_backs_of_other_wavefronts_are_complete_before_the_barrier() -> None:
    """A wavefront waits for its own write-back only. But one after the barrier covers the stores of all."""
    before = store(), wait(), written_back()
    assert lacks(*before, barrier(), wait(), store(**FLAG), wavefronts=4) == [("store", "other wavefronts")]
    assert lacks(*before, wait(), barrier(), store(**FLAG), wavefronts=4) == []
    assert lacks(*before, barrier(), written_back(), wait(), store(**FLAG), wavefronts=4) == []


def test_an_access_of_an_earlier_round_is_complete_at_the_barrier() -> None:
    again = atomic()
    assert lacks(again, wait(), barrier(), again, written_back(), wait(), store(**FLAG), wavefronts=4) == []


def test_each_way_to_a_flag_counts() -> None:
    first, flag = store(), store(**FLAG)
    for ways, wanted in (([written_back(), wait()], []), ([wait()], ["write-back"]), ([], ["write-back"])):
        blocks = [[first], [written_back(), wait()], ways, [flag]]
        program = Program("amdgcn", blocks, [[1, 2], [3], [3], []], 1, True)
        assert [one.lack for one in unreleased(program, [flag], "sys")] == wanted


def test_an_access_behind_a_flag_counts_in_a_loop() -> None:
    flag, late = store(**FLAG), store("late")
    program = Program("amdgcn", [[step("start")], [flag, late], [step("end")]], [[1], [1, 2], []], 1, True)
    assert [(one.access, one.lack) for one in unreleased(program, [flag], "sys")] == [(late, "write-back")]


def stale(*steps: Step, polls: int = 1) -> list[tuple[Step, Step]]:
    """Return poll and load where the load may be older than the poll, of a program that begins with the polls."""
    overtaken = unacquired(straight(*steps), steps[:polls], "sys")
    assert all(one.lack == "invalidation" for one in overtaken)
    return [(one.flag, one.access) for one in overtaken]


def test_a_load_behind_a_poll_needs_an_invalidation() -> None:
    poll, later = load("poll", scope="sys"), load()
    assert stale(poll, later) == [(poll, later)]
    assert stale(poll, invalidated(), later) == []
    assert stale(poll, invalidated("gpu"), later) == [(poll, later)]
    assert stale(poll, later, invalidated(), load()) == [(poll, later)]
    assert stale(poll, load(scope="sys")) == [], "no cache answers it"
    assert stale(poll, load(scope="gpu")) != []
    assert stale(poll, store()) == []
    assert unacquired(straight(later, poll), [poll], "sys") == [], "it was before the poll"


def test_the_loads_of_later_kernels_need_an_invalidation_on_each_way_to_the_end() -> None:
    poll = load("poll", scope="sys")

    def late(*blocks: list[Step], edges: list[list[int]]) -> list[Step]:
        program = Program("amdgcn", blocks, edges, 1, True)
        assert unacquired(program, [poll], "sys") == [], "nothing is read in the kernel itself"
        return [one.access for one in unacquired(program, [poll], "sys", later_kernels=True)]

    assert late([poll], edges=[[]]) == [END]
    assert late([poll, invalidated()], edges=[[]]) == []
    assert late([poll, invalidated("gpu")], edges=[[]]) == [END]
    assert late([invalidated(), poll], edges=[[]]) == [END]
    assert late([poll], [invalidated()], [step("end")], edges=[[1, 2], [2], []]) == [END]
    assert late([poll], [invalidated()], [step("end")], edges=[[1], [2], []]) == []


def test_each_poll_is_reported_with_the_first_load_behind_it() -> None:
    polls, later = [load(f"poll {number}", scope="sys") for number in range(2)], [load(), load()]
    assert stale(*polls, *later, polls=2) == [(polls[0], later[0]), (polls[1], later[0])]
    plain = [load("poll", scope="") for _ in range(2)]
    assert stale(*plain, polls=2) == [], "a poll does not load data"


def test_a_load_of_an_address_is_none_of_data() -> None:
    poll, table = load("poll", scope="sys"), load("table", writes=frozenset({"s0"}))
    through = step("add", reads=frozenset({"s0"}), writes=frozenset({"s1"}))
    assert stale(poll, table, through, store(address=frozenset({"s1"}))) == []
    assert stale(poll, table, through, store(data=frozenset({"s1"}))) == [(poll, table)]
    overwritten = step("move", writes=frozenset({"s1"}))
    assert stale(poll, table, through, overwritten, store(address=frozenset({"s1"}))) == [(poll, table)]


@pytest.mark.parametrize(
    "text", ["v_cmp_u_f32_e64 s[2:3], v0, v0", "s_cmp_lt_i32 s0, 1", "@%p1 setp.lt.f32 %p2, %f1, 0f00000000;"]
)
def test_what_a_comparison_with_data_chooses_is_no_address_from_a_table(text: str) -> None:
    poll, data = load("poll", scope="sys"), load("data", writes=frozenset({"s0"}))
    compared = step(text, reads=frozenset({"s0"}), writes=frozenset({"vcc"}))
    chosen = step("choose", reads=frozenset({"vcc"}), writes=frozenset({"s1"}))
    assert stale(poll, data, compared, chosen, store(address=frozenset({"s1"}))) == [(poll, data)]
    assert stale(poll, data, replace(compared, text="v_add"), chosen, store(address=frozenset({"s1"}))) == []


@pytest.mark.parametrize("register", ["lds", "exec"])
def test_what_goes_through_shared_memory_or_the_mask_is_no_address_from_a_table(register: str) -> None:
    poll, data = load("poll", scope="sys"), load("data", writes=frozenset({"s0"}))
    there = step("there", reads=frozenset({"s0"}), writes=frozenset({register}))
    back = step("back", reads=frozenset({register}), writes=frozenset({"s1"}))
    assert stale(poll, data, there, back, store(address=frozenset({"s1"}))) == [(poll, data)]


def disordered(*steps: Step, releases: bool = False, acquires: bool = False, scope: Any = "sys") -> list[str]:
    return [one.lack for one in unordered(straight(*steps), scope, releases=releases, acquires=acquires)]


def test_an_atomic_that_releases_needs_a_write_back_and_then_a_wait() -> None:
    assert disordered(atomic(), releases=True) == ["write-back"]
    assert disordered(wait(), atomic(), releases=True) == ["write-back"]
    assert disordered(written_back(), atomic(), releases=True) == ["wait for the write-back"]
    assert disordered(wait(), written_back(), atomic(), releases=True) == ["wait for the write-back"]
    assert disordered(written_back(), wait(), atomic(), releases=True) == []
    assert disordered(written_back("gpu"), wait(), atomic(), releases=True) == ["write-back"]
    assert disordered(written_back("gpu"), wait(), atomic(), releases=True, scope="gpu") == []
    assert disordered(atomic(), releases=False) == []


def test_an_atomic_that_acquires_needs_a_wait_and_then_an_invalidation() -> None:
    assert disordered(atomic(), step("end"), acquires=True) == ["invalidation"], "what follows the kernel counts too"
    assert disordered(atomic(), wait(), load(), acquires=True) == ["invalidation"]
    assert disordered(atomic(), wait(), load(), invalidated(), acquires=True) == ["invalidation"]
    assert disordered(atomic(), invalidated(), wait(), load(), acquires=True) == ["wait"]
    assert disordered(atomic(), wait(), invalidated(), load(), acquires=True) == []
    assert disordered(atomic(), wait(), invalidated(), step("end"), acquires=True) == []
    assert disordered(atomic(), wait(), invalidated("gpu"), load(), acquires=True) == ["invalidation"]
    assert disordered(load(), atomic(), wait(), invalidated(), store(), acquires=True) == []
    assert disordered(atomic(), load(), acquires=False) == []
    nothing_after = Program("amdgcn", [[atomic(), wait(), invalidated()], []], [[1], []], 1, True)
    assert unordered(nothing_after, "sys", releases=False, acquires=True) == []


def test_missing_waits_come_before_missing_fences() -> None:
    both = disordered(written_back(), atomic(), wait(), step("end"), releases=True, acquires=True)
    assert both == ["wait for the write-back", "invalidation"]
    both = disordered(atomic(), invalidated(), wait(), step("end"), releases=True, acquires=True)
    assert both == ["wait", "write-back"]


def test_several_elements_of_a_thread_release_before_the_first_and_acquire_after_the_last() -> None:
    before, after = (written_back(), wait()), (wait(), invalidated(), step("end"))
    accepted = straight(*before, atomic(), atomic(), atomic(), *after)
    assert unordered(accepted, "sys", releases=True, acquires=True) == []
    first, last = atomic("first"), atomic("last")
    for steps, lacking in (
        ((first, last, *after), {first: "write-back", last: "write-back"}),
        ((*before, first, last, step("end")), {first: "invalidation", last: "invalidation"}),
    ):
        faults = unordered(straight(*steps), "sys", releases=True, acquires=True)
        assert {one.atomic: one.lack for one in faults}.items() >= lacking.items(), faults


def skipped(*parts: tuple[Step, ...]) -> Program:
    """Return a program in which each part is a block that the wavefront may jump over."""
    blocks, edges = [], []
    for part in parts:
        blocks += [[decided("exec")], list(part)]
        edges += [[len(edges) + 1, len(edges) + 2], [len(edges) + 2]]
    return Program("amdgcn", [*blocks, [step("end")]], [*edges, []], 1, True)


def test_a_second_release_before_the_acquire_is_reported() -> None:
    """The atomic between the first and the last element of a thread has no fence of its own."""
    release, acquire = (written_back(), wait()), (wait(), invalidated())
    first, second, last = atomic("first"), atomic("second"), atomic("last")

    def reported(*parts: tuple[Step, ...]) -> dict[Step, str]:
        return {one.atomic: one.lack for one in unordered(skipped(*parts), "sys", releases=True, acquires=True)}

    assert reported((*release, first), (second,), (last, *acquire)) == {}
    assert reported((*release, first, *acquire), (*release, second, *acquire)) == {}
    assert reported((*release, first), (*release, second), (last, *acquire)) == {
        first: "invalidation", second: "invalidation", last: "write-back",
    }  # fmt: skip


def looped(*body: Step, before: tuple[Step, ...] = (), after: tuple[Step, ...] = ()) -> Program:
    """Return a loop over ``body``, whose last step decides whether it goes on."""
    blocks = [[step("start"), *before], list(body), [*after, step("end")]]
    return Program("amdgcn", blocks, [[1], [1, 2], []], 1, True)


def decided(*names: str) -> Step:
    return step("branch", reads=frozenset(names))


POLLED = {"scope": "sys", "writes": frozenset({"v0"})}


def test_a_loop_that_goes_on_until_memory_changes_is_a_spin() -> None:
    poll = load("poll", **POLLED)
    [spin] = spins(looped(poll, decided("v0")))
    assert (spin.polls, spin.sleeps, spin.first, spin.place) == ((poll,), False, poll, poll.place)
    [spin] = spins(looped(first := step("nothing"), poll, decided("v0")))
    assert (spin.first, spin.place) == (first, poll.place), "its place is that of the poll"
    compare = step("compare", reads=frozenset({"v0"}), writes=frozenset({"vcc"}))
    [spin] = spins(looped(poll, step("sleep", sleeps=True), compare, decided("vcc")))
    assert spin.sleeps and spin.polls == (poll,)
    assert spins(looped(poll, decided("v1"))) == [], "the loop ends by something else"
    assert spins(looped(poll, load("data", writes=frozenset({"v2"})), decided("v0"))) == [], "it does something besides"
    assert spins(straight(poll, decided("v0"))) == []


def test_a_poll_that_no_branch_of_the_loop_reads_decides_nothing() -> None:
    poll = load("poll", **POLLED)
    blocks = [[step("start")], [poll, decided("v0")], [decided("v1")], [step("end")]]
    assert spins(Program("amdgcn", blocks, [[1], [2], [1, 3], []], 1, True)) == []
    [spin] = spins(Program("amdgcn", blocks, [[1], [2, 3], [1, 3], []], 1, True))
    assert spin.polls == (poll,)


def test_only_the_innermost_loop_waits() -> None:
    poll = load("poll", **POLLED)
    blocks = [
        [step("start")],
        [poll, decided("v0")],
        [step("add", writes=frozenset({"v1"})), decided("v0")],
        [step("e")],
    ]
    [spin] = spins(Program("amdgcn", blocks, [[1], [1, 2], [1, 3], []], 1, True))
    assert spin.polls == (poll,)
    nested = [[step("start")], [step("head")], [poll, decided("v0")], [decided("v0")], [step("end")]]
    program = Program("amdgcn", nested, [[1], [2], [2, 3], [1, 4], []], 1, True)
    assert len(spins(program)) == 1
    nested[2][0] = step("sleep", sleeps=True)
    [spin] = spins(Program("amdgcn", nested, [[1], [2], [2, 3], [1, 4], []], 1, True))
    assert spin.polls == () and spin.first is nested[2][0]


def test_the_first_poll_of_a_wait_may_be_before_its_loop() -> None:
    frames = (Frame("a.py", 3, 1),)
    poll = load("poll", frames=frames, width=4, **POLLED)
    first = load("first", frames=frames, width=4, **POLLED)
    others = (
        load("wider", frames=frames, width=8), load("elsewhere", frames=(Frame("a.py", 4, 1),), width=4),
        store("store", frames=frames, width=4),
    )  # fmt: skip
    [spin] = spins(looped(poll, decided("v0"), before=(first, *others)))
    assert spin.polls == (poll, first)
    bare = load("bare", width=4, **POLLED)
    [spin] = spins(looped(bare, decided("v0"), before=(load("other", width=4),)))
    assert spin.polls == (bare,), "without a place nothing is alike"
    swap = atomic("swap", frames=frames, width=4, **POLLED)
    [spin] = spins(looped(swap, decided("v0"), before=(load("new", frames=frames, width=4),)))
    assert spin.polls == (swap,), "a load in the line of an atomic is not the same access"


def test_a_wait_may_begin_with_a_load_of_another_call_of_the_same_line():
    line, call = Frame("a.py", 3, 1), Frame("b.py", 5, 1)
    poll = load("poll v0", frames=(line, call), **POLLED)

    def begun(*before: Step) -> tuple[tuple[Step, ...], tuple[Step, ...], tuple[Step, ...]]:
        [spin] = spins(
            Program("amdgcn", [[*before], [poll, decided("v0")], [step("end")]], [[1, 2], [1, 2], []], 1, True)
        )
        return spin.entries, spin.every, spin.unlike

    entry = load("poll v7", frames=(line, replace(call, line=6)), writes=frozenset({"v7"}))
    compare = step("compare", reads=frozenset({"v7"}), writes=frozenset({"vcc"}))
    ends = compare, decided("vcc")
    assert begun(entry, *ends) == ((entry,), (poll, entry), ())
    other = replace(entry, text="poll v7 offset:4")
    assert begun(other, *ends) == ((other,), (poll, other), (other,)), "it reads another word"
    nothing = (), (poll,), ()
    assert begun(entry, load("data"), *ends) == nothing, "what is loaded last decides"
    assert begun(entry, decided("v1")) == nothing, "it decides nothing"
    elsewhere = replace(entry, frames=(replace(line, line=4), call))
    assert begun(elsewhere, *ends) == begun(replace(entry, frames=()), *ends) == nothing
    assert begun(replace(entry, access="atomic"), *ends) == nothing


def test_a_wait_may_begin_some_blocks_before_its_loop():
    line = (Frame("a.py", 3, 1),)
    first, poll = (load(name, frames=line, **POLLED) for name in ("first", "poll"))
    blocks = [[first, decided("v0")], [step("move")], [poll, decided("v0")], [step("end")]]
    [spin] = spins(Program("amdgcn", blocks, [[1, 3], [2], [2, 3], []], 1, True))
    assert spin.entries == spin.unlike == (first,)
    blocks[1] = [store()]
    [spin] = spins(Program("amdgcn", blocks, [[1, 3], [2], [2, 3], []], 1, True))
    assert spin.entries == ()


def test_a_loop_that_nothing_can_end_is_a_spin_without_polls() -> None:
    here = step("nothing")
    [spin] = spins(Program("amdgcn", [[step("start")], [here]], [[1], [1]], 1, True))
    assert (spin.polls, spin.sleeps, spin.place) == ((), False, here.place)
    [spin] = spins(looped(here, decided("v0")))
    assert spin.polls == (), "the condition never changes"
    counted = step("count", reads=frozenset({"v0"}), writes=frozenset({"v0"}))
    assert spins(looped(counted, decided("v0"))) == []
    [spin] = spins(looped(counted, step("sleep", sleeps=True), decided("v0")))
    assert spin.sleeps and spin.polls == (), "it waits for a time"


def test_a_loop_without_an_exit_is_endless_whatever_its_branches_read() -> None:
    counted = step("count", reads=frozenset({"v0"}), writes=frozenset({"v0"}))
    blocks = [[step("start")], [counted, decided("v0")], [step("one")], [step("other")]]
    [spin] = spins(Program("amdgcn", blocks, [[1], [2, 3], [1], [1]], 1, True))
    assert spin.polls == ()


def test_spins_are_in_the_order_of_the_listing() -> None:
    polls = [load("poll", **POLLED) for _ in range(2)]
    second, first = ([[step("start")], [polls[number], decided("v0")]] for number in (1, 0))
    program = Program("amdgcn", [*second, *first, [step("end")]], [[1], [1, 2], [3], [3, 4], []], 1, True)
    assert [spin.polls for spin in spins(program)] == [(polls[0],), (polls[1],)]


@pytest.mark.parametrize(("data", "is_retry"), [("v1", True), ("v2", False)])
def test_a_swap_of_what_was_computed_from_its_last_result_is_no_wait(data: str, is_retry: bool) -> None:
    swap = atomic("swap", op="cmpswap", writes=frozenset({"v0"}), data=frozenset({data}))
    new = step("add", reads=frozenset({"v0"}), writes=frozenset({"v1"}))
    program = looped(new, swap, decided("v0"))
    assert retries(program) == ([swap] if is_retry else [])
    assert [spin.polls for spin in spins(program)] == ([] if is_retry else [(swap,)])


def test_only_a_compare_and_swap_is_tried_again() -> None:
    added = atomic("add", op="add", writes=frozenset({"v0"}), data=frozenset({"v0"}))
    program = looped(added, decided("v0"))
    assert retries(program) == [] and [spin.polls for spin in spins(program)] == [(added,)]
