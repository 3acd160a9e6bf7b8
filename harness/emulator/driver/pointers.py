"""Memory that a kernel was given only as an address: the live CPU tensor that holds it is searched and found.

A kernel may get an address as an integer argument, as an element of an int64 tensor, or from an object that has only
``data_ptr()``. Each tensor whose address is among these becomes an allocation of the launch, as a whole. A tensor whose
address the kernel was not given stays inaccessible, so an access out of bounds still faults.

A tensor counts if Python refers to it. Other memory, such as NumPy's, must be registered.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import torch

from harness.emulator.native.survey import HIGHEST, LOWEST

# Elements of a table for which Python is faster than NumPy.
_FEW = 64

# Types of devices whose memory this process can read: without a GPU, "cuda" is that of an emulated machine.
_HOST = ("cpu", "cuda")


def find(
    values: Mapping[str, int], tables: Mapping[str, torch.Tensor], known: Callable[[int], bool]
) -> tuple[list[torch.UntypedStorage], dict[int, str]]:
    """Return the storages of the tensors that the addresses belong to, and the addresses of other mapped memory.

    ``values`` are integer arguments by name, ``tables`` int64 tensors, whose elements may be addresses. An address that
    is ``known`` needs no search. The addresses of other memory are returned with the name of their argument.
    """
    named = {value: name for name, value in values.items() if LOWEST <= value < HIGHEST}
    for name, table in tables.items():
        words = _words(table)
        if words.size > _FEW:
            words = np.unique(words[(words >= LOWEST) & (words < HIGHEST)])
        for word in sorted({word for word in words.tolist() if LOWEST <= word < HIGHEST}):
            named.setdefault(word, f"an element of {name}")
    named = {word: name for word, name in named.items() if not known(word)}
    if not named:
        return [], {}
    mapped = _mapped(np.array(sorted(named), np.int64))
    owners = _owners(mapped) if len(mapped) else {}
    if len(owners) < len(mapped) and gc.get_freeze_count():
        # Objects from before this process was forked: get_objects() leaves them out while they are frozen.
        gc.unfreeze()
        owners = _owners(mapped)
        gc.freeze()  # else each later search for garbage visits them
    distinct = {storage.data_ptr(): storage for storage in owners.values()}
    return list(distinct.values()), {word: named[word] for word in mapped.tolist() if word not in owners}


def _words(table: torch.Tensor) -> np.ndarray:
    """Return the elements of an int64 or uint64 tensor without a call of torch, which subclasses may replace.

    The caller keeps the tensor while it uses them.
    """
    count = table.numel()
    if not table.is_contiguous():
        whole = table.contiguous()
        return np.array(_words(whole))
    return np.ctypeslib.as_array((ctypes.c_int64 * count).from_address(table.data_ptr())) if count else np.zeros(0, int)


def _owners(wanted: np.ndarray) -> dict[int, torch.UntypedStorage]:
    """Return the storages of live tensors that hold the addresses ``wanted`` (sorted), by address."""
    owners: dict[int, torch.UntypedStorage] = {}
    # The type, not isinstance(): that would read __class__ of proxies and run their code. A set, since a process has
    # hundreds of thousands of objects.
    types = _with_subclasses(torch.Tensor)
    for tensor in [thing for thing in gc.get_objects() if type(thing) in types]:
        if tensor.device.type not in _HOST or tensor.layout != torch.strided:
            continue
        try:
            storage = tensor.untyped_storage()
            start = storage.data_ptr()
        except (RuntimeError, NotImplementedError):  # a tensor without memory, such as one of a tracer
            continue
        first, last = np.searchsorted(wanted, (start, start + storage.nbytes()))
        for address in wanted[first:last].tolist():
            if address not in owners or owners[address].nbytes() < storage.nbytes():
                owners[address] = storage
    return owners


def _with_subclasses(base: type) -> set[type]:
    """Return a type and all types that are derived from it."""
    types, waiting = {base}, [base]
    while waiting:
        new: set[type] = set(type.__subclasses__(waiting.pop())) - types
        types |= new
        waiting += new
    return types


def _mapped(words: np.ndarray) -> np.ndarray:
    """Return those addresses that lie in this process's readable memory."""
    starts, ends = _mappings()
    place = np.searchsorted(starts, words, side="right") - 1
    return words[(place >= 0) & (words < ends[place])]


def _mappings() -> tuple[np.ndarray, np.ndarray]:
    """Return the starts and ends of this process's readable memory."""
    ranges = []
    for line in Path("/proc/self/maps").read_text().splitlines():
        bounds, permissions = line.split(maxsplit=2)[:2]
        if permissions.startswith("r"):
            start, end = (int(bound, 16) for bound in bounds.split("-"))
            if end <= HIGHEST:
                ranges.append((start, end))
    starts, ends = np.array(ranges, np.int64).T
    return starts, ends
