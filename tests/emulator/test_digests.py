"""Digests of memory: a sparse tensor is not read as a whole, and nothing that a wavefront has read is left out."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness.emulator.driver import digests
from harness.emulator.driver.digests import digest, memory_of, touched

SIZE = 1 << 33
PAGE = mmap.PAGESIZE


class Sparse:
    """A memory file of 8 GiB that is mapped twice: ``here``, and ``there`` as by another rank."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("iris-harness-test", os.MFD_CLOEXEC)
        os.ftruncate(self.descriptor, SIZE)
        self._mapped = mmap.mmap(self.descriptor, SIZE)
        self.here = np.frombuffer(self._mapped, np.uint8)
        self.there = np.frombuffer(mmap.mmap(self.descriptor, SIZE), np.uint8)
        self.address = self.here.ctypes.data

    def untouch(self) -> None:
        self._mapped.madvise(mmap.MADV_DONTNEED)

    def allocated(self) -> int:
        return os.fstat(self.descriptor).st_blocks * 512

    def digest(self, first: int = 0, size: int = SIZE) -> bytes:
        allocation = SimpleNamespace(address=self.address + first, size=size)
        launch: Any = SimpleNamespace(table=SimpleNamespace(allocations=[allocation]))
        return digest(memory_of([launch]))


@pytest.fixture
def sparse() -> Iterator[Sparse]:
    one = Sparse()
    yield one
    os.close(one.descriptor)


def test_a_sparse_tensor_stays_sparse_and_its_bytes_count(sparse: Sparse) -> None:
    empty = sparse.digest()
    assert sparse.allocated() == 0
    sparse.here[5 << 30] = 1
    one = sparse.digest()
    assert sparse.allocated() == PAGE
    sparse.here[5 << 30] = 2
    two = sparse.digest()
    sparse.here[5 << 30] = 1
    assert len({empty, one, two}) == 3
    assert sparse.digest() == one


def test_what_another_rank_writes_to_a_page_that_was_read_here_counts(sparse: Sparse) -> None:
    assert sparse.here[7 << 30] == 0
    before = sparse.digest()
    sparse.there[(7 << 30) + PAGE - 1] = 1
    assert sparse.digest() != before


def test_equal_bytes_at_another_place_are_another_digest(sparse: Sparse) -> None:
    different = set()
    for place in (0, PAGE, 1 << 32):
        sparse.here[place] = 7
        different.add(sparse.digest(0, SIZE))
        sparse.untouch()
    assert len(different) == 3


def test_only_the_asked_part_of_the_first_and_last_page(sparse: Sparse) -> None:
    for page in (1, 2, 5):
        sparse.here[page * PAGE] = 1
    first = sparse.address + PAGE + 16
    assert list(touched(first, 4 * PAGE)) == [
        (first, sparse.address + 3 * PAGE),
        (sparse.address + 5 * PAGE, first + 4 * PAGE),
    ]
    before = sparse.digest(PAGE + 16, 1 << 32)
    sparse.here[PAGE + 15] = 9
    assert sparse.digest(PAGE + 16, 1 << 32) == before, "below the allocation"
    sparse.here[PAGE + 16] = 9
    assert sparse.digest(PAGE + 16, 1 << 32) != before


def test_runs_go_on_over_the_parts_that_are_looked_up_at_once(sparse: Sparse, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "_AT_ONCE", 2)
    for page in (0, 1, 2, 3, 6):
        sparse.here[page * PAGE] = 1
    pages = [(first - sparse.address, last - sparse.address) for first, last in touched(sparse.address, 7 * PAGE)]
    assert pages == [(0, 2 * PAGE), (2 * PAGE, 4 * PAGE), (6 * PAGE, 7 * PAGE)]


def test_all_memory_counts_where_the_system_does_not_report_its_pages(
    sparse: Sparse, monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    for file in (tmp_path / "missing", tmp_path / "short"):
        (tmp_path / "short").touch()
        monkeypatch.setattr(digests, "_PAGES", file)
        assert list(touched(sparse.address, SIZE)) == [(sparse.address, sparse.address + SIZE)]


def test_of_a_small_allocation_all_bytes_count(sparse: Sparse) -> None:
    before = sparse.digest(0, PAGE)
    sparse.there[0] = 1  # a page that was not read here before
    assert sparse.digest(0, PAGE) != before
