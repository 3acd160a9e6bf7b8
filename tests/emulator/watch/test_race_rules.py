"""Order of two accesses on gfx942, fence by fence and scope by scope: mode ``race`` on a few instructions."""

import gc
import weakref

import pytest

from harness.emulator.watch import Seeded
from harness.emulator.watch.race import Race
from harness.emulator.watch.race_order import join
from harness.emulator.watch.race_report import UNSPECIFIED
from tests.emulator.watch.litmus import add, lines, load, store
from tests.emulator.watch.racing import WAIT, only, race, take, until

SEEDS = range(12)
RELEASE = {"agent": ("buffer_wbl2 sc1", WAIT), "system": ("buffer_wbl2 sc0 sc1", WAIT)}
ACQUIRE = {"agent": ("buffer_inv sc1",), "system": ("buffer_inv sc0 sc1",)}
BITS = {"agent": "sc1", "system": "sc0 sc1"}
SCOPE_OF = {(0, 0): "agent", (0, 1): "system"}
RANKS = pytest.mark.parametrize("ranks", list(SCOPE_OF), ids=["one-rank", "two-ranks"])


def swap(word: str, value: int, bits: str = "sc1") -> list[str]:
    return [f"v_mov_b32_e32 v1, {value}", f"global_atomic_swap v0, v1, {{{word}}} {bits}".strip()]


def message(ranks, release, acquire, put=(), flag=None, poll=None):
    """x is the payload, y the flag."""
    scope = SCOPE_OF[ranks]
    put = put or store("x", 1)
    flag = flag or store("y", 1, BITS[scope])
    poll = poll or until("y", 1, BITS[scope])
    return [(ranks[0], lines(put, release, flag)), (ranks[1], lines(poll, acquire, load("x", 9), WAIT))]


def clean(threads, **options) -> None:
    for seed in SEEDS:
        assert race(threads, seed, **options) is None


def racy(threads, *parts: str, **options) -> None:
    """Check that every seed finds the race, with ``parts`` in its message."""
    for seed in [None, *SEEDS]:
        fault = race(threads, seed, **options)
        assert fault is not None, f"not found with seed {seed}"
        for part in parts:
            assert part in str(fault)


@RANKS
def test_message_passing_with_release_and_acquire_is_clean(ranks):
    scope = SCOPE_OF[ranks]
    clean(message(ranks, RELEASE[scope], ACQUIRE[scope]))
    clean(message(ranks, RELEASE["system"], ACQUIRE["system"]))


@RANKS
@pytest.mark.parametrize("flag", ["swap", "add", "cmpswap"])
def test_any_atomic_may_carry_the_flag(ranks, flag):
    scope = SCOPE_OF[ranks]
    bits = "sc1" if scope == "system" else ""
    old = f"sc0 {bits}"
    raise_it = {"swap": swap("y", 1, bits), "add": add("y", 8, old), "cmpswap": take("y", 0, 1, old)}
    poll = take("y", 1, 2, old)
    clean(message(ranks, RELEASE[scope], ACQUIRE[scope], flag=raise_it[flag], poll=poll))
    racy(message(ranks, (), ACQUIRE[scope], flag=raise_it[flag], poll=poll), "not complete")


@RANKS
def test_a_write_through_payload_needs_no_write_back(ranks):
    scope = SCOPE_OF[ranks]
    put = store("x", 1, BITS[scope])
    clean(message(ranks, (WAIT,), ACQUIRE[scope], put=put))
    racy(message(ranks, (), ACQUIRE[scope], put=put), "not complete (s_waitcnt vmcnt)")


def test_a_write_through_to_the_agent_does_not_reach_another_rank():
    racy(message((0, 1), (WAIT,), ACQUIRE["system"], put=store("x", 1, "sc1")), "not written back (buffer_wbl2 sc0 sc1")


@RANKS
def test_a_load_that_bypasses_the_caches_needs_no_invalidate(ranks):
    scope = SCOPE_OF[ranks]
    threads = message(ranks, RELEASE[scope], ())
    threads[1] = (ranks[1], lines(until("y", 1, BITS[scope]), load("x", 9, BITS[scope])))
    clean(threads)


