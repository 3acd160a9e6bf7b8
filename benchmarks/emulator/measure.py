"""Measuring one benchmark: times, counts, and the profile."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from benchmarks.emulator import floor
from benchmarks.emulator.kernels import Benchmark
from harness import emulator
from harness.emulator.driver import single
from harness.emulator.execution.launch import Launch
from harness.emulator.faults import DataRace
from harness.emulator.native import execute
from harness.emulator.operations import find
from harness.emulator.operations.table import Step
from harness.emulator.program.decode import Program

_ROUND = 5


@dataclass
class Figures:
    """``first_ms``: executing the first launch. ``translate_ms``: translating the program, which happens once it is
    worth it; machine code that is on the disk is loaded. The rest is warm. ``reference_ms``: the benchmark's own
    ``reference``, if it has one."""

    title: str
    wavefronts: int
    wavefront_instructions: int
    first_ms: float
    translate_ms: float
    ms: float
    floor_ms: float
    ratio_to_floor: float
    million_wavefront_instructions_per_second: float
    million_lane_instructions_per_second: float
    reference_ms: float | None = None
    ratio_to_reference: float | None = None

    def as_data(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


def measure(driver: emulator.EmulatedDriver, benchmark: Benchmark, repeat: int, native: bool = True) -> Figures:
    """Times are processor time of this process: a launch runs on the calling thread and does not sleep."""
    with launches(driver) as seen:
        benchmark.launch()
        benchmark.check()
        ((launch, first),) = seen.items()
        program = launch.program
        before = program.heat.seconds
        program.heat.force(native)
        benchmark.launch()
        benchmark.check()
        *_, launch = seen
        assert (program.heat.translation is not None) == native  # sanity check
    translating = max(before, program.heat.seconds)
    taken = floor.timed(benchmark.launch, repeat, at_least=0.1)
    driver.drain_launches()
    record = launch.record("", "")
    instructions = sum(record.instructions.values())
    least = floor.seconds(launch)
    reference = floor.timed(benchmark.reference, repeat) if benchmark.reference is not None else None
    return Figures(
        benchmark.title, launch.groups * launch.waves_per_group, instructions, first * 1e3, translating * 1e3,
        taken * 1e3, least * 1e3, taken / least, instructions / taken / 1e6, sum(record.lanes.values()) / taken / 1e6,
        reference and reference * 1e3, reference and taken / reference,
    )  # fmt: skip


@contextmanager
def launches(driver: emulator.EmulatedDriver) -> Iterator[dict[Launch, float]]:
    """The launches that run meanwhile, and how long each took, in seconds."""
    seen: dict[Launch, float] = {}
    run = driver.run

    def watched(streams: Any, *options: Any, **more: Any) -> None:
        start = time.process_time()
        run(streams, *options, **more)
        ((launch,),) = streams
        seen[launch] = time.process_time() - start

    driver.run = watched  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        del driver.run  # type: ignore[method-assign]


MODES = ("fast", "check", "weak", "race", "trace")


def modes(make: Callable[[emulator.EmulatedDriver], Benchmark], repeat: int) -> dict[str, float]:
    """Milliseconds of a launch in each mode, processor time: the least of ``repeat`` rounds, taken in turn.

    NaN for ``race`` if it reports one. Programs use native code where the mode has it. A round has several launches,
    since the choices of ``weak`` and ``race``, from seed 7, make their times differ.
    """
    taken = dict.fromkeys(MODES, math.inf)
    for _ in range(repeat):
        for mode in MODES:
            driver = emulator.activate(mode=mode, choices=7 if mode in ("weak", "race") else None)
            driver.cores = 1
            try:
                benchmark = make(driver)
                with launches(driver) as seen:
                    benchmark.launch()
                (launch,) = seen
                _use_native_code(launch.program)
                benchmark.launch()
                benchmark.check()
                start = time.process_time()
                for _ in range(_ROUND):
                    benchmark.launch()
                taken[mode] = min(taken[mode], (time.process_time() - start) / _ROUND * 1e3)
            except DataRace:  # in ``spin``, wavefronts store equal values to one place
                taken[mode] = math.nan
            finally:
                emulator.deactivate()
    return taken


def _use_native_code(program: Program) -> None:
    if isinstance(program.heat, single.Heat):
        if not program.heat.done:
            program.heat.use()
        if isinstance(program.heat, single.Rows) and program.heat.rows is not None:
            program.heat.rows.use_runs()
    elif program.heat is not None:
        program.heat.force(True)


# -- where time goes ---------------------------------------------------------------------------------------------------


def profile(driver: emulator.EmulatedDriver, benchmark: Benchmark, repeat: int) -> str:
    """Milliseconds of a launch by opcode class and by instruction, the costliest first.

    Runs are left out: each instruction is a call of its own, so that its time is known. Reading the clock costs about
    10 ns an instruction in native code, 1 us an interpreted one.
    """
    with launches(driver) as seen:
        benchmark.launch()
        (program,) = (launch.program for launch in seen)
    steps: Counter[str] = Counter()
    classes: Counter[str] = Counter()
    translation = program.heat.translation
    plain = [list(segment.steps) for segment in program.segments]
    try:
        if translation is not None:
            translation.cycles = np.zeros(len(translation.code), np.int64)
            runs = np.flatnonzero(translation.code[:, 0] == execute.RUN)
            translation.code[runs, 0] = np.where(translation.code[runs, 1] == 0, execute.COUNT, execute.CALL)
        for segment in program.segments:
            segment.steps = [
                _timed(step, instruction.text, _klass(instruction.mnemonic), steps, classes)
                for step, instruction in zip(segment.steps, segment.instructions, strict=True)
            ]
        start = time.process_time()
        for _ in range(repeat):
            benchmark.launch()
        taken = (time.process_time() - start) / repeat
        if translation is not None:
            rate = execute.cycles_per_second()
            for place, cycles in zip(translation.places, translation.cycles.tolist(), strict=False):
                ns = int(cycles / rate * 1e9)
                steps[place.instruction.text] += ns
                classes[_klass(place.instruction.mnemonic)] += ns
    finally:
        for segment, unwrapped in zip(program.segments, plain, strict=True):
            segment.steps = unwrapped
        if translation is not None:
            translation.cycles = np.zeros(0, np.int64)
            translation.code[runs, 0] = execute.RUN
    driver.drain_launches()
    classes["scheduling and launching"] = int(taken * repeat * 1e9) - sum(classes.values())
    lines = [f"  {'native, without runs' if translation is not None else 'interpreted'}, by class"]
    lines += [f"    {ns / repeat / 1e6:9.3f} ms  {name}" for name, ns in classes.most_common()]
    lines.append("  by instruction")
    lines += [f"    {ns / repeat / 1e6:9.3f} ms  {name}" for name, ns in steps.most_common(12)]
    return "\n".join(lines)


def _timed(step: Step, name: str, klass: str, steps: Counter[str], classes: Counter[str]) -> Step:
    def timed(wf: Any) -> None:
        start = time.process_time_ns()
        step(wf)
        taken = time.process_time_ns() - start
        steps[name] += taken
        classes[klass] += taken

    return timed


def _klass(mnemonic: str) -> str:
    return getattr(find(mnemonic, "gfx942")[0], "klass", "other")
