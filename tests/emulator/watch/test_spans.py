"""Mode ``weak`` keeps fewer lines where nothing else can change memory: what happens is the same as with all."""

import re

import pytest
import torch
import triton
import triton.language as tl

from harness import emulator
from harness.emulator.native import weak_state
from harness.emulator.watch import Lazy, Seeded
from harness.emulator.watch.weak import Weak
from tests.emulator.watch.comparing import activated

SEEDS = 8


@triton.jit
def overlapping(x, y, flag, n, OFFSET: tl.constexpr, BLOCK: tl.constexpr):
    """Load and store blocks that overlap those of other work-groups, and the lines that were loaded before."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    others = tl.load(x + places + OFFSET, mask=places + OFFSET < n, other=0)
    tl.store(y + places, others, mask=places < n)
    tl.atomic_add(flag, 1, sem="release", scope="gpu")
    early = tl.load(y + places + OFFSET, mask=places + OFFSET < n, other=0)
    tl.atomic_add(flag, 1, sem="acquire", scope="gpu")
    late = tl.load(y + places + OFFSET, mask=places + OFFSET < n, other=0)
    tl.store(x + places, others + early * 3 + late * 5, mask=places < n)
    tl.store(y + places, tl.load(x + places + OFFSET, mask=places + OFFSET < n, other=0), mask=places < n)


@triton.jit
def replacing(x, y, BLOCK: tl.constexpr):
    """Store to lines while the load of what was there is in flight."""
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    before = tl.load(x + places)
    tl.store(x + places, places * 0 + 7)
    tl.store(y + places, before)


@triton.jit
def send(data, box, flag, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    tl.store(box + places, tl.load(data + places))
    tl.debug_barrier()
    tl.atomic_xchg(flag, 1, sem="release", scope="sys")


@triton.jit
def receive(box, flag, out, SEM: tl.constexpr, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    before = tl.load(box + places)
    while tl.atomic_add(flag, 0, sem=SEM, scope="sys") == 0:
        pass
    tl.debug_barrier()
    tl.store(out + places, tl.load(box + places) + before * 0)


def overlap(offset, dtype):
    def program(driver):
        n = 1488  # a multiple of 16, so that lanes access several elements at once
        x, y = torch.arange(2 * n).to(dtype), torch.zeros(2 * n, dtype=dtype)
        overlapping[(6,)](x, y, torch.zeros(32, dtype=torch.int32), n, offset, 256, num_warps=1)
        return x[:n].tolist(), y[:n].tolist()

    return program


def replace(driver):
    x, y = torch.arange(1024, dtype=torch.int32), torch.zeros(1024, dtype=torch.int32)
    replacing[(4,)](x, y, 256, num_warps=1)
    return x.tolist(), y.tolist()


def message(n, warps, sem):
    def program(driver):
        data, box, out = torch.arange(1, n + 1, dtype=torch.int32), *torch.zeros(2, n, dtype=torch.int32)
        flag = torch.zeros(32, dtype=torch.int32)
        with emulator.concurrent_ranks(driver) as ranks:
            with ranks.rank(0):
                send[(1,)](data, box, flag, n, num_warps=warps)
            with ranks.rank(1):
                receive[(1,)](box, flag, out, sem, n, num_warps=warps)
        return out.tolist()

    return program


PROGRAMS = {
    "same lines": overlap(0, torch.int32),
    "half a line away": overlap(16, torch.int32),
    "loads that are not aligned": overlap(1, torch.int32),
    "lanes of 2 bytes": overlap(32, torch.int16),
    "lanes of 8 bytes": overlap(64, torch.int64),
    "stores after loads in flight": replace,
    "message": message(1024, 4, "acquire"),
    "message without an acquire": message(1024, 4, "relaxed"),
}


def runs_of(program, kind, isolated, monkeypatch):
    """Return for each seed all that shows what happened, and how many stores landed as parts of spans.

    ``isolated``: the mode can rely on it that nothing else changes memory.
    """
    runs, in_spans, begin = [], 0, Weak.begin
    monkeypatch.setattr(Weak, "begin", lambda self, closed: begin(self, isolated))
    with activated("weak", 0, True, monkeypatch) as driver:
        for seed in range(SEEDS):
            driver.watch.restart(kind(seed))
            result, model = program(driver), driver.watch.model
            events = [re.sub("0x[0-9a-f]+", "address", line) for line in driver.watch.story(weak_state.EVENTS)]
            runs.append((result, events, driver.watch.choices.decisions, model.changes, driver.watch.issued))
            in_spans += sum(event >> 8 for _, event, *_ in model.events() if event & 0xFF == weak_state.LANDS)
    monkeypatch.setattr(Weak, "begin", begin)
    return runs, in_spans


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("kind", [Seeded, Lazy])
def test_the_adversary_takes_the_same_choices_with_the_same_effects(monkeypatch, name, kind):
    runs, in_spans = runs_of(PROGRAMS[name], kind, True, monkeypatch)
    assert in_spans > 0
    wanted, in_spans = runs_of(PROGRAMS[name], kind, False, monkeypatch)
    assert in_spans == 0
    assert runs == wanted
    assert len({repr(run) for run in runs}) > 1, "the seeds give different runs"