@RANKS
@pytest.mark.parametrize(
    ("release", "acquire", "why"),
    [
        ((), ("buffer_inv sc0 sc1",), "the store was not complete"),
        ((WAIT,), ("buffer_inv sc0 sc1",), "the store was not written back"),
        (("buffer_wbl2 sc0 sc1",), ("buffer_inv sc0 sc1",), "the store was not complete"),
        (("buffer_wbl2 sc0", WAIT), ("buffer_inv sc0 sc1",), "the store was not written back"),
        (("buffer_wbl2 sc0 sc1", WAIT), (), "did not invalidate its caches"),
        (("buffer_wbl2 sc0 sc1", WAIT), ("buffer_inv sc0",), "did not invalidate its caches"),
        ((WAIT, "buffer_wbl2 sc0 sc1"), ("buffer_inv sc0 sc1",), "the store was not written back"),
    ],
    ids=["no-release", "no-wbl2", "no-wait", "wbl2-workgroup", "no-acquire", "inv-workgroup", "wait-before-wbl2"],
)
def test_message_passing_without_a_fence_or_wait_races(ranks, release, acquire, why):
    racy(message(ranks, release, acquire), "data race on 4 bytes", "byte 0 of words", why)


def test_an_invalidate_before_the_flag_was_waited_for_is_too_early():
    early = ["global_load_dword v8, v0, {y} sc0 sc1", "buffer_inv sc0 sc1", WAIT]
    check = ["v_readfirstlane_b32 s13, v8", "s_cmp_eq_u32 s13, 0", "s_cbranch_scc1 .Lnone", *load("x", 9), ".Lnone:"]
    threads = message((0, 1), RELEASE["system"], ())
    threads[1] = (1, lines(".Lpoll:", early, *check, "s_cmp_eq_u32 s13, 0", "s_cbranch_scc1 .Lpoll"))
    racy(threads, "did not invalidate its caches (buffer_inv sc0 sc1)")


@pytest.mark.parametrize(
    ("release", "acquire", "bits", "why"),
    [
        ("agent", "system", "system", "the store was not written back (buffer_wbl2 sc0 sc1"),
        ("system", "agent", "system", "did not invalidate its caches (buffer_inv sc0 sc1)"),
        ("system", "system", "agent", "both are atomic, but agent scope does not include another rank"),
    ],
    ids=["release", "acquire", "flag"],
)
def test_agent_scope_is_too_narrow_between_ranks(release, acquire, bits, why):
    flag = {"flag": store("y", 1, BITS[bits]), "poll": until("y", 1, "sc0 sc1")}
    racy(message((0, 1), RELEASE[release], ACQUIRE[acquire], **flag), why, "rank 0", "rank 1")
    flag = {"flag": store("y", 1, "sc0 sc1"), "poll": until("y", 1, BITS[bits])}
    racy(message((0, 1), RELEASE[release], ACQUIRE[acquire], **flag), why)


def test_workgroup_scope_is_too_narrow_between_work_groups():
    threads = message((0, 0), RELEASE["agent"], ACQUIRE["agent"], flag=store("y", 1, "sc0"), poll=until("y", 1, "sc0"))
    racy(threads, "both are atomic, but workgroup scope does not include another work-group")


@RANKS
def test_a_plain_flag_races(ranks):
    scope = SCOPE_OF[ranks]
    racy(message(ranks, RELEASE[scope], ACQUIRE[scope], flag=store("y", 1)), "the store is plain", "byte 1024 of words")
    racy(message(ranks, RELEASE[scope], ACQUIRE[scope], poll=until("y", 1, "")), "the load is plain")


def test_what_is_stored_behind_the_write_back_is_not_released():
    threads = message((0, 1), lines(RELEASE["system"], store("x", 2)), ACQUIRE["system"])
    racy(threads, "the store was not complete")
    threads = message((0, 1), lines(RELEASE["system"], store("x", 2), WAIT), ACQUIRE["system"])
    racy(threads, "the store was not written back")


