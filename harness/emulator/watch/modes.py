"""Mode names, and the watch that each stands for."""

from __future__ import annotations

import importlib
from typing import Any

from harness.emulator.watch.base import Watch
from harness.emulator.watch.choices import Choices, Seeded

# Imported when asked for: a mode costs nothing where it is not used.
_CLASSES = {
    "check": "harness.emulator.watch.check:Check",
    "weak": "harness.emulator.watch.weak:Weak",
    "trace": "harness.emulator.watch.timeline:Trace",
    "race": "harness.emulator.watch.race:Race",
}
MODES = ("fast", *_CLASSES)


def make(mode: str, choices: Choices | int | None = None, **options: Any) -> Watch | None:
    """The watch of ``mode``, None for ``fast``; ``choices`` may be a seed.

    ``options`` are those of the mode's class. ``ValueError`` for a mode that does not exist, and for options or choices
    that it does not take.
    """
    if mode not in MODES:
        raise ValueError(f"the emulated device has no mode {mode!r}; choose one of {', '.join(MODES)}")
    if isinstance(choices, int):
        choices = Seeded(choices)
    if mode == "fast":
        if choices is not None or options:
            raise ValueError(f"mode fast takes no seed, choices or options, got {choices!r} {options}")
        return None
    module, _, name = _CLASSES[mode].partition(":")
    kind = getattr(importlib.import_module(module), name)
    try:
        watch: Watch = kind(choices, **options)
    except TypeError as error:
        raise ValueError(f"mode {mode} does not take the options {options}: {error}") from error
    return watch
