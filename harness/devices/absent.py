"""The device of one rank whose GPU is not there: its kernels are compiled, and nothing runs."""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import torch

from harness.devices import launches
from harness.isa.compile_only import CompileOnly


class Absent:
    """A device as ``fixtures.worker.Env`` takes it. Every ``machine_code``-th launch keeps its machine code (0: none
    does), and each launch of a kernel named in ``always``; the others keep what Triton compiled."""

    name = backend = "gpu"
    torch_device = torch.device("cpu")

    def __init__(self, driver: CompileOnly, machine_code: int, always: Container[str] = ()) -> None:
        self.lanes = driver.get_current_target().warp_size
        self._recorder = launches.install()
        self._machine_code = machine_code
        self._always = always
        self._seen = 0

    def synchronize(self) -> None:
        """Do nothing: no kernel runs."""

    def recorder(self, drain: Any) -> None:
        """Do nothing: nothing is counted."""

    def drain_launches(self) -> list[Any]:
        kept: list[Any] = []
        for launch in self._recorder.drain():
            self._seen += 1
            every = 1 if launch.kernel in self._always else self._machine_code
            disassemble = self._machine_code and self._seen % every == 0
            kept.append(launch if disassemble else _Listed(launch))
        return kept


class _Listed:
    """A launch of which only what Triton compiled is looked at."""

    def __init__(self, launch: launches.GpuLaunch) -> None:
        self.hash, self.kernel, self.listing = launch.hash, launch.kernel, launch.listing
        self.accesses = ()
