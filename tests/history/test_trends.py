"""Trends in the presence of noise: how often a change is reported that is none, and a change that is one."""

import random

import pytest

import history
from command_line.main import run as command
from history import History, Point, Series, trend
from history.trends import change_points
from tests.history import planted
from tests.history.planted import STEADY, STEPS, night_of

NIGHTS = 40


def noise(draw, kind):
    values = [100 * (1 + draw.gauss(0, 0.03)) for _ in range(NIGHTS)]
    if kind == "skewed":
        values = [100 * draw.lognormvariate(0, 0.05) for _ in range(NIGHTS)]
    if kind == "spikes":
        for place in draw.sample(range(NIGHTS), 3):
            values[place] *= draw.uniform(1.5, 4)
    return values


def stepped(draw, share):
    values, at = noise(draw, "spikes"), draw.randrange(8, NIGHTS - 8)
    return [value * (1 + share) if place >= at else value for place, value in enumerate(values)], at


def rates(kind, count, seed=3):
    draw = random.Random(seed)
    return sum(bool(change_points(noise(draw, kind))) for _ in range(count)) / count


@pytest.mark.parametrize("kind", ["even", "skewed", "spikes"])
def test_noise_is_not_a_change(kind, capsys):
    rate = rates(kind, 150)
    with capsys.disabled():
        print(f"\nfalse-positive rate, {kind} noise, {NIGHTS} nights: {rate:.1%} of 150 series")
    assert rate <= 0.02


def test_a_step_is_detected_where_it_is(capsys):
    draw, detected, placed = random.Random(5), 0, 0
    for _ in range(60):
        values, at = stepped(draw, 0.10)
        points = change_points(values)
        detected += bool(points)
        placed += any(abs(place - at) <= 2 for _, place, _, _ in points)
    with capsys.disabled():
        print(f"\ndetection of a step of 10 % in noise of 3 % with spikes: {detected / 60:.0%} of 60 series")
        print(f"within 2 nights of its place: {placed / 60:.0%}")
    assert detected >= 54 and placed >= 48


def test_the_judge_of_false_positives_rejects_a_detector_without_a_test(monkeypatch):
    monkeypatch.setattr(history.trends, "_chance", lambda before, after, effect: 0.0)
    monkeypatch.setattr(history.trends, "PENALTY", 0.3)
    monkeypatch.setattr(history.trends, "LEAST_SCORE", 0.0)
    assert rates("even", 20) > 0.02


def test_a_single_spike_is_not_a_change_whatever_its_size():
    draw = random.Random(4)
    for _ in range(20):
        values = noise(draw, "even")
        values[draw.randrange(NIGHTS)] *= 50
        assert change_points(values) == []


def test_constants_and_steps_of_counters():
    assert change_points([240.0] * 30) == []
    [(_, place, _, p)] = change_points([240.0] * 12 + [310.0] * 18)
    assert place == 12 and p < 0.001
    assert change_points([240.0] * 12 + [241.0] * 18) == [], "the effect is too small"


def series_of(values, metric="seconds G"):
    points = tuple(Point(night_of(place), value, value, value, 1) for place, value in enumerate(values))
    return Series(metric, "c", points)


def test_a_drift_without_a_step():
    draw = random.Random(8)
    drifting = trend(series_of([100 + 0.5 * place + draw.gauss(0, 4) for place in range(60)]), effect=0.05)
    assert drifting is not None and drifting.changes == () and 0.2 < drifting.drift < 0.35 and drifting.worse
    stepped = trend(series_of([100 + 30 * (place >= 30) + draw.gauss(0, 4) for place in range(60)]))
    assert len(stepped.changes) == 1 and stepped.drift == 0.0
    assert trend(series_of([1.0] * 9)) is None, "fewer nights than two segments"


def test_a_bandwidth_that_falls_is_worse_and_a_time_that_falls_is_not():
    values = [100.0 + place % 3 for place in range(15)] + [80.0 + place % 3 for place in range(15)]
    assert trend(series_of(values, "bench.x.busbw_gbs")).worse
    assert not trend(series_of(values, "seconds G")).worse


def test_the_planted_step_is_reported_and_the_other_bandwidth_is_not(tmp_path, capsys):
    file = planted.plant(tmp_path / "h")
    with History(file) as opened:
        [iris] = history.series(opened, "bench.*.iris.busbw_gbs")
        [change] = trend(iris).changes
        assert abs(change.effect + 0.10) < 0.02 and change.night == night_of(STEPS)
        [code] = history.series(opened, f"instructions {STEADY} put_kernel")
        assert [(c.before, c.after, c.night) for c in trend(code).changes] == [(240, 310, night_of(12))]
    assert command(["history", "trend", "bench.*.nccl.busbw_gbs", "--file", str(file)]) == 0
    assert "no change in 30 nights" in capsys.readouterr().out
    assert command(["history", "trend", "bench.*", "--file", str(file)]) == 1
    assert f"since {night_of(STEPS)}, p " in capsys.readouterr().out
    assert command(["history", "trend", "nothing", "--file", str(file)]) == 2
