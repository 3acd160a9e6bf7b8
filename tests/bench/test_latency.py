"""benchmarks/latency.py: what its figures are of. Its kernels check themselves where it runs."""

import types

import pytest

from benchmarks.latency import Latency, _spread


@pytest.mark.parametrize(
    ("name", "ranks", "wanted"),
    [
        ("put 16 B local", 2, 1),
        ("put 16 B remote", 2, 2),
        ("put 4096 B remote", 8, 2),
        ("put 16 B remote", 1, 1),
        ("get 4 B remote", 2, 1),
        ("atomic_add remote", 2, 1),
    ],
)
def test_only_a_put_between_two_ranks_comes_back(name, ranks, wanted):
    assert Latency.ways(types.SimpleNamespace(ranks=ranks), name) == wanted


def test_the_spread_is_that_of_percentiles():
    assert _spread([second * 1e-6 for second in range(11)]) == pytest.approx({"median": 5, "p10": 1, "p90": 9})
