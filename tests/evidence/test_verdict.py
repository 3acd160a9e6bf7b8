import itertools

import pytest

from harness.evidence import Verdict, merge


def test_no_verdict_at_all_is_not_a_pass():
    assert merge([]) is Verdict.NOT_RUN


@pytest.mark.parametrize("length", [1, 2, 3])
def test_only_passes_give_a_pass_and_a_failure_always_shows(length):
    for verdicts in itertools.product(Verdict, repeat=length):
        merged = merge(verdicts)
        assert (merged is Verdict.PASS) == (set(verdicts) == {Verdict.PASS}), verdicts
        assert (merged is Verdict.FAIL) == (Verdict.FAIL in verdicts), verdicts
        assert merged in verdicts, verdicts


def test_the_worst_verdict_counts():
    worst_first = ("fail", "flaky", "unknown", "not_run", "quarantined", "waived", "unsupported", "pass")
    assert {verdict.value for verdict in Verdict} == set(worst_first)
    for one, other in itertools.combinations(map(Verdict, worst_first), 2):
        assert merge([other, one]) is one


def test_which_verdicts_reject_a_run():
    assert {verdict.value for verdict in Verdict if verdict.red} == {"fail", "flaky", "unknown", "not_run"}
    assert [str(verdict) for verdict in Verdict] == [verdict.value for verdict in Verdict]