def test_two_writers_race_and_a_reader_races_with_a_later_writer():
    racy([(0, store("x", 1)), (0, store("x", 2))], "nothing orders the second work-group after the first")
    racy([(0, store("x", 1)), (1, store("x", 2))], "nothing orders the second rank after the first")
    racy([(0, load("x", 8)), (1, store("x", 2))])
    clean([(0, load("x", 8)), (1, load("x", 8))])


def test_bytes_that_do_not_overlap_do_not_conflict():
    def byte(at: int) -> list[str]:
        return [f"global_store_byte v0, v1, {{x}} offset:{at}"]

    clean([(0, byte(0)), (1, byte(1)), (1, byte(2))])
    racy([(0, byte(1)), (1, ["global_store_short v0, v1, {x}"])], "data race on 1 bytes", "byte 1 of words")


def test_an_older_reader_is_remembered():
    """Three threads read; the writer waits for only one of them."""
    reader = lines(load("x", 8), WAIT)
    signal = store("y", 1, "sc0 sc1")
    writer = lines(until("y", 1), store("x", 2))
    clean([(0, lines(reader, signal)), (1, writer)])
    racy([(0, lines(reader, signal)), (0, reader), (0, reader), (1, writer)])


def test_atomics_at_inclusive_scopes_do_not_race():
    clean([(0, add("x", 8, "sc0")), (0, add("x", 8, "sc0"))])
    clean([(0, add("x", 8, "sc0 sc1")), (1, add("x", 8, "sc0 sc1"))])
    racy([(0, add("x", 8, "sc0")), (1, add("x", 8, "sc0 sc1"))], "agent scope does not include another rank")
    racy([(0, add("x", 8, "sc0 sc1")), (1, add("x", 8, "sc0 sc1")), (1, store("x", 1))], "the store is plain")


def test_a_plain_access_races_with_each_of_several_atomics():
    """The reader waits for one of two atomics."""
    writers = [(0, lines(add("x", 8, "sc0 sc1"), WAIT, store("y", 1, "sc0 sc1"))), (1, add("x", 8, "sc0 sc1"))]
    reader = lines(until("y", 1), ACQUIRE["system"], load("x", 9))
    clean([writers[0], (1, reader)])
    racy([*writers, (1, reader)], "the load is plain")


def test_wide_scoped_stores_are_not_atomic():
    put = ["global_store_dwordx4 v0, v[4:7], {x} sc0 sc1"]
    racy([(0, put), (1, put)])
    put = ["global_store_dwordx2 v0, v[4:5], {x} sc0 sc1"]
    clean([(0, put), (1, put)])


@pytest.mark.parametrize("access", ["global_load_dword v8, v0, {y}", "global_store_dword v0, v1, {y}"])
def test_an_access_that_is_not_aligned_is_not_atomic(access):
    flag = swap("y", 1)
    clean([(0, flag), (1, [f"{access} offset:4 sc0 sc1"])])
    clean([(0, flag), (1, [f"{access} sc0 sc1"])])
    racy([(0, flag), (1, [f"{access} offset:2 sc0 sc1"])], "not aligned to its size, so it is not atomic")


def by_lanes(*parts) -> list[str]:
    """Return lines that two lanes execute."""
    return lines("s_mov_b64 exec, 3", "v_mov_b32_e32 v0, 0", *parts, "s_mov_b64 exec, 1")


@RANKS
def test_a_flag_of_several_lanes_may_come_back(ranks):
    """The reader of a flag clears it. Each lane writes the flag for itself, so that it may be written again."""
    scope = SCOPE_OF[ranks]
    bits = "sc1" if scope == "system" else ""
    reader = (ranks[1], lines(until("y", 1, BITS[scope]), swap("y", 0, bits)))
    clean([(ranks[0], swap("y", 1, bits)), reader])
    writer = (ranks[0], by_lanes(swap("y", 1, bits)))
    racy([writer, reader], "saw the value of one lane, and those of the other lanes may still come")
    racy([writer, (ranks[1], lines(until("y", 1, BITS[scope]), store("y", 0, BITS[scope])))], "saw the value of one")
    racy([writer, (ranks[1], lines(until("y", 1, BITS[scope]), store("y", 0)))], "the store is plain")


