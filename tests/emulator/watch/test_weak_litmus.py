"""The adversary shows every classic relaxed outcome that LLVM's gfx942 memory model allows, and none that it forbids.

Each test states the whole set of outcomes over many schedules: a missing or an additional outcome fails the test.
"""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.emulator.watch import Drawn
from tests.emulator.watch.litmus import ACQUIRE, RELEASE, add, lines, load, outcomes, run, store, swap

AGENT_RELEASE = ("buffer_wbl2 sc1", "s_waitcnt vmcnt(0)")
AGENT_ACQUIRE = ("s_waitcnt vmcnt(0)", "buffer_inv sc1")
WAIT = "s_waitcnt vmcnt(0)"
SYSTEM = "sc0 sc1"
ALL = set(itertools.product((0, 1), repeat=2))
WEAK = (1, 0)


def message_passing(release, acquire, ranks=(0, 1)):
    """Run message passing: x is the payload, y the flag; the outcome is (flag, payload)."""
    producer = lines(store("x", 1), release, swap("y", 1))
    return [(ranks[0], producer), (ranks[1], lines(load("y", 8, SYSTEM), acquire, load("x", 9)))], [[], [8, 9]]


@pytest.mark.parametrize("ranks", [(0, 0), (0, 1)], ids=["one-rank", "two-ranks"])
def test_message_passing_holds_with_release_and_acquire(ranks):
    assert outcomes(*message_passing(RELEASE, ACQUIRE, ranks)) == ALL - {WEAK}


@pytest.mark.long
@pytest.mark.parametrize(
    ("release", "acquire"),
    [
        ((), ()), (RELEASE, ()), ((), ACQUIRE),
        (RELEASE[:1], ACQUIRE), (RELEASE[1:], ACQUIRE), (RELEASE, ACQUIRE[:1]), (RELEASE, ACQUIRE[1:]),
        (("buffer_wbl2 sc0", WAIT), ACQUIRE), (AGENT_RELEASE, ACQUIRE), (RELEASE, AGENT_ACQUIRE),
        (RELEASE, (WAIT, "buffer_inv sc0")),
    ],
    ids=["relaxed", "no-acquire", "no-release", "no-wait-after-wbl2", "no-wbl2", "no-inv", "no-wait-before-inv",
         "wbl2-workgroup", "wbl2-agent", "inv-agent", "inv-workgroup"],
)  # fmt: skip
def test_message_passing_between_ranks_fails_when_anything_is_missing(release, acquire):
    assert outcomes(*message_passing(release, acquire)) == ALL


def test_agent_scope_is_enough_within_a_rank():
    assert outcomes(*message_passing(AGENT_RELEASE, AGENT_ACQUIRE, (0, 0))) == ALL - {WEAK}


@pytest.mark.slow
def test_a_write_through_payload_needs_no_write_back():
    """The second legal recipe: sc0 sc1 stores, waited for before the flag."""
    for bits, expected in ((SYSTEM, ALL - {WEAK}), ("sc1", ALL)):
        threads, loads = message_passing((), ACQUIRE)
        threads[0] = (0, lines(store("x", 1, bits), WAIT, swap("y", 1)))
        assert outcomes(threads, loads) == expected
    threads[0] = (0, lines(store("x", 1, SYSTEM), swap("y", 1)))
    assert outcomes(threads, loads) == ALL


@pytest.mark.parametrize(("between", "expected"), [((), ALL), ((WAIT,), ALL - {(0, 0)})], ids=["relaxed", "waited"])
def test_store_buffering(between, expected):
    threads = [
        (0, lines(store("x", 1, SYSTEM), between, load("y", 8, SYSTEM))),
        (1, lines(store("y", 1, SYSTEM), between, load("x", 8, SYSTEM))),
    ]
    assert outcomes(threads, [[8], [8]]) == expected


@pytest.mark.parametrize(("between", "expected"), [((), ALL), ((WAIT,), ALL - {(1, 1)})], ids=["relaxed", "waited"])
def test_load_buffering(between, expected):
    threads = [
        (0, lines(load("x", 8, SYSTEM), between, store("y", 1, SYSTEM))),
        (1, lines(load("y", 8, SYSTEM), between, store("x", 1, SYSTEM))),
    ]
    assert outcomes(threads, [[8], [8]]) == expected


@pytest.mark.nightly
def test_independent_reads_of_independent_writes():
    """Readers that each share an L2 with one writer may disagree on the order of the writes; at system scope never."""
    disagree = (1, 0, 1, 0)
    for bits, inv, shown in (("", "buffer_inv sc0", True), (SYSTEM, "buffer_inv sc0 sc1", False)):
        threads = [
            (0, lines(store("x", 1, bits))),
            (0, lines(store("y", 1, bits))),
            (0, lines(load("x", 8, bits), WAIT, inv, load("y", 9, bits))),
            (0, lines(load("y", 8, bits), WAIT, inv, load("x", 9, bits))),
        ]
        seen = outcomes(threads, [[], [], [8, 9], [8, 9]], seeds=500, xcds=2)
        assert (disagree in seen) == shown
        assert {(0, 0, 0, 0), (1, 1, 1, 1), (1, 1, 0, 0), (0, 1, 1, 1)} <= seen


