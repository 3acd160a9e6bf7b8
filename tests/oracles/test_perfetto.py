"""The reader of traces accepts what Perfetto accepts, and reports what Perfetto would drop or misplace."""

from __future__ import annotations

import json

import pytest

from harness.oracles import perfetto

NAMES = [
    {"ph": "M", "pid": 0, "tid": 5, "name": "process_name", "args": {"name": "rank 0"}},
    {"ph": "M", "pid": 0, "tid": 5, "name": "thread_name", "args": {"name": "program 0"}},
]


def part(name="put", ts=0, dur=10, **others):
    return {"ph": "X", "pid": 0, "tid": 5, "name": name, "ts": ts, "dur": dur, **others}


def read(*events, names=NAMES, **top):
    return perfetto.load(json.dumps({"traceEvents": [*names, *events], **top}))


def test_slices_nest_by_time():
    slices, problems = read(
        part("inner", 2, 3), part("outer", 0, 10, args={"b": 1, "a": "x"}), part("next", 10, 1), part("last", 5.5, 4.5)
    )
    assert problems == []
    assert [(s.name, s.ts, s.dur, s.depth) for s in slices] == [
        ("outer", 0, 10_000, 0), ("inner", 2000, 3000, 1), ("last", 5500, 4500, 1), ("next", 10_000, 1000, 0),
    ]  # fmt: skip
    assert {(s.process, s.thread) for s in slices} == {("rank 0", "program 0")}
    assert slices[0].arguments == (("a", "x"), ("b", 1))


def test_instants_stand_inside_and_on_each_other():
    instant = {"ph": "i", "pid": 0, "tid": 5, "ts": 10, "s": "t"}
    slices, problems = read(part("before"), {**instant, "name": "a"}, {**instant, "name": "b"}, part("after", 10))
    assert problems == []
    assert [(s.name, s.dur, s.depth) for s in slices] == [
        ("before", 10_000, 0), ("a", 0, 0), ("after", 10_000, 0), ("b", 0, 1),
    ]  # fmt: skip


def test_events_alone_are_a_trace():
    assert perfetto.load(json.dumps([*NAMES, part()]))[1] == []


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        ([part(ts=0, dur=10), part("other", 5, 10)], "overlaps another and is dropped"),
        ([part(dur=-1)], "dur -1 is not a time"),
        ([part(ts=-1)], "ts -1 is not a time"),
        ([part(ts="5")], "ts '5' is not a time"),
        ([part(ts=1_763_700_000 * 10**9)], "beyond 64 bits"),
        ([{"ph": "X", "pid": 0, "tid": 5, "name": "put", "ts": 0}], "dur None"),
        ([part(tid=-1)], "tid -1 is not a 32-bit number"),
        ([part(pid="0")], "pid '0' is not a 32-bit number"),
        ([part(name="")], "no name"),
        ([part(args=[1])], "args is not an object"),
        ([part(dur=True)], "dur True is not a time"),
        ([part(ts=9_223_372_036_854_776)], "beyond 64 bits"),
        ([part(ts=2.0**63 / 1000)], "beyond 64 bits"),
        ([part(pid=True)], "pid True is not a 32-bit number"),
        ([part(tid=2**32)], "tid 4294967296 is not a 32-bit number"),
        ([part(name=3)], "no name"),
        ([[1]], "its phase is none of"),
        ([{"ph": "I", "pid": 0, "tid": 5, "name": "x", "s": "t"}], "ts None is not a time"),
        ([part(pid=1)], "thread 5 of 1 has no name"),
        (
            [{"ph": "M", "pid": 0, "tid": 5, "name": "thread_name", "args": {"name": "other"}}],
            "already 'program 0' of 0",
        ),
        ([{"ph": "M", "pid": 0, "tid": 6, "name": "thread_name", "args": {"name": ""}}], "thread_name with args"),
        ([{"ph": "M", "pid": 0, "tid": 6, "name": "thread_name", "args": {"name": 3}}], "thread_name with args"),
        (
            [{"ph": "M", "pid": 0, "tid": 6, "name": "process_colour", "args": {"name": "x"}}],
            "process_colour with args",
        ),
        ([{"ph": "M", "pid": 0, "tid": 6, "name": "process_sort_index", "args": {"name": 3}}], "sort_index with args"),
        ([part(tid=6)], "thread 6 of 0 has no name"),
        ([{"ph": "?", "pid": 0, "tid": 5, "name": "x"}], "its phase is none of"),
        ([{"ph": "i", "pid": 0, "tid": 5, "name": "x", "ts": 0, "s": "q"}], "scope 'q'"),
        ([{"ph": "M", "pid": 1, "tid": 5, "name": "thread_name", "args": {"name": "p"}}], "thread 5 is already"),
        ([{"ph": "M", "pid": 1, "tid": 5, "name": "thread_name", "args": {}}], "thread_name with args"),
        ([part(ts=i, dur=2000 - 2 * i) for i in range(513)], "nested too deep"),
    ],
)
def test_what_perfetto_would_not_take_is_a_problem(events, reason):
    _, problems = read(*events)
    assert problems and reason in problems[0]


