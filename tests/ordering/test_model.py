"""The model of litmus tests: it agrees with the verdicts of the literature, and notices each edge that is missing."""

import itertools

import pytest

from conformance.ordering import model
from conformance.ordering.litmus import LOCATIONS, SHORT, TESTS, Litmus, once, run_by
from conformance.ordering.model import allowed, allowed_in
from tests.ordering.in_turn import in_turn

RIGHT, BOTH, RELAXED = ("release", "acquire"), ("acq_rel", "acq_rel"), ("relaxed", "relaxed")

VERDICTS = {
    "MP": lambda o, f: o == (1, 0),
    "S": lambda o, f: o == (1,) and f[0] == 2,
    "LB": lambda o, f: o == (1, 1),
    "WRC": lambda o, f: o == (1, 1, 0),
    "ISA2": lambda o, f: o == (1, 1, 0),
    "CoRR": lambda o, f: o == (1, 0),
    "CoWW": lambda o, f: f[0] != 2,
    "CoRW": lambda o, f: o == (1,) or (o == (2,) and f[0] == 2),
    "CoWR": lambda o, f: o == (0,) or (o == (2,) and f[0] == 1),
    "reuse": lambda o, f: (o[-3], o[-1]) != (1, 2),
    "lock": lambda o, f: f[0] != 3 or sorted(o[1::2]) != [0, 1, 2],
}
"""The outcomes that each test forbids with release and acquire, from the literature on these shapes. An outcome is a
tuple of observed values and a tuple of final values."""

FENCED = {
    "SB": lambda o, f: o == (0, 0),
    "R": lambda o, f: o == (0,) and f[1] == 2,
    "2+2W": lambda o, f: f[:2] == (1, 1),
    "IRIW": lambda o, f: o == (1, 0, 1, 0),
}
"""The outcomes that read-modify-writes forbid only if each has both orders. An addition of 0 that releases is a write,
and the other thread's exchange reads from it."""


def candidates(test: Litmus):
    """Return every outcome with the values of the test's operations, seen in any combination."""
    written = {value for thread in test.threads for _, _, value in thread}
    seen = sum(name in ("read", "see", "wait") for thread in test.threads for name, _, _ in thread)
    for values in itertools.product(sorted(written | {0}), repeat=seen + len(LOCATIONS)):
        yield values[:seen], values[seen:]


@pytest.mark.parametrize("name", VERDICTS)
@pytest.mark.parametrize("order", [RIGHT, BOTH])
def test_forbidden_outcomes_are_those_of_the_literature(name, order):
    assert not [outcome for outcome in allowed(TESTS[name], *order) if VERDICTS[name](*outcome)]


@pytest.mark.parametrize("name", [name for name in VERDICTS if not name.startswith("Co")])
def test_relaxed_flags_allow_the_forbidden_outcome(name):
    assert [outcome for outcome in allowed(TESTS[name], *RELAXED) if VERDICTS[name](*outcome)]


@pytest.mark.parametrize("name", [name for name in VERDICTS if name.startswith("Co")])
def test_coherence_needs_no_order(name):
    assert allowed(TESTS[name], *RELAXED) == allowed(TESTS[name], *RIGHT) == allowed(TESTS[name], *BOTH)


@pytest.mark.parametrize("name", FENCED)
def test_both_orders_forbid_one_more_outcome(name):
    released, both = allowed(TESTS[name], *RIGHT), allowed(TESTS[name], *BOTH)
    assert both == {outcome for outcome in released if not FENCED[name](*outcome)}
    assert len(released) == len(both) + 1


def test_every_test_forbids_some_outcome_with_values_of_its_own():
    """A test that allows everything could not fail."""
    for name in SHORT:
        outcomes = set(candidates(TESTS[name]))
        assert allowed(TESTS[name], *RIGHT) < outcomes, name


def test_wavefronts_see_a_flag_once():
    assert allowed(once(TESTS["MP"])) == {((0, 0), (1, 1, 0)), ((0, 1), (1, 1, 0)), ((1, 1), (1, 1, 0))}
    assert allowed_in("MP", *RIGHT, "cta") == allowed(once(TESTS["MP"]))
    assert allowed_in("MP", *RIGHT, "sys") == allowed(TESTS["MP"]) == {((1, 1), (1, 1, 0))}
    with pytest.raises(LookupError):
        run_by("unheard of", "cta")


@pytest.mark.parametrize("order", [RIGHT, BOTH, RELAXED])
@pytest.mark.parametrize("name", TESTS)
def test_what_a_stronger_memory_shows_is_allowed(name, order):
    assert in_turn(TESTS[name]) <= allowed(TESTS[name], *order)


@pytest.mark.parametrize("name", [name for name, test in TESTS.items() if test.flags_only])
def test_both_orders_on_flags_alone_are_sequentially_consistent(name):
    assert in_turn(TESTS[name]) == allowed(TESTS[name], *BOTH)


def test_operations_in_turn_of_store_buffering():
    assert in_turn(TESTS["SB"]) == {(seen, (1, 1, 0)) for seen in ((0, 1), (1, 0), (1, 1))}


def test_locks_exclude_each_other():
    """Three threads that add 1 under a lock read 0, 1 and 2, in any order."""
    orders = {(0, a, 0, b, 0, c) for a, b, c in itertools.permutations(range(3))}
    assert allowed(TESTS["lock"]) == {(observed, (3, 0, 0)) for observed in orders}


@pytest.fixture
def fresh():
    allowed.cache_clear()
    yield
    allowed.cache_clear()


@pytest.mark.parametrize("lost", ["_ACQUIRES", "_RELEASES"])
def test_a_model_without_an_edge_allows_the_forbidden_outcome(monkeypatch, fresh, lost):
    monkeypatch.setattr(model, lost, ())
    assert ((1, 0), (1, 1, 0)) in allowed(TESTS["MP"])


def test_a_model_without_coherence_allows_the_old_value_after_the_new_one(monkeypatch, fresh):
    monkeypatch.setattr(model, "_consistent", lambda events, choices: True)
    assert ((1, 0), (1, 0, 0)) in allowed(TESTS["CoRR"])
