"""Stand-in for a driver, which Triton uses after the emulated device was deactivated.

Triton unloads a kernel when Python collects it, through the driver that is active then. A kernel of the emulated device
may live longer than the device was active; its module must not reach another driver, for which it is not a module, and
needs none.
"""

from __future__ import annotations

from typing import Any

from triton.runtime import driver as triton_driver

from harness.isa.compile_only import Module


class Inactive:
    """Triton's default driver, which is looked up at its first use."""

    @property
    def utils(self) -> Any:
        return _Utils()

    def get_current_target(self) -> Any:
        """Return the default driver's target; None if there is no GPU, as ``current_target`` of Triton has it."""
        try:
            default = triton_driver.default
        except RuntimeError:
            return None
        return default.get_current_target()

    def __getattr__(self, name: str) -> Any:
        return getattr(triton_driver.default, name)


class _Utils:
    def unload_module(self, module: object) -> None:
        if not isinstance(module, Module):
            triton_driver.default.utils.unload_module(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(triton_driver.default.utils, name)
