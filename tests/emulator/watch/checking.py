"""Helpers that run listings in mode ``check``, and return the undefined bits of single instructions."""

from __future__ import annotations

import ctypes

import numpy as np

from harness.emulator.driver import checked
from harness.emulator.driver.schedule import Scheduler
from harness.emulator.execution.allocations import Allocations
from harness.emulator.execution.launch import Launch
from harness.emulator.listing.parser import parse
from harness.emulator.program.decode import decode
from harness.emulator.watch.check import Check
from harness.emulator.wavefront.state import EXEC, LANES, Wavefronts
from tests.emulator.single import listing

ALL = (1 << 64) - 1


class Memory:
    """Aligned zeroed bytes that a listing can access: ``s[4:5]`` points to them after ``prologue``."""

    def __init__(self, size: int = 4096) -> None:
        self._raw = np.zeros(size + 256, np.uint8)
        self.address = -(-self._raw.ctypes.data // 256) * 256
        start = self.address - self._raw.ctypes.data
        self.bytes = self._raw[start : start + size]
        self.words = self.bytes.view(np.uint32)

    def prologue(self) -> list[str]:
        low, high = self.address & 0xFFFFFFFF, self.address >> 32
        return [f"s_mov_b32 s4, {low:#x}", f"s_mov_b32 s5, {high:#x}"]


def run(
    *lines: str, memory: Memory | None = None, groups=1, waves=1, lds=0, arch="gfx942", private=0, watch=None, **options
) -> Launch:
    """Run a whole listing in mode ``check``, with ``options`` of the mode; raises the fault that it raises."""
    watch = watch or Check(**{"wait_states": False, **options})  # hand-written code ignores them
    allocations = Allocations(watch.red_zones)
    code = [*memory.prologue(), *lines] if memory is not None else list(lines)
    known = [(memory.address, memory.bytes.nbytes, "memory")] if memory is not None else []
    program = checked.decode(parse(listing(*code, arch=arch, private=private)), watch)
    launch = Launch(program, (groups, 1, 1), waves, lds, np.zeros(8, np.uint8), allocations, known)
    translation = None if watch.closed else program.heat.find(launch)
    if translation is None:
        Scheduler([[launch]], watch, watch.closed).run()
    else:
        checked.CheckedScheduler.under(watch, launch, translation, None).run()
    return launch


def at(address: int) -> int:
    """Return the dword at ``address``."""
    return ctypes.c_uint32.from_address(address).value


class Probe:
    """One wavefront before an instruction: values and undefined bits of its registers, to be filled in.

    ``v``, ``undefined_v`` uint32[64 registers, 64]; ``s``, ``undefined_s`` uint32[128]; ``scc``, ``undefined_scc``.
    Everything is defined at first.
    """

    def __init__(self, line: str, exec_: int = ALL, arch: str = "gfx942") -> None:
        self._watch = Check(strict_alignment=False)
        self._program = decode(listing(line, arch=arch), watch=self._watch)
        self.v, self.undefined_v = np.zeros((64, LANES), np.uint32), np.zeros((64, LANES), np.uint32)
        self.s, self.undefined_s = np.zeros(128, np.uint32), np.zeros(128, np.uint32)
        self.scc = self.undefined_scc = False
        self._exec = exec_

    def run(self) -> Wavefronts:
        """Execute the instruction; the result's ``shadow.bits`` has the undefined bits."""
        launch = Launch(self._program, (1, 1, 1), 1, 0, np.zeros(8, np.uint8), Allocations())
        self._watch.start(launch)
        chunk = launch.start(0, 1)
        self._watch.started(chunk)
        wf, shadow = chunk.wavefronts, chunk.wavefronts.shadow
        for target, vector, scalar, scc in (
            (wf, self.v, self.s, self.scc),
            (shadow.bits, self.undefined_v, self.undefined_s, self.undefined_scc),
        ):
            for register in range(64):
                target.v[register >> 1, 0, :, register & 1] = vector[register]
            target.s[0] = scalar
            target.scc[:] = scc
        wf.s[0, EXEC], wf.s[0, EXEC + 1] = self._exec & 0xFFFFFFFF, self._exec >> 32
        wf.refresh_exec()
        shadow.dirty = (1 << 641) - 1
        with np.errstate(all="ignore"):
            for block in self._program.blocks:
                for segment in block.segments:
                    for step in segment.steps:
                        step(wf)
        return wf


def vector(wf: Wavefronts, register: int) -> np.ndarray:
    """Return uint32[64], the probe's vector register or its undefined bits."""
    return wf.v[register >> 1, 0, :, register & 1]
