"""Triton's amd backend reports itself active while the emulated device is Triton's device.

Programs call ``triton.backends.backends["amd"].driver.is_active()`` to learn whether they run on an AMD GPU.
"""

from __future__ import annotations

from collections.abc import Callable

from triton.backends import backends


def report_active(emulated: Callable[[], bool]) -> None:
    """Make ``is_active`` of Triton's amd driver return True while ``emulated()`` is True, and else its own answer.

    Later calls change nothing. A Triton without the amd backend is left as it is.
    """
    backend = backends.get("amd")
    if backend is None or hasattr(backend.driver.is_active, "reports_emulation"):
        return
    own = backend.driver.is_active

    def is_active() -> bool:
        return emulated() or own()

    is_active.reports_emulation = True  # type: ignore[attr-defined]
    backend.driver.is_active = staticmethod(is_active)
