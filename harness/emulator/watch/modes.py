"""Names of the modes, and the watch class of each."""

from __future__ import annotations

import importlib
from typing import Any

from harness.emulator.watch.base import Watch
from harness.emulator.watch.choices import Choices, Seeded

# Imported on demand, so that an unused mode costs nothing.
_CLASSES = {
    "check": "harness.emulator.watch.check:Check",
    "weak": "harness.emulator.watch.weak:Weak",
    "trace": "harness.emulator.watch.trace:Trace",
    "race": "harness.emulator.watch.race:Race",
}
MODES = ("fast", *_CLASSES)


def make(mode: str, choices: Choices | int | None = None, **options: Any) -> Watch | None:
    """Return the watch of ``mode``, None for ``fast``; ``choices`` may be a seed.

    ``options`` are arguments of the mode's class. ``ValueError`` for an unknown mode, and for options or choices that
    the mode does not take.
    """
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode!r} of the emulated device; choose one of {', '.join(MODES)}")
    if isinstance(choices, int):
        choices = Seeded(choices)
    if mode == "fast":
        if choices is not None or options:
            raise ValueError(f"mode fast takes no choices or options; got choices={choices!r}, options={options}")
        return None
    module, _, name = _CLASSES[mode].partition(":")
    kind = getattr(importlib.import_module(module), name)
    try:
        watch: Watch = kind(choices, **options)
    except TypeError as error:
        raise ValueError(f"mode {mode} does not take the options {options}: {error}") from error
    return watch
