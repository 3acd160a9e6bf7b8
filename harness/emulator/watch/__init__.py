"""The watched modes: what beside executing a kernel the emulated device can do with it.

    driver = emulator.activate(mode="check")                       # or weak, trace, race
    kernel[grid](tensor, ...)

``fast``    executes, and counts what was executed
``check``   raises for what a GPU lets pass or answers with wrong numbers: red zones, undefined values, missing waits
``weak``    an adversary of the gfx942 memory model: stores stay in caches, loads hit old lines, as LLVM allows it
``trace``   keeps a timeline and an access log, for Perfetto
``race``    names two accesses that no happens-before orders

A mode is a ``Watch``. It instruments the steps of a program while it is decoded, and the scheduler tells it what
happens to wavefronts. With a ``Choices`` it also decides what is left open: which wavefront goes next, how old a cached
line is. ``harness.emulator.together`` runs the kernels of several ranks under one scheduler and one ``Watch``.
"""

from harness.emulator.watch.base import Watch
from harness.emulator.watch.choices import Choices, Drawn, Seeded
from harness.emulator.watch.modes import MODES, make

__all__ = ["MODES", "Choices", "Drawn", "Seeded", "Watch", "make"]
