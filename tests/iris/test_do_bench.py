"""do_bench: what it calls, in which order, and what it makes of the times."""

import itertools
import types

import pytest
from triton.runtime import driver

from iris_under_test.bench import do_bench
from iris_under_test.host.platform import timing
from tests.iris.ranks import HostOnlyDriver

SECONDS = [0.003, 0.001, 0.002, 0.006]


@pytest.fixture(autouse=True)
def device(monkeypatch):
    """A driver whose device is the CPU, as the emulated device's is."""
    monkeypatch.setattr(driver, "_active", HostOnlyDriver())


@pytest.fixture
def clock(monkeypatch):
    """A clock by which the calls of a function take ``SECONDS``, one after the other."""
    readings = itertools.chain.from_iterable((10 * call, 10 * call + s) for call, s in enumerate(SECONDS))
    monkeypatch.setattr(timing, "time", types.SimpleNamespace(perf_counter=lambda: next(readings)))


def test_the_order_of_calls():
    calls = []
    times = do_bench(
        lambda: calls.append("fn"),
        barrier_fn=lambda: calls.append("barrier"),
        preamble_fn=lambda: calls.append("preamble"),
        n_warmup=2,
        n_repeat=3,
        return_mode="all",
    )
    assert calls == ["barrier", "preamble", "barrier", "fn"] * (1 + 2 + 3)
    assert len(times) == 3
    assert all(time > 0 for time in times)


def test_caches_are_cleared_between_preamble_and_barrier(monkeypatch):
    calls = []
    monkeypatch.setattr(timing._HostClock, "clear_caches", lambda self: calls.append("caches"))
    do_bench(
        lambda: calls.append("fn"),
        lambda: calls.append("barrier"),
        lambda: calls.append("preamble"),
        n_warmup=0,
        n_repeat=1,
    )
    assert calls == ["barrier", "preamble", "caches", "barrier", "fn"] * 2


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({}, 3.0),
        ({"return_mode": "mean"}, 3.0),
        ({"return_mode": "median"}, 2.0),
        ({"return_mode": "min"}, 1.0),
        ({"return_mode": "max"}, 6.0),
        ({"return_mode": "all"}, [1.0, 2.0, 6.0]),
        ({"quantiles": [0, 0.25, 1]}, [1.0, 1.5, 6.0]),
        ({"quantiles": (0.5,), "return_mode": "max"}, [2.0]),
    ],
)
def test_what_it_returns(clock, options, wanted):
    # The first call, of 3 ms, is the untimed one.
    assert do_bench(lambda: None, n_warmup=0, n_repeat=3, **options) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_warmup": -1}, "n_warmup must be at least 0, got -1"),
        ({"n_repeat": 0}, "n_repeat must be at least 1, got 0"),
        ({"return_mode": "average"}, "return_mode must be one of mean, median, min, max, all, got 'average'"),
        ({"quantiles": []}, r"quantiles must be numbers in \[0, 1\], got \[\]"),
        ({"quantiles": [0.5, 1.5]}, r"quantiles must be numbers in \[0, 1\], got \[0.5, 1.5\]"),
    ],
)
def test_wrong_arguments_run_nothing(wrong, message):
    with pytest.raises(ValueError, match=message):
        do_bench(lambda: pytest.fail("it ran"), **wrong)


def test_what_the_function_raises_comes_out():
    with pytest.raises(ZeroDivisionError):
        do_bench(lambda: 1 / 0)
