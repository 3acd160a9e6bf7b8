"""Races between ranks that are processes of their own: each records, and the records are judged together."""

from __future__ import annotations

import mmap
import multiprocessing
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from harness.emulator.driver.interleaved import scheduler_of
from harness.emulator.execution.allocations import Allocation, Allocations, Table
from harness.emulator.faults import DataRace
from harness.emulator.listing.instructions import Instruction
from harness.emulator.operations.access import STORE
from harness.emulator.watch import Seeded, race_judge, race_places, race_record
from harness.emulator.watch.race import Race
from harness.emulator.watch.race_clean import are_clean
from harness.emulator.watch.race_judge import executed
from harness.emulator.watch.race_order import WAVE, Launched
from harness.emulator.watch.race_record import EVENT_LIMIT, Recording, Turns
from harness.emulator.watch.race_report import Effect
from harness.emulator.watch.race_state import HappensBefore
from tests.emulator.watch.litmus import lines, load, store
from tests.emulator.watch.racing import WAIT, launch, until

RELEASE, ACQUIRE = ("buffer_wbl2 sc0 sc1", WAIT), ("buffer_inv sc0 sc1",)
PUT = (0, lines(store("x", 1), RELEASE, store("y", 1, "sc0 sc1")))
TAKE = (1, lines(until("y", 1), ACQUIRE, load("x", 9), WAIT))

LATER = 3000
"""A word that no kernel accesses."""


class Rank:
    """One rank in its process: 16 KiB of shared memory, mapped at an address of its own, and private memory.

    ``native``: its kernels are native code.
    """

    native = False

    def __init__(self, rank: int, words: int, turns: int, limit: int = EVENT_LIMIT) -> None:
        self.rank = rank
        self._map = mmap.mmap(words, 1 << 14)
        self.memory = np.frombuffer(self._map, np.uint32)
        self.own = np.zeros(1 << 12, np.uint32)
        self._allocations = Allocations()
        self._allocations.register(self.memory.ctypes.data, self.memory.nbytes, f"words of rank {rank}")
        self._allocations.register(self.own.ctypes.data, self.own.nbytes, f"private words of rank {rank}")
        # A file that was opened before a fork has one lock for both processes.
        self._turns = Turns(os.open(f"/proc/self/fd/{turns}", os.O_RDWR))
        self.recording = Recording(rank, self._turns, self._allocations.table([]), limit)
        self._watch = Race(Seeded(rank), recording=self.recording)
        # A judge's record: it maps the words too, without a name for them.
        unnamed = Table([Allocation(self.memory.ctypes.data, self.memory.nbytes, "")])
        self.judges = Recording(rank, self._turns, unnamed)

    def run(self, *threads: tuple[int, list[str]], private: bool = False) -> None:
        """Run this rank's threads; ``private``: on its private memory."""
        address = (self.own if private else self.memory).ctypes.data
        kernarg = address + 1024 * np.arange(3, dtype=np.uint64)
        one = launch(self.rank, threads, kernarg, self._allocations, self._watch, native=self.native)
        scheduler_of([[one]], self._watch, closed=False, limit=None).run()

    def host(self, kind: str, word: int, recording: Recording | None = None) -> None:
        """Access word 0, 1 or 2 from the host."""
        (recording or self.recording).touch(
            kind, "aten.copy_", ("host.py", 7), 4, self.memory[256 * word :].ctypes.data + np.zeros(1)
        )


@pytest.fixture(autouse=True, params=[False, True], ids=["interpreted", "native"])
def _how(request, monkeypatch):
    monkeypatch.setattr(Rank, "native", request.param)


def records(*bodies: Callable[[Rank], None], limit: int = EVENT_LIMIT) -> list[dict[str, Any]]:
    """Run each body as a rank in a process of its own; return the records."""
    words, turns = os.memfd_create("words"), os.memfd_create("turns")
    os.ftruncate(words, 1 << 14)
    os.ftruncate(turns, mmap.PAGESIZE)
    forked = multiprocessing.get_context("fork")
    results = forked.SimpleQueue()

    def run(rank: int, body: Callable[[Rank], None]) -> None:
        try:
            one = Rank(rank, words, turns, limit)
            body(one)
            results.put([one.recording.to_plain(), one.judges.to_plain()])
        except BaseException as error:
            results.put(f"rank {rank}: {error!r}")
            raise

    processes = [forked.Process(target=run, args=each, daemon=True) for each in enumerate(bodies)]
    for process in processes:
        process.start()
    made = []
    try:
        for _ in processes:
            made.append(results.get())
            assert isinstance(made[-1], list), made[-1]  # the other rank may wait for the one that failed
    finally:
        for process in processes:
            if len(made) < len(processes):
                process.kill()
            process.join()
        os.close(words)
        os.close(turns)
    both = sorted(made, key=lambda records: int(records[0]["rank"]))
    # Without those that recorded nothing but their memory.
    every = [record for records in both for record in records]
    return [record for record in every if record["full"] or any(event[1] != "map" for event in record["events"])]


