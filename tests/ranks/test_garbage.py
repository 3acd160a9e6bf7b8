"""Searches for garbage: seldom in ranks, and as before once it is undone."""

from __future__ import annotations

import subprocess
import sys

from harness import garbage
from harness.ranks import RankGroup

UNDONE = """
import gc
gc.set_threshold(701, 11, 12)
from harness import garbage
with garbage.none_so_far():
    assert not gc.isenabled()
assert gc.isenabled() and gc.get_freeze_count() and gc.get_threshold() == garbage.THRESHOLDS
garbage.as_before()
assert gc.get_freeze_count() == 0 and gc.get_threshold() == (701, 11, 12)
gc.disable()
with garbage.none_so_far():
    pass
assert not gc.isenabled(), "what was off before stays off"
"""


def test_ranks_search_seldom_and_not_among_what_existed_before_the_fork() -> None:
    with RankGroup(2, preload=["tests.ranks.targets:prepare"]) as group:
        for result in group.call("tests.ranks.targets:of_the_start"):
            assert list(result) == [1, True, list(garbage.THRESHOLDS), True]


def test_it_can_be_undone() -> None:
    subprocess.run([sys.executable, "-c", UNDONE], check=True, timeout=60)
