"""The emulated device of a process that inherits it (``harness.emulated_device``), made when it first uses Triton."""

from __future__ import annotations

import os
import sys
from typing import Any

from harness.emulated_device import VARIABLE, Inherited
from harness.emulated_machine.hook import AroundImport


def install() -> None:
    """Make the device of VARIABLE Triton's default driver, as soon as Triton is imported."""
    device = Inherited.parse(os.environ[VARIABLE])
    finder = AroundImport({}, {"triton.runtime.driver": lambda module: _use(module, device)})
    sys.meta_path.insert(0, finder)


def _use(triton_driver: Any, device: Inherited) -> None:
    def create() -> Any:
        from harness import emulator

        return emulator.activate(device.arch, device.mode, device.seed)

    def is_active() -> bool:
        """Return whether the emulated device is Triton's device; programs call it before they use the GPU."""
        from triton.runtime import driver

        from harness import emulator

        return isinstance(driver.active, emulator.EmulatedDriver)

    triton_driver._create_driver = create
    if "amd" in triton_driver.backends:
        triton_driver.backends["amd"].driver.is_active = staticmethod(is_active)
