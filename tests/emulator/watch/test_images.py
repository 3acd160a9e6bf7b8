"""Copies of allocations in mode ``weak``: made at a launch if its arguments lead there, otherwise at an access."""

import numpy as np

from harness.emulator.watch.model import Images


def _table(*memory):
    arrays = sorted(memory, key=lambda array: array.ctypes.data)
    starts = np.array([array.ctypes.data for array in arrays], np.uint64)
    ends = starts + np.array([array.nbytes for array in arrays], np.uint64)
    return starts, ends, np.zeros(len(arrays), np.int32)


def _taken(images, table, arguments, *memory, epoch=0):
    """Return for each of ``memory`` whether its copy is made at the launch."""
    of = dict(zip(table[0].tolist(), images.of(table, epoch, arguments), strict=True))
    return [of[array.ctypes.data].taken for array in memory]


def _arguments(*words):
    return np.array(words, np.uint64).view(np.uint8)


def test_what_arguments_lead_to():
    direct, entry, other, table = (np.zeros(64, np.uint64) for _ in range(4))
    table[3] = entry.ctypes.data + 40
    memory = direct, entry, other, table
    allocations = _table(*memory)
    images = Images()
    assert _taken(images, allocations, _arguments(direct.ctypes.data + 8, 17), *memory) == [True, False, False, False]
    # A copy that an earlier launch of the same run made is kept; the entry of a table is found.
    assert _taken(images, allocations, _arguments(table.ctypes.data), *memory) == [True, True, False, True]
    images.forget()
    assert _taken(images, allocations, _arguments(3, 5), *memory) == [False] * 4


def test_a_table_through_a_context():
    heap, bases, context = (np.zeros(64, np.uint64) for _ in range(3))
    context[1], bases[2] = bases.ctypes.data, heap.ctypes.data
    memory = heap, bases, context
    assert _taken(Images(), _table(*memory), _arguments(context.ctypes.data), *memory) == [True] * 3


def test_addresses_at_the_end_and_past_it():
    memory = np.zeros(3, np.uint64)
    table = _table(memory)
    last = memory.ctypes.data + memory.nbytes - 1
    assert _taken(Images(), table, _arguments(last), memory) == [True]
    assert _taken(Images(), table, _arguments(last + 1), memory) == [False]
    assert Images().of((*(np.zeros(0, np.uint64),) * 2, np.zeros(0, np.int32)), 0, _arguments(last)) == []


def test_addresses_in_a_circle():
    one, other = np.zeros(8, np.uint64), np.zeros(8, np.uint64)
    one[0], other[0] = other.ctypes.data, one.ctypes.data
    assert _taken(Images(), _table(one, other), _arguments(one.ctypes.data), one, other) == [True, True]
