"""Compiles the calls of the catalogue on groups of ranks, one group for each core."""

from __future__ import annotations

import os
import queue
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.isa.figures import Figures
from fixtures.adapters import package_of
from harness import devices
from harness.errors import HarnessError
from harness.ranks import CaseFailed, RankGroup

RANKS = 2
"""Ranks of a group: the least that have a peer."""
DEADLINE = 120.0
"""Seconds for a call, without its compilation."""
_DEVICE = "emulated"
"""The device on which the ranks have their heaps. Nothing runs there."""


@dataclass(frozen=True)
class Result:
    """The kernels of one call. ``error``: the reason if there are none, else ""."""

    arch: str
    call: str
    kernels: list[Figures] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    error: str = ""


def compile_all(
    tasks: Sequence[tuple[str, str]],
    implementation: str,
    output: Path,
    progress: Callable[[int], None],
    groups: int = os.cpu_count() or 1,
) -> list[Result]:
    """Compile each (arch, call) of ``tasks``; results in their order. ``output``: the folder for the listings.

    ``progress`` is called with the number of calls that are done. HarnessError if no group of ranks can be started.
    """
    waiting: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    for task in tasks:
        waiting.put(task)
    done: dict[tuple[str, str], Result] = {}
    failures: list[BaseException] = []
    stop = threading.Event()

    def work() -> None:
        try:
            with _group(implementation) as group:
                while not stop.is_set():
                    arch, call = waiting.get_nowait()
                    done[arch, call] = _compile(group, arch, call, output)
        except queue.Empty:
            pass
        except BaseException as error:  # noqa: BLE001 - raised below, in the main thread
            failures.append(error)
            stop.set()

    workers = [threading.Thread(target=work, name=f"isa-{n}") for n in range(max(1, min(groups, len(tasks))))]
    for worker in workers:
        worker.start()
    try:
        while any(worker.is_alive() for worker in workers):
            workers[0].join(0.2) if workers[0].is_alive() else stop.wait(0.2)
            progress(len(done))
    finally:
        stop.set()
        for worker in workers:
            worker.join()
    if failures:
        raise failures[0]
    return [done[task] for task in tasks]


def _group(implementation: str) -> RankGroup:
    arch = devices.kind(_DEVICE).archs[0]
    device = devices.known(_DEVICE, arch, "fast", 1)
    return RankGroup(
        RANKS,
        setup="fixtures.worker:setup",
        options={
            "backend": device.backend, "device": _DEVICE, "arch": arch, "mode": "fast", "ranks_per_gpu": 1,
            "implementation": implementation,
        },
        preload=(*device.modules, package_of(implementation), "conformance.isa.compiling"),
    )  # fmt: skip


def _compile(group: RankGroup, arch: str, call: str, output: Path) -> Result:
    try:
        answer: Any = group.call("conformance.isa.compiling:compile_call", {"arch": arch, "call": call}, DEADLINE)[0]
    except (HarnessError, CaseFailed) as error:
        return Result(arch, call, error=str(error).strip().splitlines()[-1])
    if not answer["kernels"]:
        return Result(arch, call, error=answer["error"] or "no kernel was launched")
    for number, kernel in enumerate(answer["kernels"]):
        name = re.sub(r"\W+", "-", f"{call} {number} {kernel['figures']['kernel']}")
        path = output / arch / f"{name}.s"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(kernel["listing"], encoding="utf-8")
    return Result(arch, call, [kernel["figures"] for kernel in answer["kernels"]], list(answer["broken"]))
