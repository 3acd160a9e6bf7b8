"""Switching the machine on and off in this process; its children follow."""

from __future__ import annotations

import os

from harness.emulated_machine import hook
from harness.emulated_machine.settings import Settings
from harness.errors import UsageError

_before: dict[str, str | None] = {}


def activate(arch: str = "gfx942", gpus: int = 8, mode: str | None = None) -> Settings:
    """Make this process, and the Python processes that it starts from now on, a machine with ``gpus`` GPUs.

    Modules that are imported already are changed at once, others after their import; nothing is imported for it.
    ``mode`` is one of ``MODES``, with a seed if it takes one (``race:3``); None means ``fast``. A second call with the
    same settings does nothing. Call it before this process imports ``harness.devices`` or ``iris_under_test``: they
    read where the driver's files are when they are imported.

    UsageError, in one line, for an unknown arch or mode, for a number of GPUs that is not from 1 to 8, and in a process
    that is another emulated machine already.
    """
    wanted = Settings(arch, "fast" if mode is None else mode, gpus)
    known = hook.installed()
    if known == wanted:
        return wanted
    if known is not None:
        raise UsageError(
            f"this process is the emulated machine '{known}' already and cannot become '{wanted}': call deactivate()"
            " before torch or HIP is used, or start another process"
        )
    environment = wanted.environment(os.environ)
    changed = {name: value for name, value in environment.items() if os.environ.get(name) != value}
    before = {name: os.environ.get(name) for name in changed}  # first: install sets variables of its own
    hook.install(wanted)
    _before.update(before)
    os.environ.update(changed)
    return wanted


def active() -> Settings | None:
    """Return the settings of the machine that this process is; None if it is none."""
    return hook.installed()


def deactivate() -> None:
    """Undo ``activate``: Triton looks for a device again, and children run without the machine.

    RuntimeError once torch or the HIP library has become the machine's: their memory and tensors cannot be taken back.
    Without a machine this does nothing.
    """
    if hook.installed() is None:
        return
    hook.remove()
    for name, value in _before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    _before.clear()
