"""Digests of the state of launches, by which a state that returns is recognised."""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from harness.emulator.execution.launch import Launch
from harness.emulator.wavefront.state import Wavefronts

_LARGE = 16 << 20
"""Bytes of an allocation from which on its pages are looked up: for a smaller one that costs more than it saves."""

_PAGES = Path("/proc/self/pagemap")
_ENTRY, _AT_ONCE = 8, 1 << 20
_EXISTS = 62  # bit 63: the page is mapped, bit 62: it is swapped out (Documentation/admin-guide/mm/pagemap.rst)


def memory_of(launches: Iterable[Launch]) -> Iterator[bytes | ctypes.Array[ctypes.c_char]]:
    """Yield all memory that the launches can reach, each byte once: concurrent ranks reach the same heaps.

    Of a large allocation, only the pages that this process has touched, each run of them after its place. A wavefront
    touches the pages that it reads, so none of these is missing; and a sparse tensor of gigabytes, each page of which
    would be allocated when it is read, stays as it is.
    """
    for address, size in sorted({(a.address, a.size) for launch in launches for a in launch.table.allocations}):
        if size < _LARGE:
            yield (ctypes.c_char * size).from_address(address)
            continue
        for first, last in touched(address, size):
            yield b"%d %d" % (first, last)
            yield (ctypes.c_char * (last - first)).from_address(first)


def touched(address: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each run of memory in [address, address + size) whose pages this process has
    touched; all of it where the system does not report it."""
    end = address + size
    try:
        with _PAGES.open("rb", buffering=0) as pages:
            for start in range(address - address % mmap.PAGESIZE, end, _AT_ONCE * mmap.PAGESIZE):
                count = min(_AT_ONCE, -(-(end - start) // mmap.PAGESIZE))
                read = os.pread(pages.fileno(), count * _ENTRY, start // mmap.PAGESIZE * _ENTRY)
                if len(read) < count * _ENTRY:
                    raise OSError(f"{_PAGES} ended before the page at {start + len(read) // _ENTRY * mmap.PAGESIZE:#x}")
                exists = np.frombuffer(read, np.uint64) >> np.uint64(_EXISTS) != 0
                bounds = np.flatnonzero(np.diff(np.concatenate([[False], exists, [False]]).view(np.int8)))
                for first, last in (bounds.reshape(-1, 2) * mmap.PAGESIZE + start).tolist():
                    yield max(first, address), min(last, end)
    except OSError:
        yield address, end


def state_of(ready: list[Wavefronts]) -> bytes:
    """Return a digest of all state, except global memory, that decides what these wavefronts do next."""
    chunks = {w.chunk.index: w.chunk for w in ready}
    return digest([*sorted(_registers(w) for w in ready), *(c.lds.data for c in chunks.values())])


def _registers(wf: Wavefronts) -> bytes:
    """Return all state, except memory, that decides what these wavefronts do next."""
    where = wf.chunk.launch.rank, wf.block, *wf.wave.tolist()
    return repr(where).encode() + wf.s.tobytes() + wf.v.tobytes() + wf.scc.tobytes()


def digest(parts: Iterable[bytes | memoryview | ctypes.Array[ctypes.c_char]]) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()