def test_a_flag_of_several_lanes_that_its_writer_has_waited_for_does_not_come_back():
    bits = BITS["system"]
    writer = (0, by_lanes(swap("y", 1), RELEASE["system"], store("z", 1, bits)))
    clean([writer, (1, lines(until("z", 1), ACQUIRE["system"], swap("y", 0)))])


def test_the_reader_of_a_sum_of_several_lanes_has_seen_them_all():
    count = by_lanes(add("y", 9))
    clean([(0, count), (1, lines(until("y", 2), swap("y", 0)))])
    clean([(0, by_lanes(swap("y", 1))), (1, lines(until("y", 1), add("y", 9)))])


def test_flat_accesses_take_part():
    def flat(access: str) -> list[str]:
        return ["v_mov_b32_e32 v4, s4", "v_mov_b32_e32 v5, s5", access]

    racy([(0, flat("flat_store_dword v[4:5], v1")), (1, load("x", 9))], "byte 0 of words")
    racy([(0, store("x", 1)), (1, flat("flat_load_dword v9, v[4:5]"))])
    put = lines(flat("flat_store_dword v[4:5], v1"), RELEASE["system"], store("y", 1, "sc0 sc1"))
    clean([(0, put), (1, lines(until("y", 1), ACQUIRE["system"], load("x", 9)))])


# -- read-modify-writes and locks ------------------------------------------------------------------------------------


@RANKS
def test_a_read_modify_write_by_another_continues_the_release(ranks):
    """The reader sees a third wavefront's update of the first's flag, and everything the first released."""
    scope = SCOPE_OF[ranks]
    bits = "sc1" if scope == "system" else ""
    first = (ranks[0], lines(store("x", 1), RELEASE[scope], swap("y", 1, bits)))
    second = (ranks[0], lines(take("y", 1, 2, f"sc0 {bits}")))
    third = (ranks[1], lines(until("y", 2, BITS[scope]), ACQUIRE[scope], load("x", 9)))
    clean([first, second, third])
    by_store = (ranks[0], lines(until("y", 1, BITS[scope]), store("y", 2, BITS[scope])))
    assert race([first, by_store, third], seed=None) is not None  # other seeds may read y = 1 on the way


def test_what_was_acquired_is_released_to_the_next():
    """Rank 0 releases to rank 1, whose work-group 0 passes it on to work-group 1 at agent scope."""
    first = (0, lines(store("x", 1), RELEASE["system"], store("y", 1, "sc0 sc1")))
    relay = lines(until("y", 1), ACQUIRE["system"], RELEASE["agent"], store("z", 1, "sc1"))
    last = lines(until("z", 1, "sc1"), ACQUIRE["agent"], load("x", 9))
    clean([first, (1, relay), (1, last)])
    clean([(1, first[1]), (1, relay), (1, last)])
    relaxed = lines(until("y", 1), ACQUIRE["system"], store("z", 1, "sc1"))
    clean([first, (1, relaxed), (1, last)])  # x reached the system, and rank 1 knows
    plain = lines(until("y", 1), store("z", 1, "sc1"))
    racy([first, (1, plain), (1, last)], "nothing orders")


def locked(release, acquire, bits="sc1", early=False):
    """Increment x under the lock y."""
    body = lines(load("x", 9), WAIT, "v_add_u32_e32 v1, 1, v9", "global_store_dword v0, v1, {x}")
    leave = lines(release, swap("y", 0, bits))
    parts = (leave, body) if early else (body, leave)
    return lines(take("y", 0, 1, f"sc0 {bits}"), acquire, *parts)


@RANKS
def test_a_lock_orders_its_critical_sections(ranks):
    scope = SCOPE_OF[ranks]
    bits = "sc1" if scope == "system" else ""
    each = [(rank, locked(RELEASE[scope], ACQUIRE[scope], bits)) for rank in (*ranks, ranks[1])]
    clean(each)


