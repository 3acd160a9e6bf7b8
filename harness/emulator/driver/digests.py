"""Digests of the state of launches, by which a state that returns is recognised."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterable, Iterator

from harness.emulator.execution.launch import Launch


def memory_of(launches: Iterable[Launch]) -> Iterator[ctypes.Array[ctypes.c_char]]:
    """Yield all memory that the launches can reach, each byte once: concurrent ranks reach the same heaps."""
    for address, size in sorted({(a.address, a.size) for launch in launches for a in launch.table.allocations}):
        yield (ctypes.c_char * size).from_address(address)


def digest(parts: Iterable[bytes | memoryview | ctypes.Array[ctypes.c_char]]) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()
