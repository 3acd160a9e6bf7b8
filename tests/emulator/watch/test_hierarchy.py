"""The bytes of a line are those that its stores write in their order, however they are computed."""

import random

import numpy as np
import pytest

from harness.emulator.watch import hierarchy
from harness.emulator.watch.choices import Seeded
from harness.emulator.watch.hierarchy import NEVER, Hierarchy, Line, Store, Unit

UNITS = [Unit(agent, xcd, number) for agent in range(2) for xcd in range(2) for number in range(2)]


def written(line: Line, stores: list[Store]) -> np.ndarray:
    """Return the line with each store written over the older ones."""
    data = line.base.copy()
    for store in sorted(stores, key=lambda s: (s.system, s.agent, s.landed)):
        data[store.mask] = store.data[store.mask]
    return data


def after_accesses(seed: int) -> tuple[Line, np.ndarray]:
    """Return one line of memory after random accesses, and changes by another process."""
    chosen, values = random.Random(seed), np.random.default_rng(seed)
    memory = values.integers(0, 256, 128, np.uint8)
    state = Hierarchy(Seeded(seed))
    line = state.line(memory.ctypes.data, memory.ctypes.data, memory.ctypes.data + 128)
    changes = 0
    for _ in range(60):
        unit, at = chosen.choice(UNITS), 4 * chosen.randrange(30)
        data = values.integers(0, 256, 128, np.uint8)
        action = chosen.randrange(5)
        if action < 2:
            mask = np.zeros(128, np.bool_)
            mask[at : at + chosen.choice([1, 4, 8])] = True
            state.store(unit, line, mask, data, chosen.choice(hierarchy.SCOPES), "a store")
        elif action == 2:
            scope, offsets = chosen.choice(["agent", "system"]), np.arange(at, at + 4)
            state.exchange(unit, line, offsets, scope, lambda old, data=data: data[:4], "an atomic")
        elif action == 3:
            state.load(unit, line, chosen.choice(hierarchy.SCOPES))
        else:
            memory[at] ^= 255
            changes += 1
    state.answered(line.address, line.size)
    assert len([store for store in line.stores if store.origin == "outside"]) <= changes
    return line, memory


@pytest.mark.parametrize("seed", range(20))
def test_the_systems_bytes_are_those_of_the_stores_that_reached_it(seed):
    line, memory = after_accesses(seed)
    assert list(line.dirty) == [store for store in line.stores if store.system == NEVER]
    assert np.array_equal(line.system, written(line, [store for store in line.stores if store.system != NEVER]))
    assert np.array_equal(line.system, memory)


@pytest.mark.parametrize("seed", range(20))
def test_stores_that_later_ones_hide_do_not_matter(seed):
    line, _ = after_accesses(seed)
    for share in (0.2, 0.6, 1.0):
        chosen = random.Random(seed)
        shown = [store for store in line.stores if chosen.random() < share]
        whole = written(line, shown)
        assert np.array_equal(hierarchy._compose(line, shown), whole)
        for start in range(0, 128, 8):
            at, mask = np.arange(start, start + 4), np.zeros(128, np.bool_)
            mask[at] = True
            newest = hierarchy._newest(line, at, hierarchy._bits(mask), lambda store, shown=shown: store in shown)
            assert np.array_equal(newest, whole[at])
