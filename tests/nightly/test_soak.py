"""The soak's judge on rounds with planted leaks and drift, and a real soak with and without a leak."""

import io

import pytest
from rich.console import Console

import history
from command_line.nightly.plan import Soak
from command_line.nightly.soak import LEAST_ROUNDS, SoakResult, growths, judge, run_soak
from command_line.preflight import check_request
from harness.evidence import Verdict
from history import History

MIB = 1 << 20
REQUEST = check_request("emulated", None, "2", "ci", "iris_under_test")
SOAK = Soak(REQUEST, 60.0, memory_mib=64, files=8, threads=4)


def rounds(
    count=24, *, memory=lambda n: 0, files=lambda n: 0, threads=lambda n: 0, heap=lambda n: 0, seconds=lambda n: 2.0,
    **changes,
):  # fmt: skip
    return [
        {
            "round": number, "seed": number, "groups": ["RMA-PUT-001[ranks=2]"], "cases": 3, "failures": [],
            "seconds": {"RMA": seconds(number)}, "generation": 1,
            "uses": {"python 7": {"memory": 200 * MIB + memory(number), "shared": 9 * MIB, "files": 30 + files(number),
                                  "threads": 8 + threads(number)},
                     "rank 0": {"heap": heap(number) - MIB}},
            **changes,
        }
        for number in range(count)
    ]  # fmt: skip


def test_steady_rounds_have_no_problem():
    assert judge(rounds(), SOAK) == []


@pytest.mark.parametrize(
    ("planted", "words"),
    [
        ({"memory": lambda n: 5 * MIB * n}, "python 7 grew by 75 MiB of memory over 24 rounds; allowed are 64 MiB"),
        ({"files": lambda n: n}, "python 7 grew by 15 files over 24 rounds; allowed are 8 files"),
        ({"heap": lambda n: 4096 * n}, "rank 0 grew by 60 KiB of heap over 24 rounds; allowed are 32 KiB"),
        ({"threads": lambda n: n}, "python 7 grew by 15 threads over 24 rounds; allowed are 4 threads"),
        (
            {"seconds": lambda n: 1.0 if n < 16 else 11.0},
            "RMA became slower: 1.0 s for a round at the beginning, 11.0 s at the end",
        ),
    ],
    ids=["memory", "files", "heap", "threads", "time"],
)
def test_a_planted_leak_or_drift_is_red(planted, words):
    problems = judge(rounds(**planted), SOAK)
    assert len(problems) == 1 and words in problems[0]


@pytest.mark.parametrize(
    "harmless",
    [
        {"memory": lambda n: 500 * MIB if n in (9, 23) else 0},
        {"memory": lambda n: 20 * MIB * min(n, 5)},
        {"memory": lambda n: -5 * MIB * n},
        {"seconds": lambda n: 40.0 if n == 23 else 2.0},
        {"files": lambda n: n % 7},
    ],
    ids=["single rounds", "caches that fill at first", "less", "a slow round", "up and down"],
)
def test_what_is_no_leak_is_not_red(harmless):
    assert judge(rounds(**harmless), SOAK) == []


def test_few_rounds_have_no_growth():
    assert growths(rounds(LEAST_ROUNDS - 1, memory=lambda n: MIB * n)) == {}


def test_a_failure_is_a_problem_with_the_command_that_repeats_it():
    failure = {
        "group": "RMA-PUT-001[ranks=2]",
        "verdict": "fail",
        "case": "0123456789abcdef",
        "message": "heap differs",
    }
    [problem] = judge(rounds(1, failures=[failure]), SOAK)
    assert "round 0 (seed 0): RMA-PUT-001[ranks=2]: heap differs; iris-harness replay cases/0123" in problem


def test_ranks_that_started_again_without_a_failure_are_a_problem():
    [problem] = judge([*rounds(3), *rounds(3, generation=2)], SOAK)
    assert "started again" in problem


def test_a_soak_that_did_not_reach_its_end_is_not_run():
    assert SoakResult(0, 0, 0.0, ended=False, problems=(), growth={}).verdict is Verdict.NOT_RUN
    assert SoakResult(9, 9, 60.0, ended=True, problems=(), growth={}).verdict is Verdict.PASS
    assert SoakResult(9, 9, 60.0, ended=True, problems=("leak",), growth={}).verdict is Verdict.FAIL


@pytest.mark.nightly
@pytest.mark.parametrize("plant", ["", "files", "heap"])
def test_a_real_soak(tmp_path, plant):
    soak = Soak(REQUEST, 60.0, groups=2, memory_mib=256, heap_kib=8)
    result = run_soak(soak, tmp_path / "soak", 5, Console(file=io.StringIO()), plant=plant)
    assert result.rounds >= LEAST_ROUNDS and result.ended
    assert result.verdict is (Verdict.FAIL if plant else Verdict.PASS), result.problems
    if plant:
        assert any("grew by" in problem and plant in problem for problem in result.problems)
    assert result.areas and result.evidence is not None
    with History(tmp_path / "h.sqlite", create=True) as opened:
        whole = history.Soak(result.verdict, 9, 9, 60.0, result.growth, result.areas)
        assert history.add_soak(opened, result.evidence, whole)
    assert run_soak(soak, tmp_path / "soak", 5, Console(file=io.StringIO())).rounds == result.rounds, "it ended"
