"""Whole kernels in native code against the interpreter: the same memory and launch records, bit for bit."""

import importlib
import pkgutil

import numpy as np
import pytest

import tests.corpus
from harness import emulator
from harness.emulator.driver import translated as scheduler
from harness.emulator.driver.schedule import Scheduler
from harness.emulator.driver.translated import TranslatedScheduler
from harness.emulator.native import execute, record
from harness.emulator.operations.access import ATOMIC
from harness.emulator.program.compiled.translation import Translator
from tests.corpus.case import CASES

for module in pkgutil.iter_modules(tests.corpus.__path__, "tests.corpus."):
    if not module.name.rsplit(".", 1)[1].startswith(("test_", "conftest", "case")):
        importlib.import_module(module.name)

QUICK = (
    "atomic_slots-add-bfloat16", "spin_lock-4", "segmented_reduction", "attention_forward-True-100-32-2-2",
    "gluon_transpose-float16-8-4", "gluon_async_copy-True-4", "gluon_buffer_operations-float32-4-True",
    "matmul_pipelined-3", "matmul_split_k-float16", "layer_norm_forward-float16-1", "cumsum-int32-1-True-8",
    "softmax_one_pass-float32-200-4", "sort-float16-False-2", "histogram-16-4", "casts-bf16-fp32",
)  # fmt: skip


def memory_of(launch):
    return [np.ctypeslib.as_array((np.ctypeslib.ctypes.c_uint8 * a.size).from_address(a.address))
            for a in launch.table.allocations]  # fmt: skip


def ordered(launch):
    """Return whether a launch's results do not depend on the order of its wavefronts: none waits for another, and none
    adds floats, or gets the old value of an atomic."""
    return not any(block.polls for block in launch.program.blocks) and not any(
        site.kind == ATOMIC for site in launch.program.accesses
    )


def reset(launch):
    launch.unstarted, launch.started, launch.chunks = launch.groups, 0, {}
    launch.waves, launch.lanes = ([0] * len(launch.program.segments) for _ in range(2))
    launch.executions = [0] * len(launch.program.accesses)
    for counts in launch.access_lanes:
        counts[:] = 0


def run_both(launch, change=lambda translation: None, runs=False):
    """Run a launch in native code and interpreted, on the same memory; return what differs.

    ``runs``: runs of instructions are one function each.
    """
    memory = memory_of(launch)
    before = [each.copy() for each in memory]
    translation = Translator(launch.program).finish()
    if runs:
        assert translation.use_runs()
    change(translation)
    TranslatedScheduler(launch, translation).run()
    native = launch.record("", ""), [each.copy() for each in memory]
    for each, data in zip(memory, before, strict=True):
        each[...] = data
    reset(launch)
    Scheduler([[launch]]).run()
    if not ordered(launch):
        return []
    different = [] if launch.record("", "") == native[0] else ["the launch record"]
    for allocation, data, wanted in zip(launch.table.allocations, native[1], memory, strict=True):
        if not np.array_equal(data, wanted):
            different.append(f"{allocation.label}: byte {int((data != wanted).argmax())}")
    return different


@pytest.fixture
def both(monkeypatch):
    """Return a list of what differs between the two executions of each launch."""
    different = []

    def run(driver, streams, closed=False):
        ((launch,),) = streams
        if launch.hostcall is not None:
            Scheduler(streams).run()
        else:
            before = [each.copy() for each in memory_of(launch)]
            different.extend(run_both(launch))
            for each, data in zip(memory_of(launch), before, strict=True):
                each[...] = data
            reset(launch)
            different.extend(run_both(launch, runs=True))

    monkeypatch.setattr(emulator.EmulatedDriver, "run", run)
    yield different
    emulator.deactivate()


def check(case, arch, both):
    emulator.activate(arch)
    case.check()
    assert both == []


@pytest.mark.long
@pytest.mark.parametrize("name", QUICK)
def test_kernel(name, both):
    (case,) = (case for case in CASES if case.name == name)
    check(case, case.archs[0], both)


# -- planted faults ----------------------------------------------------------------------------------------------------


@pytest.fixture
def launched(monkeypatch):
    """Return a function that passes the launch of a softmax to another one, while its arguments live."""

    def launched(function):
        results = []
        monkeypatch.setattr(
            emulator.EmulatedDriver, "run", lambda driver, streams, closed=False: results.append(function(*streams[0]))
        )
        emulator.activate("gfx942")
        (case,) = (case for case in CASES if case.name == "softmax_one_pass-float32-200-4")
        case.check()
        return results[0]

    yield launched
    emulator.deactivate()


def rows(translation, *parts):
    """Return the operations whose instruction has one of the parts in its mnemonic."""
    return [
        i
        for i, place in enumerate(translation.places)
        if translation.code[i, 0] == execute.CALL and any(part in place.instruction.mnemonic for part in parts)
    ]


def other_address(translation):
    translation.code[rows(translation, "store")[0], 2 + 4] += 4


def other_register(translation):
    translation.code[rows(translation, "v_max", "v_sub")[0], 2] += record.PAIR_BYTES


def other_counter(translation):
    (count, *_) = np.flatnonzero(translation.code[:, 0] == execute.COUNT)
    translation.code[count, 2] += 1


def other_site(translation):
    store, load = rows(translation, "store")[0], rows(translation, "buffer_load")[0]
    translation.code[store, 2 + 8] = translation.code[load, 2 + 9]


def other_share(translation):
    translation.code[rows(translation, "ds_write")[0], 2 + 5] += 1


@pytest.mark.parametrize("change", [other_address, other_register, other_counter, other_site, other_share])
def test_a_planted_fault_is_seen(launched, change):
    assert launched(lambda launch: run_both(launch, change))


@pytest.mark.parametrize("change", [other_address, other_site, other_share])
def test_a_planted_fault_is_seen_in_runs(launched, change):
    assert launched(lambda launch: run_both(launch, lambda each: (change(each), each.use_runs())))


@pytest.mark.parametrize("runs", [False, True])
def test_without_it_nothing_differs(launched, runs):
    assert launched(lambda launch: run_both(launch, runs=runs)) == []


def test_results_do_not_depend_on_the_number_of_threads(launched, monkeypatch):
    monkeypatch.setattr(scheduler, "WORTH_A_THREAD", 0.0)
    results = launched(run_on_threads)
    assert results[1:] == results[:-1]


def run_on_threads(launch):
    memory, before = memory_of(launch), [each.copy() for each in memory_of(launch)]
    results = []
    for cores in (1, 2, 3):
        for each, data in zip(memory, before, strict=True):
            each[...] = data
        reset(launch)
        run = TranslatedScheduler(launch, Translator(launch.program).finish(), cores=cores)
        assert len(run.helpers) == cores - 1
        run.run()
        results.append((launch.record("", ""), [each.tobytes() for each in memory]))
    return results


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("case", "arch"),
    [pytest.param(case, arch, id=f"{case.family}-{case.name}-{arch}") for case in CASES for arch in case.archs],
)
def test_every_kernel(case, arch, both):
    check(case, arch, both)