def judge(records: list[dict[str, Any]]) -> HappensBefore:
    """Return the state after records without a race. Native code finds all of these clean, and no others."""
    clean = are_clean(records)
    try:
        state = executed(records)
    except DataRace:
        assert not clean
        raise
    assert clean == (not state.unspecified)
    return state


def running(*threads: tuple[int, list[str]]) -> Callable[[Rank], None]:
    return lambda rank: rank.run(*threads)


def race(*bodies: Callable[[Rank], None]) -> str:
    """Return the text of the race between the bodies."""
    with pytest.raises(DataRace) as caught:
        judge(records(*bodies))
    return str(caught.value)


def test_a_released_message_is_no_race():
    judge(records(running(PUT, TAKE), running(PUT, TAKE)))


@pytest.mark.parametrize(
    ("release", "acquire", "why"),
    [
        ((), ACQUIRE, "the store was not complete"),
        ((WAIT,), ACQUIRE, "the store was not written back (buffer_wbl2 sc0 sc1"),
        (("buffer_wbl2 sc1", WAIT), ACQUIRE, "the store was not written back (buffer_wbl2 sc0 sc1"),
        (RELEASE, (), "did not invalidate its caches (buffer_inv sc0 sc1)"),
    ],
    ids=["none", "wait-only", "gpu-scope", "no-acquire"],
)
def test_a_missing_fence_is_named_with_both_ranks(release: Sequence[str], acquire: Sequence[str], why: str):
    threads = [
        (0, lines(store("x", 1), release, store("y", 1, "sc0 sc1"))),
        (1, lines(until("y", 1), acquire, load("x", 9), WAIT)),
    ]
    text = race(running(*threads), running(*threads))
    for part in (
        why,
        "byte 0 of words of rank 1",
        "kernel rank0, rank 0",
        "kernel rank1, rank 1",
        "global_load_dword v9",
    ):
        assert part in text, text


def test_a_plain_flag_is_a_race_though_its_value_arrives():
    threads = [(0, lines(store("x", 1), RELEASE, store("y", 1), RELEASE)), TAKE]
    assert "byte 1024 of words" in race(running(*threads), running(*threads))


def test_a_buffer_is_used_again_without_an_acknowledgement():
    again = (0, lines(store("x", 1), RELEASE, store("y", 1, "sc0 sc1"), store("x", 2)))
    assert "byte 0 of words" in race(running(again, TAKE), running(again, TAKE))
    sender = (0, lines(PUT[1], until("z", 1), ACQUIRE, store("x", 2)))
    receiver = (1, lines(TAKE[1], RELEASE, store("z", 1, "sc0 sc1")))
    judge(records(running(sender, receiver), running(sender, receiver)))


def test_kernels_are_ordered_by_the_hosts_only():
    write, read = (0, lines(store("x", 1))), (1, lines(load("x", 9), WAIT))

    def first(rank: Rank) -> None:
        rank.run(write)
        rank.recording.give("0 0")

    def second(rank: Rank) -> None:
        while not rank.memory[0]:
            pass
        rank.recording.expect("0 0", 1)
        rank.run(read)

    judge(records(first, second))
    assert "nothing orders the second rank after the first" in race(running(write), running(read))


def test_the_host_reads_what_was_not_released():
    def received(rank: Rank) -> None:
        rank.run(TAKE)
        rank.host("load", 0)

    def unread(rank: Rank) -> None:
        rank.run((1, lines(until("y", 1), ACQUIRE)))
        rank.host("load", 0)
        rank.host("load", 2)  # no kernel accesses it

    judge(records(running(PUT), received))
    judge(records(running(PUT), unread))
    relaxed = (0, lines(store("x", 1), WAIT, store("y", 1, "sc0 sc1")))
    text = race(running(relaxed), unread)
    assert "not written back" in text and "by the host of rank 1" in text and "aten.copy_, at host.py:7" in text, text