@pytest.mark.parametrize(
    "events",
    [
        [part(ts=9_223_372_036_854_775)],
        [part(ts=0, dur=0)],
        [part(ts=i, dur=2000 - 2 * i) for i in range(512)],
        [part(ts=0, dur=10), part("inside", 5, 5)],
        [part(ts=0, dur=10), part("same", 0, 10)],
        [part(ts=0, dur=10), part("next", 10, 5)],
        [{"ph": "i", "pid": 0, "tid": 5, "name": "x", "ts": 0}],
        [{"ph": "I", "pid": 0, "tid": 5, "name": "x", "ts": 0, "s": "g"}],
        [part(s="q")],  # only an instant has a scope
        [{"ph": "M", "pid": 0, "tid": 5, "name": "thread_name", "args": {"name": "program 0"}}],
        [{"ph": "M", "pid": 0, "tid": 5, "name": "process_labels", "args": {"labels": "x"}}],
        [{"ph": "M", "pid": 0, "tid": 5, "name": "thread_sort_index", "args": {"sort_index": 3}}],
        [{"ph": "s", "pid": 0, "tid": 5, "name": "x", "ts": 0}],
    ],
)
def test_what_perfetto_takes_is_no_problem(events):
    slices, problems = read(*events)
    assert problems == []
    assert len(slices) == sum(event["ph"] in "XiI" for event in events)


def test_problems_name_their_events():
    _, problems = read(part(name=""), part(), part(dur=-1))
    assert problems == ["event 2: no name", "event 4: dur -1 is not a time"]


def test_a_problem_quotes_the_beginning_of_a_long_event():
    event = {"ph": "?", "name": "x" * 100}
    assert read(event)[1] == [f"event 2: its phase is none of CIMXfis: {str(event)[:80]}"]


def test_threads_and_ids_at_their_limits():
    largest = 2**32 - 1
    names = [
        {"ph": "M", "pid": largest, "tid": largest, "name": "process_name", "args": {"name": "rank 1"}},
        {"ph": "M", "pid": largest, "tid": largest, "name": "thread_name", "args": {"name": "a"}},
    ]
    slices, problems = read(part(pid=largest, tid=largest), names=names)
    assert problems == [] and (slices[0].process, slices[0].thread) == ("rank 1", "a")
    _, problems = read(part(), names=NAMES[1:])
    assert "has no name" in problems[0], "its process has none"
    other = {"ph": "M", "pid": 1, "tid": 9, "name": "process_name", "args": {"name": "rank 1"}}
    _, problems = read(part(pid=1), names=[*NAMES, other])
    assert "thread 5 of 1 has no name" in problems[0], "thread 5 is one of another process"


def test_slices_are_in_order_of_process_thread_time_and_depth():
    names = [
        {"ph": "M", "pid": pid, "tid": tid, "name": name, "args": {"name": label}}
        for pid, tid, name, label in (
            (1, 1, "process_name", "b"), (1, 1, "thread_name", "t"), (0, 2, "process_name", "a"),
            (0, 2, "thread_name", "u"), (0, 3, "thread_name", "s"),
        )
    ]  # fmt: skip
    events = [part(pid=1, tid=1), part(pid=0, tid=2), part(pid=0, tid=3, ts=4), part("inner", pid=0, tid=2)]
    slices, problems = read(*events, names=names)
    assert problems == []
    assert [(s.process, s.thread, s.name, s.ts, s.depth) for s in slices] == [
        ("a", "s", "put", 4000, 0), ("a", "u", "put", 0, 0), ("a", "u", "inner", 0, 1), ("b", "t", "put", 0, 0),
    ]  # fmt: skip


def test_a_dropped_slice_is_not_among_the_slices():
    slices, _ = read(part(), part("other", 5, 10))
    assert [s.name for s in slices] == ["put"]


def test_files_that_are_no_trace():
    assert "not JSON" in perfetto.load("{")[1][0]
    assert "NaN is not JSON" in perfetto.load('{"traceEvents": [{"ts": NaN}]}')[1][0]
    assert "no list" in perfetto.load("{}")[1][0]
    assert len(perfetto.load('["displayTimeUnit"]')[1]) == 1, "a list has no units"
    assert "displayTimeUnit" in read(part(), displayTimeUnit="ns")[1][0]
