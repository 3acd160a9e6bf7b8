"""Measuring one benchmark: times, counts, and the profile."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.emulator import floor
from benchmarks.emulator.kernels import Benchmark
from harness import emulator
from harness.emulator.execution.launch import Launch
from harness.emulator.operations import find
from harness.emulator.operations.table import Step
from harness.emulator.program.compiled import Run


@dataclass
class Figures:
    """``first_ms``: executing the first launch, all interpreted. ``compile_ms``: making machine code of the ALU
    instructions, or finding it on disk; a program does that when it has become hot. The rest is warm."""

    title: str
    wavefronts: int
    wavefront_instructions: int
    first_ms: float
    compile_ms: float
    ms: float
    floor_ms: float
    ratio_to_floor: float
    million_wavefront_instructions_per_second: float
    million_lane_instructions_per_second: float

    def as_data(self) -> dict[str, Any]:
        return asdict(self)


def measure(driver: emulator.EmulatedDriver, benchmark: Benchmark, repeat: int, compiled: bool = True) -> Figures:
    """Times are processor time of this process: a launch runs on the calling thread and does not sleep."""
    with launches(driver) as seen:
        benchmark.launch()
        benchmark.check()
        ((launch, first),) = seen.items()
        start = time.process_time()
        (compile_now if compiled else stay_interpreted)(launch)
        compiling = time.process_time() - start
        benchmark.launch()
        benchmark.check()
        *_, launch = seen
    taken = floor.timed(benchmark.launch, repeat, at_least=0.1)
    driver.drain_launches()
    record = launch.record("", "")
    instructions = sum(record.instructions.values())
    least = floor.seconds(launch)
    return Figures(
        benchmark.title, launch.groups * launch.waves_per_group, instructions, first * 1e3, compiling * 1e3,
        taken * 1e3, least * 1e3, taken / least, instructions / taken / 1e6, sum(record.lanes.values()) / taken / 1e6,
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


def _runs(launch: Launch) -> list[Run]:
    return [step for segment in launch.program.segments for step in segment.steps if isinstance(step, Run)]


def compile_now(launch: Launch) -> None:
    """Compile the launch's program now, not when it has become hot."""
    for run in _runs(launch)[:1]:
        if not run.compiler.load():
            run.compiler.compile()


def stay_interpreted(launch: Launch) -> None:
    """Keep the launch's program interpreted."""
    for run in _runs(launch):
        run.compiled = None
        run.compiler.limit = float("inf")


# -- where time goes ---------------------------------------------------------------------------------------------------


def profile(driver: emulator.EmulatedDriver, benchmark: Benchmark, repeat: int) -> str:
    """Milliseconds of a launch by opcode class and by step, the costliest first; timing costs about 1 us a step."""
    with launches(driver) as seen:
        benchmark.launch()
        (program,) = (launch.program for launch in seen)
        plain = [list(segment.steps) for segment in program.segments]
        steps: Counter[str] = Counter()
        classes: Counter[str] = Counter()
        try:
            for segment in program.segments:
                segment.steps = [
                    _timed(step, _name(step, instruction.text), _klass(step, instruction.mnemonic), steps, classes)
                    for step, instruction in zip(segment.steps, segment.instructions, strict=True)
                ]
            start = time.process_time()
            for _ in range(repeat):
                benchmark.launch()
            taken = (time.process_time() - start) / repeat
        finally:
            for segment, unwrapped in zip(program.segments, plain, strict=True):
                segment.steps = unwrapped
    driver.drain_launches()
    classes["scheduling and launching"] = int(taken * repeat * 1e9) - sum(classes.values())
    lines = ["  by class"]
    lines += [f"    {ns / repeat / 1e6:9.3f} ms  {name}" for name, ns in classes.most_common()]
    lines.append("  by step")
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


def _name(step: Step, text: str) -> str:
    if not isinstance(step, Run):
        return text
    how = "compiled" if step.compiled is not None else "interpreted"
    return f"{len(step.steps)} ALU instructions from {text!r} on, {how}"


def _klass(step: Step, mnemonic: str) -> str:
    return "alu" if isinstance(step, Run) else getattr(find(mnemonic, "gfx942")[0], "klass", "other")
