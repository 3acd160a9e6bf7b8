"""The bytes of a line are those that its stores write in their order, as a NumPy form of the model computes them."""

import random

import numpy as np
import pytest

from harness.emulator.native import issuing, weak_state
from harness.emulator.watch.choices import Seeded
from harness.emulator.watch.model import Model, at_address
from tests.emulator.watch import model_calls as calls

UNITS = [(agent, xcd) for agent in range(2) for xcd in range(2) for _ in range(2)]


class Memory:
    """One line of a model's memory."""

    def __init__(self, seed: int) -> None:
        self.values = np.random.default_rng(seed)
        self.bytes = self.values.integers(0, 256, 128, np.uint8)
        self.first = self.bytes.copy()
        self.model = Model(Seeded(seed), covers_siblings=True)
        self.state = self.model.address
        self.units = [self.model.call(issuing.NEW_UNIT, agent, xcd, 1) for agent, xcd in UNITS]
        start = self.bytes.ctypes.data
        self.line = calls.line_of(self.state, start, start, start + 128)

    def store(self, unit: int, at: int, size: int, scope: int) -> None:
        at_address(self.model.scratch, 128)[:] = self.values.integers(0, 256, 128, np.uint8)
        calls.store(self.state, unit, self.line, at, size, scope)

    def stores(self) -> list[dict[int, int]]:
        places, rows = calls.stores(self.line, calls.fields())
        return [
            {
                "data": at_address(int(place) + weak_state.DATA, 128).copy(),
                **dict(zip(calls._STORE, row.tolist(), strict=True)),
            }
            for place, row in zip(places, rows, strict=True)
        ]

    @property
    def content(self) -> np.ndarray:
        return at_address(self.line + weak_state.CONTENT, 128).copy()


def mask(store) -> np.ndarray:
    words = np.array([store[weak_state.LOW], store[weak_state.HIGH]], np.int64).view(np.uint8)
    return np.unpackbits(words, bitorder="little").astype(np.bool_)


def written(base, stores) -> np.ndarray:
    """Return a line with each store written over the older ones."""
    data = base.copy()
    for store in sorted(stores, key=lambda s: (s[weak_state.AT_SYSTEM], s[weak_state.AT_AGENT], s[weak_state.LANDED])):
        data[mask(store)] = store["data"][mask(store)]
    return data


def after_accesses(seed: int) -> Memory:
    """Return one line of memory after random accesses, and changes by another process."""
    chosen, memory = random.Random(seed), Memory(seed)
    for _ in range(60):
        unit, at = chosen.choice(memory.units), 4 * chosen.randrange(28)
        action = chosen.randrange(7)
        if action < 2:
            memory.store(unit, at, chosen.choice([1, 4, 8, 16]), chosen.randrange(4))
        elif action == 2:
            calls.exchange(
                memory.state,
                unit,
                memory.line,
                at,
                chosen.choice([weak_state.AGENT, weak_state.SYSTEM]),
                chosen.getrandbits(32),
            )
        elif action == 3:
            calls.load(memory.state, unit, memory.line, chosen.randrange(4))
        elif action == 4:
            calls.write_back(memory.state, unit, chosen.choice([weak_state.AGENT, weak_state.SYSTEM]))
        elif action == 5:
            calls.invalidate(memory.state, unit, chosen.randrange(1, 4))
        else:
            memory.bytes[at] ^= 255
    calls.answered(memory.state, memory.bytes.ctypes.data, 128)
    return memory


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_the_systems_bytes_are_those_of_the_stores_that_reached_it(seed):
    memory = after_accesses(seed)
    stores = memory.stores()
    assert [store for store in stores if store[weak_state.IS_DIRTY]] == [
        s for s in stores if s[weak_state.AT_SYSTEM] == weak_state.NEVER
    ]
    assert memory.model.dirty == sum(store[weak_state.IS_DIRTY] for store in stores)
    reached = [store for store in stores if store[weak_state.AT_SYSTEM] != weak_state.NEVER]
    assert np.array_equal(memory.content, written(memory.first, reached))
    assert np.array_equal(memory.content, memory.bytes)


@pytest.mark.parametrize("seed", range(20))
def test_a_load_sees_the_bytes_of_the_stores_that_are_visible_to_it(seed):
    memory = after_accesses(seed)
    for (agent, xcd), unit in zip(UNITS, memory.units, strict=True):
        if calls.load(memory.state, unit, memory.line, weak_state.SYSTEM):
            continue  # the adversary hides some of them
        visible = []
        for store in memory.stores():
            its_agent, its_xcd = (at_address(store[weak_state.UNIT], 16).view(np.int64)).tolist()
            own = (its_agent, its_xcd) == (agent, xcd)
            time = (
                store[weak_state.LANDED]
                if own
                else store[weak_state.AT_AGENT]
                if its_agent == agent
                else store[weak_state.AT_SYSTEM]
            )
            if time != weak_state.NEVER:
                visible.append(store)
        assert np.array_equal(memory.model.seen_line, written(memory.first, visible))


@pytest.mark.parametrize("scope", [weak_state.AGENT, weak_state.SYSTEM])
def test_an_exchange_reads_the_newest_value_of_its_scope(scope):
    memory = Memory(0)
    near, same_agent, other_agent = memory.units[0], memory.units[2], memory.units[4]
    assert calls.exchange(memory.state, near, memory.line, 8, scope, 7) == int(memory.first[8:12].view(np.uint32)[0])
    assert calls.exchange(memory.state, same_agent, memory.line, 8, scope, 9) == 7
    far = calls.exchange(memory.state, other_agent, memory.line, 8, weak_state.SYSTEM, 11)
    assert far == (9 if scope == weak_state.SYSTEM else int(memory.first[8:12].view(np.uint32)[0]))


def test_a_write_back_reaches_memory():
    memory = Memory(1)
    memory.store(memory.units[0], 0, 16, weak_state.WAVE)
    assert np.array_equal(memory.bytes, memory.first)
    assert calls.write_back(memory.state, memory.units[0], weak_state.SYSTEM) == 1
    assert not np.array_equal(memory.bytes, memory.first) and memory.model.dirty == 0


def test_a_store_that_is_left_out_is_seen():
    memory = after_accesses(3)
    reached = [store for store in memory.stores() if store[weak_state.AT_SYSTEM] != weak_state.NEVER]
    fewer = [[other for other in reached if other is not store] for store in reached]
    assert any(not np.array_equal(memory.content, written(memory.first, some)) for some in fewer)


def test_an_invalidate_that_is_left_out_is_seen(monkeypatch):
    monkeypatch.setattr(calls, "invalidate", lambda state, unit, scope: None)
    with pytest.raises(AssertionError):
        test_a_line_that_is_not_invalidated_may_be_old(weak_state.SYSTEM)


@pytest.mark.parametrize("scope", [weak_state.AGENT, weak_state.SYSTEM])
def test_a_line_that_is_not_invalidated_may_be_old(scope):
    """A store of another agent has reached the system: only an invalidate at system scope makes it certain."""
    hidden = 0
    for seed in range(40):
        memory = Memory(seed)
        reader, writer = memory.units[0], memory.units[4]
        memory.store(writer, 0, 16, weak_state.SYSTEM)
        calls.invalidate(memory.state, reader, scope)
        hidden += calls.load(memory.state, reader, memory.line, weak_state.WAVE)
    assert (hidden == 0) == (scope == weak_state.SYSTEM)
