"""benchmarks/latency.py: what its figures are of. Its kernels check themselves where it runs."""

import types

import pytest

from benchmarks.latency import Latency


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