def test_a_rank_with_two_records_is_one_order():
    """The second record is that of a judge, whose host uses the memory between the launches of the first."""

    def ordered(rank: Rank) -> None:
        rank.run((0, lines(load("x", 9), WAIT)))
        rank.judges.give("0 0")
        rank.memory[LATER] = 1

    def unordered(rank: Rank) -> None:
        rank.run((0, lines(load("x", 9), WAIT)))
        rank.memory[LATER] = 1

    def written(rank: Rank) -> None:
        while not rank.memory[LATER]:
            pass
        rank.judges.expect("0 0", 1)
        rank.host("store", 0, rank.judges)
        rank.run((1, lines(store("x", 1))))  # in the order of the rank: no race with the store before it

    judge(records(ordered, written))
    text = race(unordered, written)
    assert "by the host of rank 1" in text and "byte 0 of words of rank" in text, text


def test_private_memory_is_not_shared():
    write = [(rank, lines(store("x", rank), WAIT)) for rank in (0, 1)]
    judge(records(lambda rank: rank.run(*write, private=True), lambda rank: rank.run(*write, private=True)))
    assert "byte 0 of words" in race(running(*write), running(*write))


def test_a_wavefront_that_polls_is_recorded_a_few_times():
    poll = ["s_mov_b32 s14, 200", ".LP:", *load("y", 8, "sc0 sc1"), WAIT, *ACQUIRE]
    again = ["s_sub_u32 s14, s14, 1", "s_cmp_lg_u32 s14, 0", "s_cbranch_scc1 .LP"]
    [polled] = records(running((0, lines(poll, again, load("x", 9), WAIT))))
    loads = [event for event in polled["events"] if event[1] == "access"]
    assert 2 < len(loads) < 6  # the first iteration, the last ones, and x


@pytest.mark.parametrize(
    ("lanes", "step"),
    [(range(64), 4), (range(3, 10), 4), ([5], 4), ([0, 2, 63], 4), (range(3, 10), 8), (range(1, 5), 0)],
    ids=["all lanes", "some in a row", "one", "with gaps", "every other word", "one word"],
)
@pytest.mark.parametrize("place", [0, 4000, 4090], ids=["at the start", "inside", "beyond the end"])
def test_lanes_and_addresses_return_from_a_record(lanes: Sequence[int], step: int, place: int):
    memory = np.zeros(4096, np.uint32)
    table = Table([Allocation(memory.ctypes.data, memory.nbytes, "words")])
    turns = os.memfd_create("turns")
    os.ftruncate(turns, mmap.PAGESIZE)
    recording = Recording(2, Turns(turns), table)
    addresses = (memory.ctypes.data + 4 * place + step * np.arange(len(lanes))).astype(np.uint64)
    effect = Effect(STORE, WAVE, Instruction(0, 0, "store", "store", (), {}, ()), 4, addresses, np.array(lanes))
    recording.start(Launched(2, "kernel", (1, 1, 1), 1, str), table)
    recording.create(0, [0])
    recording.access(0, 0, [effect])
    os.close(turns)
    places = race_places.Places()
    read = race_judge._Rank(recording.to_plain(), places)
    [[got]] = [event[4] for event in read._events if event[1] == "access"]
    assert got.lanes.tolist() == list(lanes) and (got.kind, got.scope, got.size) == (STORE, WAVE, 4)
    assert (got.addresses - np.uint64(places.base(("process", 2)))).tolist() == addresses.tolist()


def test_a_long_record_is_left_out_and_says_so():
    _, long = records(running(PUT), running(TAKE), limit=5)
    assert long["full"] and long["events"] == []


def test_a_full_record_takes_further_polls():
    # Each iteration is the same events: before the record was full, the earlier ones would be dropped from it.
    poll = ["s_mov_b32 s14, 200", ".LP:", *load("y", 8, "sc0 sc1"), WAIT, *ACQUIRE]
    again = ["s_sub_u32 s14, s14, 1", "s_cmp_lg_u32 s14, 0", "s_cbranch_scc1 .LP"]
    for limit in range(3, 9):
        [polled] = records(running((0, lines(poll, again, WAIT))), limit=limit)
        assert polled["full"] and polled["events"] == [], limit


def test_mappings_are_read_again_when_allocations_have_changed(monkeypatch):
    words, turns = os.memfd_create("words"), os.memfd_create("turns")
    os.ftruncate(words, 1 << 14)
    os.ftruncate(turns, mmap.PAGESIZE)
    rank = Rank(0, words, turns)
    read = []
    plain = race_record._shared_mappings
    monkeypatch.setattr(race_record, "_shared_mappings", lambda: read.append(1) or plain())
    first, second = rank._allocations.table([]), Table([Allocation(rank.own.ctypes.data, 64, "other words")])
    for table in (first, first, second, second, first):
        rank.recording.update(table)
    os.close(words)
    os.close(turns)
    assert len(read) == 2
    assert [event[1] for event in rank.recording.to_plain()["events"]] == ["map"] * 3
