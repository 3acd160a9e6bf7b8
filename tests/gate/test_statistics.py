"""Times of base and head, with planted regressions."""

import itertools
import random

import pytest

from command_line.gate import statistics
from command_line.gate.statistics import FASTER, SAME, SLOWER, UNCLEAR, compare, interleaved, mann_whitney
from harness.errors import UsageError


def times(seed, count, scale=1.0, noise=0.01):
    draw = random.Random(seed)
    return [scale * (1 + noise * draw.gauss(0, 1)) for _ in range(count)]


@pytest.mark.parametrize(("n", "m"), [(3, 4), (5, 5), (1, 6)])
def test_p_is_that_of_all_orders(n, m):
    """Compare with the definition: the share of orders whose U is as far from the middle."""

    def u_of(chosen):
        return sum(place + 1 for place in chosen) - n * (n + 1) / 2

    orders = list(itertools.combinations(range(n + m), n))
    for chosen in orders:
        left = [float(place) for place in chosen]
        right = [float(place) for place in range(n + m) if place not in chosen]
        distance = abs(u_of(chosen) - n * m / 2)
        expected = sum(abs(u_of(each) - n * m / 2) >= distance for each in orders) / len(orders)
        assert mann_whitney(left, right) == pytest.approx(min(1.0, expected))


def test_equal_samples_have_p_1():
    assert mann_whitney([1.0] * 9, [1.0] * 9) == 1.0


@pytest.mark.parametrize(("scale", "answer"), [(1.10, SLOWER), (0.90, FASTER), (1.0, SAME), (1.005, SAME)])
def test_a_planted_shift_is_told(scale, answer):
    for seed in range(10):
        assert compare(times(seed, 30), times(seed + 50, 30, scale)).answer == answer


def test_too_much_noise_or_too_few_samples_could_not_tell():
    assert compare(times(1, 12, noise=0.3), times(2, 12, 1.05, noise=0.3)).answer == UNCLEAR
    few = statistics.LEAST_SAMPLES - 1
    assert compare(times(1, few), times(2, few, 1.5)).answer == UNCLEAR


def test_a_difference_below_the_floor_is_no_regression_however_small_its_p():
    result = compare(times(1, 200, noise=0.001), times(2, 200, 1.01, noise=0.001))
    assert result.p < 1e-6
    assert result.answer == SAME


def test_false_alarms_are_rare():
    answers = [compare(times(seed, 16, noise=0.05), times(seed + 1000, 16, noise=0.05)).answer for seed in range(300)]
    assert answers.count(SLOWER) + answers.count(FASTER) <= 9


def test_the_interval_contains_the_planted_shift():
    inside = 0
    for seed in range(100):
        result = compare(times(seed, 16, noise=0.05), times(seed + 500, 16, 1.1, noise=0.05))
        inside += result.low <= 0.1 <= result.high
    assert inside >= 96


@pytest.mark.parametrize("wrong", [[], [0.0], [-1.0], [float("nan")], [float("inf")]])
def test_what_is_not_a_time_is_refused(wrong):
    with pytest.raises(UsageError, match="expected positive numbers"):
        compare([1.0], wrong)
    with pytest.raises(UsageError, match="times of the base"):
        compare(wrong, [1.0])


def test_both_figures_are_printed():
    assert compare(times(1, 30), times(2, 30, 1.1)).sentence.startswith("slower: +")
    assert "Mann-Whitney p = " in compare(times(1, 30), times(2, 30, 1.1)).sentence


def test_base_and_head_take_turns():
    order = []
    pairs = list(interleaved(lambda: order.append("base") or "b", lambda: order.append("head") or "h", 3))
    assert pairs == [("b", "h")] * 3
    assert order == ["base", "head", "head", "base", "base", "head"]