@RANKS
def test_a_lock_released_early_or_without_fences_races(ranks):
    scope = SCOPE_OF[ranks]
    bits = "sc1" if scope == "system" else ""
    for arguments in ((RELEASE[scope], ACQUIRE[scope], bits, True), ((), ACQUIRE[scope], bits)):
        racy([(rank, locked(*arguments)) for rank in ranks])
    racy([(rank, locked(RELEASE[scope], (), bits)) for rank in ranks], "did not invalidate its caches")


def test_a_lock_at_agent_scope_between_ranks_races():
    each = [(rank, locked(RELEASE["agent"], ACQUIRE["agent"], "")) for rank in (0, 1)]
    racy(each, "agent scope does not include another rank")


# -- work-groups and their barriers ----------------------------------------------------------------------------------


def test_a_barrier_orders_the_wavefronts_of_a_work_group():
    clean([(0, lines(only(0, store("x", 1)), "s_barrier", only(1, load("x", 9))))], waves=2)
    clean([(0, lines(only(0, store("x", 1)), "s_barrier", only(1, store("x", 2))))], waves=2)
    clean([(0, lines(only(0, load("x", 9)), "s_barrier", only(1, store("x", 2))))], waves=2)
    racy([(0, lines(only(0, store("x", 1)), only(1, load("x", 9))))], "after the first", waves=2)


def test_workgroup_scope_needs_no_fence():
    flag, poll = store("y", 1, "sc0"), until("y", 1, "sc0")
    clean([(0, lines(only(0, store("x", 1), flag), only(1, poll, load("x", 9))))], waves=2)
    racy([(0, lines(only(0, store("x", 1), store("y", 1)), only(1, poll, load("x", 9))))], waves=2)


def put_by_all(drain) -> list[str]:
    """Wavefront 1 stores x; after the barrier wavefront 0 releases it."""
    return lines(only(1, store("x", 1), drain), "s_barrier", only(0, RELEASE["system"], store("y", 1, "sc0 sc1")))


def get_by_all() -> list[str]:
    """Wavefront 0 polls and invalidates; after the barrier wavefront 1 loads x."""
    return lines(only(0, until("y", 1), ACQUIRE["system"], WAIT), "s_barrier", only(1, load("x", 9)))


def test_a_leaders_write_back_covers_its_siblings_in_one_reading_only():
    threads = [(0, put_by_all(())), (1, get_by_all())]
    clean(threads, waves=2)
    racy(threads, UNSPECIFIED, waves=2, covers="wavefront")
    watch = Race()
    assert race(threads, waves=2, watch=watch) is None
    (message,) = watch.unspecified
    assert UNSPECIFIED in message and "wavefront 1" in message
    drained = [(0, put_by_all(WAIT)), (1, get_by_all())]
    clean(drained, waves=2, covers="wavefront")


@pytest.mark.parametrize("own", [(), (*store("z", 1), *RELEASE["system"])], ids=["nothing", "z"])
def test_a_leaders_write_back_counts_for_a_sibling_that_has_written_back_before(own):
    """Wavefront 1 has written back ``own``, and wavefront 0 its later store of x; wavefront 1 publishes both."""
    raised = store("y", 1, "sc0 sc1")
    put = lines(only(1, own, store("x", 1)), "s_barrier", only(0, RELEASE["system"]), "s_barrier", only(1, raised))
    get = lines(only(0, until("y", 1), ACQUIRE["system"], load("x", 9)))
    clean([(0, put), (1, get)], waves=2)
    racy([(0, put), (1, get)], UNSPECIFIED, waves=2, covers="wavefront")


def test_a_leaders_invalidate_counts_for_its_siblings_when_it_was_waited_for():
    put = (0, lines(only(0, store("x", 1), RELEASE["system"], store("y", 1, "sc0 sc1"))))
    get = lines(only(0, until("y", 1), ACQUIRE["system"]), "s_barrier", only(1, load("x", 9)))
    clean([put, (1, get)], waves=2)
    racy([put, (1, get)], UNSPECIFIED, waves=2, covers="wavefront")
    clean([put, (1, get_by_all())], waves=2, covers="wavefront")


