"""Triton driver that compiles for a GPU that this machine does not have; launches load and enqueue nothing.

    with target("cuda", 90) as driver:
        kernel[(1,)](...)                 # compiles for sm_90; CPU tensors suffice
    driver.compiled                       # every kernel that was launched, with its code

Triton's hooks fire as on a GPU, so recorders of launches work too. Results are not computed.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime import driver as triton_driver

_LANES = {"cuda": 32, "hip": 64}


_numbers = itertools.count(1)
"""Handles of kernels. Triton keeps a kernel from one driver of a target to the next, so no two may have the same."""


class Module(int):
    """A kernel that no GPU loaded, so that no driver need unload it: Triton unloads through the driver active then."""


class CompileOnly(DriverBase):  # type: ignore[misc]  # Triton ships no types
    """The driver. ``compiled`` holds Triton's metadata of each kernel that was launched, by hash."""

    def __init__(self, backend: str, arch: Any) -> None:
        self._target = GPUTarget(backend, arch, _LANES[backend])
        self.compiled: dict[str, Any] = {}
        self.utils = _Utils()

    def launcher_cls(self, src: Any, metadata: Any) -> Any:
        def launch(
            x: int,
            y: int,
            z: int,
            stream: int,
            function: int,
            packed: Any,
            launch: Any,
            enter: Any,
            leave: Any,
            *arguments: Any,
        ) -> None:
            self.compiled[metadata.hash] = metadata
            if enter is not None:
                enter(launch)
            if leave is not None:
                leave(launch)

        return launch

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> Any:
        # JITFunction keeps its kernels by device: one device per target.
        return f"{self._target.backend}:{self._target.arch}"

    def get_current_stream(self, device: Any = None) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        return torch.cpu

    def get_benchmarker(self) -> Any:
        raise NotImplementedError("this driver only compiles: it runs no kernel")

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        raise NotImplementedError("this driver only compiles: it runs no kernel")

    def clear_cache(self, cache: torch.Tensor) -> None:
        raise NotImplementedError("this driver only compiles: it runs no kernel")


class _Utils:
    def load_binary(self, name: str, kernel: bytes, shared: int, device: Any) -> tuple[Module, int, int, int, int]:
        number = next(_numbers)
        return Module(number), number, 0, 0, 1024

    def unload_module(self, module: int) -> None:
        pass

    def get_device_properties(self, device: Any) -> dict[str, Any]:
        return {"max_shared_mem": 227 << 10, "multiprocessor_count": 132, "warpSize": 32}


@contextmanager
def target(backend: str, arch: Any) -> Iterator[CompileOnly]:
    """Make Triton compile for ``arch`` of ``backend`` during the body; restore its driver afterwards.

    Functions whose kernels were launched in the body should be collected at its end: Triton unloads their kernels
    through the driver.
    """
    before, driver = triton_driver._active, CompileOnly(backend, arch)
    triton_driver.set_active(driver)
    try:
        yield driver
    finally:
        gc.collect()
        triton_driver._active = before