@pytest.mark.parametrize("bits", ["", "sc0", "sc1", SYSTEM])
def test_coherence_of_one_word(bits):
    """All threads see the stores to one word in one order and never go back in it; the last one remains."""
    threads = [
        (0, lines(store("x", 1, bits), store("x", 2, bits))),
        (1, lines(load("x", 8, bits), load("x", 9, bits))),
        (0, lines(load("x", 8, bits), load("x", 9, bits))),
    ]
    seen = set()
    for seed in range(300):
        result, words = run(threads, [[], [8, 9], [8, 9]], seed)
        assert words["x"] == 2
        assert result[0] <= result[1]
        assert result[2] <= result[3]
        seen.add(result[2:])
    assert {(0, 0), (0, 2), (2, 2)} <= seen


def test_a_wavefront_sees_its_own_stores():
    threads = [(0, lines(store("x", 1), load("x", 8), store("x", 2), load("x", 9))), (1, lines(store("x", 3, SYSTEM)))]
    for seed in range(200):
        (first, second), words = run(threads, [[8, 9], []], seed)
        assert first in (1, 3)
        assert second in (2, 3)
        assert words["x"] in (2, 3)


def test_mixed_plain_and_scoped_loads_stay_coherent():
    """A load that missed the caches is not followed by a load of an older value from them."""
    threads = [(0, lines(store("x", 1, SYSTEM))), (1, lines(load("x", 8, SYSTEM), load("x", 9)))]
    assert outcomes(threads, [[], [8, 9]]) == {(0, 0), (0, 1), (1, 1)}


def test_two_plus_two_writes():
    """Both words may end with the first thread's value of one and the second's of the other, in either combination."""
    threads = [
        (0, lines(store("x", 1, SYSTEM), store("y", 2, SYSTEM))),
        (1, lines(store("y", 1, SYSTEM), store("x", 2, SYSTEM))),
    ]
    finals = {tuple(run(threads, [[], []], seed)[1][w] for w in "xy") for seed in range(300)}
    assert finals == {(1, 1), (1, 2), (2, 1), (2, 2)}


@pytest.mark.slow
@pytest.mark.parametrize(("bits", "sums"), [("sc0 sc1", {2}), ("sc0", {1, 2})], ids=["system", "agent"])
def test_additions_of_two_ranks_are_atomic_at_system_scope_only(bits, sums):
    threads = [(rank, lines(add("x", 8, bits))) for rank in (0, 1)]
    results = [run(threads, [[8], [8]], seed) for seed in range(300)]
    assert {words["x"] for _, words in results} == sums
    if sums == {2}:
        assert {tuple(sorted(old)) for old, _ in results} == {(0, 1)}


def test_agent_scope_additions_are_atomic_within_the_rank():
    threads = [(0, lines(add("x", 8, "sc0"))) for _ in range(3)]
    for seed in range(200):
        old, words = run(threads, [[8]] * 3, seed)
        assert sorted(old) == [0, 1, 2]
        assert words["x"] == 3


def test_a_load_that_is_not_waited_for_leaves_the_register_as_it_was():
    early = lines("v_mov_b32_e32 v8, 7", load("x", 8, SYSTEM), "v_mov_b32_e32 v9, v8")
    assert {r for (r,) in outcomes([(0, early)], [[9]])} == {0, 7}


SIBLING = lines(
    "s_cmp_eq_u32 s3, 0", "s_cbranch_scc1 .Lleader", store("x", 1), "s_barrier", "s_endpgm",
    ".Lleader:", "s_barrier", RELEASE, swap("y", 1),
)  # fmt: skip


@pytest.mark.nightly
def test_the_open_question_whether_a_release_covers_the_siblings_stores():
    """One wavefront stores, the leader writes back and raises the flag, with only s_barrier between them."""
    threads, loads = message_passing((), ACQUIRE)
    threads[0] = (0, SIBLING)
    assert outcomes(threads, loads, waves=2, covers="work-group") == ALL - {WEAK}
    assert outcomes(threads, loads, waves=2, covers="wavefront") == ALL
    drained = [line for part in SIBLING for line in ([WAIT, part] if part == "s_barrier" else [part])]
    threads[0] = (0, drained)
    assert outcomes(threads, loads, waves=2, covers="wavefront") == ALL - {WEAK}


@pytest.mark.nightly
def test_a_failing_schedule_shrinks_to_a_few_choices():
    """Hypothesis draws every choice of the adversary; a shrunk failing run is the reordering itself."""
    failures = []

    @settings(max_examples=500, derandomize=True, database=None, deadline=None, report_multiple_bugs=False)
    @given(st.data())
    def holds(data):
        choices = Drawn(lambda n: data.draw(st.integers(0, n - 1)), limit=80)
        result, _ = run(*message_passing(RELEASE, ACQUIRE[:1]), choices)
        if result == WEAK:
            failures.append(choices.deviations)
        assert result != WEAK

    with pytest.raises(AssertionError):
        holds()
    smallest = failures[-1]
    assert 1 <= len(smallest) <= 6, smallest
    assert "age of a line" in [decision for _, decision, _ in smallest]
