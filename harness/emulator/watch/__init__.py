"""The watched modes: what the emulated device can check or record while it executes a kernel.

    driver = emulator.activate(mode="check")                       # or weak, trace, race
    kernel[grid](tensor, ...)

``fast``    executes, and counts the executed instructions
``check``   raises for errors that a GPU ignores or answers with wrong numbers: red zones, undefined values, missing
waits
``weak``    acts as an adversary of the gfx942 memory model: stores stay in caches, loads hit old lines, as LLVM allows
``trace``   records a timeline and an access log, for Perfetto
``race``    reports two accesses that no happens-before orders

A mode is a ``Watch``. It instruments the steps of a program while the program is decoded, and the scheduler notifies it
of events of wavefronts. With a ``Choices`` it also makes the decisions that are open: which wavefront runs next, how
old a cached line is. ``steps`` is a watch without a mode, with which a test stops a rank inside a kernel.
``harness.emulator.driver.ranks`` runs the kernels of several ranks under one scheduler and one ``Watch``.
"""

from harness.emulator.watch.base import Watch
from harness.emulator.watch.choices import Choices, Drawn, Lazy, Seeded
from harness.emulator.watch.modes import MODES, make

__all__ = ["MODES", "Choices", "Drawn", "Lazy", "Seeded", "Watch", "make"]
