"""Triton's driver of the emulated machine: the emulator, with torch's current GPU as its device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from harness import emulator
from harness.emulated_machine import torch_cuda
from harness.emulated_machine.hip import memory


class MachineDriver(emulator.EmulatedDriver):
    """The emulator for tensors on ``cuda:N``, and for host memory that HIP knows."""

    def __init__(self, arch: str, watch: Any = None) -> None:
        super().__init__(arch, watch)
        self.add_memory_source(_Memory())

    def enqueue(self, execute: Callable[[], None]) -> None:
        """Execute a launch, or record it in the graph that is being captured: each replay executes it."""
        if torch_cuda.is_capturing():
            torch_cuda.record(execute)
        else:
            execute()

    def check_tensor(self, tensor: torch.Tensor, name: str) -> None:
        if tensor.is_cuda:
            torch_cuda.check_memory(tensor)
        elif tensor.numel() and not tensor.is_pinned() and memory.obstacle(tensor.data_ptr(), tensor.nbytes):
            raise ValueError(
                f"Pointer argument {name} cannot be accessed from Triton (cpu tensor?): expected a tensor on cuda:N, or"
                f" pinned memory, got a tensor on {tensor.device}"
            )

    def block_at(self, address: int) -> tuple[int, int] | None:
        return torch_cuda.block_at(address)

    def get_current_device(self) -> int:
        return torch.cuda.current_device()

    def set_current_device(self, device: int) -> None:
        torch.cuda.set_device(device)

    def get_current_stream(self, device: int | None = None) -> int:
        return int(torch.cuda.current_stream(device).cuda_stream)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", torch.cuda.current_device())

    def get_device_interface(self) -> Any:
        return torch.cuda


class _Memory:
    """Memory of HIP, and that of other ranks, without torch's segments: their allocations are accessible one by
    one."""

    def generation(self) -> int:
        return memory.generation()

    def regions(self) -> list[memory.Region]:
        segments = {address for address, _ in torch_cuda.segments_of_torch()}
        return [region for region in memory.regions() if region.address not in segments]


def _refuse_profiler() -> None:
    """Make the functions of ``triton.testing`` that time with Proton raise: it needs the profiler of a GPU."""
    from triton import testing

    for name in ("do_bench_proton", "do_bench_cudagraph_proton"):
        if hasattr(testing, name):  # not in Triton 3.6

            def refusing(*_: Any, name: str = name, **__: Any) -> Any:
                raise NotImplementedError(
                    f"triton.testing.{name} is not available on the emulated machine, which has no profiler of a GPU;"
                    " docs/emulated-machine.md lists what is: use triton.testing.do_bench"
                )

            setattr(testing, name, refusing)


def activate(arch: str) -> emulator.EmulatedDriver:
    """Make the machine's driver Triton's active driver, with the mode that ``watching`` has set."""
    if torch.version.hip:
        _refuse_profiler()
    return emulator.activate(arch, kind=MachineDriver if torch.version.hip else None)
