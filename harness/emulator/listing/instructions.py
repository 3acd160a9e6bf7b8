"""Data structures of a parsed listing: instructions as written, and the kernel that they form."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from harness.isa.sources import Frame


@dataclass(frozen=True)
class Instruction:
    """One instruction as written: ``mnemonic operands modifiers``.

    ``modifiers`` maps a flag (``sc0``) to ``""`` and ``offset:16`` to ``"16"``. ``frames`` is the source position with
    its inline chain, innermost first.
    """

    index: int
    line: int
    text: str
    mnemonic: str
    operands: tuple[str, ...]
    modifiers: dict[str, str]
    frames: tuple[Frame, ...]

    @property
    def source(self) -> str:
        """The source position and its inline chain: ``file:line:col @ file:line:col``."""
        return " @ ".join(map(str, self.frames)) or "(no source line)"


@dataclass
class Listing:
    """One kernel: see ``parser``. ``entry`` is the first instruction when the hardware preloads kernargs.

    The functions that the kernel calls follow its own code; their names are among the labels. ``constants`` (uint8) is
    the constant data that the code refers to.
    """

    name: str
    arch: str
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    directives: dict[str, int] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    entry: int = 0
    constants: np.ndarray = field(default_factory=lambda: np.zeros(0, np.uint8))