def test_what_the_first_wavefront_at_a_barrier_knows_does_not_count_for_the_others():
    """It has not waited for its invalidate; with some of the seeds it arrives before the other one."""
    put = (0, lines(only(0, store("x", 1), RELEASE["system"], store("y", 1, "sc0 sc1"))))
    get = lines(until("y", 1), only(0, ACQUIRE["system"]), "s_barrier", only(1, load("x", 9)))
    racy([put, (1, get)], UNSPECIFIED, waves=2, covers="wavefront")


def test_without_the_barrier_the_leader_releases_only_its_own():
    threads = [(0, [line for line in put_by_all(()) if line != "s_barrier"]), (1, get_by_all())]
    racy(threads, "nothing orders", waves=2)


def test_write_through_stores_must_be_drained_by_each_wavefront():
    def put(drain):
        each = only(1, store("x", 1, "sc0 sc1"), drain)
        return lines(each, "s_barrier", only(0, WAIT, store("y", 1, "sc0 sc1")))

    clean([(0, put(WAIT)), (1, get_by_all())], waves=2, covers="wavefront")
    racy([(0, put(())), (1, get_by_all())], "not complete", waves=2)


# -- other processes -------------------------------------------------------------------------------------------------


def test_a_value_from_another_process_may_follow_what_was_published_to_it():
    """Work-group 0 puts x and raises z; another, unseen process answers with y; work-group 1 reads x."""
    put = lines(store("x", 1), RELEASE["system"], store("z", 1, "sc0 sc1"))
    get = lines(until("y", 1), ACQUIRE["system"], load("x", 9))
    assert race([(0, put), (0, get)], None, y=1) is not None
    assert race([(0, put), (0, get)], None, y=1, peer=1) is None
    unpublished = lines(store("x", 1), RELEASE["system"])
    assert race([(0, unpublished), (0, get)], None, y=1, peer=1) is not None
    without = lines(until("y", 1), load("x", 9))
    assert race([(0, put), (0, without)], None, y=1, peer=1) is not None


def test_our_own_values_are_not_another_processs():
    """y is written in this process, without a release."""
    put = lines(store("x", 1), store("z", 1, "sc0 sc1"), store("y", 1, "sc0 sc1"))
    get = lines(until("y", 1), ACQUIRE["system"], load("x", 9))
    assert race([(0, put), (0, get)], None, peer=1) is not None


# -- what is reported ------------------------------------------------------------------------------------------------


def test_the_report_names_both_accesses():
    fault = race([(0, store("x", 1)), (1, lines(load("x", 9)))], seed=None)
    report = fault.report()
    assert report["kind"] == "DataRace" and report["allocation"] == "byte 0 of words" and report["size"] == 4
    first, second = report["first"], report["second"]
    assert (first["kernel"], first["rank"], first["kind"]) == ("rank0", 0, "store")
    assert (second["kernel"], second["rank"], second["kind"]) == ("rank1", 1, "load")
    assert first["group"] == [0, 0, 0] and first["wavefront"] == 0 and first["lane"] == 0
    assert first["instruction"].startswith("global_store_dword v0, v1")


def test_the_same_seed_gives_the_same_report():
    threads = [(0, locked((), ())), (1, locked((), ())), (1, locked((), ()))]
    for seed in SEEDS:
        first, second = (race(threads, seed).report() for _ in range(2))
        assert {**first, "message": "", "address": 0} == {**second, "message": "", "address": 0}


def test_a_watch_is_freed_with_its_launches():
    scope = "system"
    watch = Race(Seeded(0))
    assert race(message((0, 1), RELEASE[scope], ACQUIRE[scope]), watch=watch) is None
    alive = weakref.ref(watch)
    del watch
    gc.collect()
    assert alive() is None


def test_clocks_join():
    assert join({1: 2, 2: 5}, {2: 3, 3: 1}) == {1: 2, 2: 5, 3: 1}
    assert join({1: 1}, {2: 1}) == {1: 1, 2: 1}
    later = {1: 2, 2: 2}
    for earlier in ({}, {1: 1}, {1: 2}, {1: 1, 2: 1}):
        assert join(earlier, later) is later and join(later, earlier) is later


def test_the_option_is_checked():
    with pytest.raises(ValueError, match="covers must be one of work-group, wavefront, got 'agent'"):
        Race(covers="agent")
