"""Compilation of runs of instructions: after a while, in the middle of a launch too, once, by one thread."""

import threading

import pytest
import torch
import triton
import triton.language as tl

from harness import emulator
from harness.emulator.driver import translated
from harness.emulator.driver.translated import Heat, TranslatedScheduler
from harness.emulator.native import execute
from harness.emulator.program.compiled.translation import Translation, Translator

GROUPS, BLOCK, TURNS = 24, 64, 40


@triton.jit
def hash_kernel(x, out, TURNS: tl.constexpr, BLOCK: tl.constexpr):
    """out[i] = x[i] after TURNS steps of a hash."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at)
    for turn in range(TURNS):
        value = (value ^ (value >> 7)) * 5 + turn
    tl.store(out + at, value)


def wanted(x):
    for turn in range(TURNS):
        x = (x ^ (x >> 7)) * 5 + turn
    return x


class Compilations:
    """Replaces ``Translation.use_runs``: notes whether work-groups were left to run, and whether calls overlapped."""

    def __init__(self, plain):
        self.plain = plain
        self.scheduler = None
        self.left = []
        self.inside = threading.Lock()
        self.overlapped = False

    def use_runs(self, translation, compiling=True):
        free = self.inside.acquire(blocking=False)
        self.overlapped |= not free
        try:
            if self.scheduler is not None:
                schedulers = (self.scheduler, *self.scheduler.helpers)
                self.left.append(any(s.state_[execute.NEXT] < s.state_[execute.TOTAL] for s in schedulers))
            return self.plain(translation, compiling)
        finally:
            if free:
                self.inside.release()


@pytest.fixture
def launch(monkeypatch):
    """Return a function that runs the kernel on ``cores`` threads in native code without runs, in short pieces, and
    returns its translation and what was compiled meanwhile."""
    notes = Compilations(Translation.use_runs)
    monkeypatch.setattr(Translation, "use_runs", lambda self, compiling=True: notes.use_runs(self, compiling))
    monkeypatch.setattr(translated, "_BUDGET", 200)
    monkeypatch.setattr(translated, "WORTH_A_THREAD", 0.0)
    translations = []

    def start(cores, seconds):
        monkeypatch.setattr(translated, "COMPILING_OPERATION", seconds)

        def run(driver, streams, closed=False):
            ((launch,),) = streams
            translations.append(Translator(launch.program).finish())
            launch.program.heat = Heat(translation=translations[-1])
            notes.scheduler = TranslatedScheduler(launch, translations[-1], cores=cores)
            notes.scheduler.run()

        monkeypatch.setattr(emulator.EmulatedDriver, "run", run)
        emulator.activate()
        x = torch.arange(GROUPS * BLOCK, dtype=torch.int32)
        out = torch.zeros_like(x)
        hash_kernel[(GROUPS,)](x, out, TURNS, BLOCK, num_warps=1)
        assert torch.equal(out, wanted(x))
        return translations[-1], notes

    yield start
    emulator.deactivate()


def test_runs_are_compiled_in_the_middle_of_a_launch(launch):
    translation, notes = launch(1, seconds=0.0)
    assert notes.left == [True]
    assert translation.has_runs


def test_one_of_several_threads_compiles_the_runs(launch):
    translation, notes = launch(3, seconds=0.0)
    assert notes.left == [True]
    assert not notes.overlapped
    assert translation.has_runs


def test_a_short_launch_compiles_no_runs(launch):
    translation, notes = launch(1, seconds=1e9)
    assert notes.left == []
    assert not translation.has_runs


def test_time_is_summed_over_launches(launch, monkeypatch):
    translation, notes = launch(1, seconds=1e9)
    monkeypatch.setattr(translated, "COMPILING_OPERATION", 1.0)
    heat = Heat(translation=translation)
    for seconds in (0.75, 0.25):
        assert not translation.has_runs
        heat.ran(translation, seconds * translation.runs.size)
    assert translation.has_runs
    calls = len(notes.left)
    heat.ran(translation, 1e9)
    assert len(notes.left) == calls
