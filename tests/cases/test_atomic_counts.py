"""The check that each active element of an atomic is executed once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from conformance.atomics.cases import AtomicCase
from conformance.atomics.history import check_once
from tests.isa import kernels


def environment(*launches: list[tuple[str, int]]) -> Any:
    """Return the environment of rank 0, whose launches executed accesses of (kind, lanes)."""
    listing = kernels.listing("add")
    records = [
        SimpleNamespace(listing=listing, accesses=[SimpleNamespace(kind=kind, lanes=lanes) for kind, lanes in accesses])
        for accesses in launches
    ]
    return SimpleNamespace(rank=0, launches=lambda: records)


@pytest.mark.parametrize(
    "accesses", [[("load", 64), ("atomic", 8)], [("atomic", 5), ("atomic", 3)], [("atomic", 2)], []]
)
def test_as_many_atomics_as_active_elements_or_fewer_are_right(accesses):
    assert check_once(environment(accesses, accesses), AtomicCase(n=8)) is None


def test_more_are_a_difference():
    different = check_once(environment([("atomic", 8)], [("atomic", 8), ("atomic", 1)]), AtomicCase(n=8, op="cas"))
    assert different["what"] == "atomics that atomic_cas executed for its active elements"
    assert (different["got"], different["wanted"]) == (9, 8)


def test_masked_elements_are_not_active():
    active = AtomicCase(n=8, mask="holes")
    assert check_once(environment([("atomic", 8)]), active) is not None
