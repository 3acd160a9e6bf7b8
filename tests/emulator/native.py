"""Execute a program in native code, on given registers, and compare every effect with the interpreter's."""

from __future__ import annotations

import numpy as np

from harness.emulator.driver.translated import TranslatedScheduler
from harness.emulator.execution.launch import Launch
from harness.emulator.native import execute, record
from harness.emulator.program.compiled.translation import Translation, Translator
from harness.emulator.program.decode import Program
from harness.emulator.wavefront.state import LANES, Wavefronts

_KEPT = 32
_translations: dict[int, tuple[Program, Translation]] = {}
"""The last ``_KEPT`` translations, which have memory for the wavefronts of a launch, by the identity of the program."""


def translation_of(program: Program) -> Translation:
    """Return the program's translation."""
    if id(program) not in _translations:
        if len(_translations) == _KEPT:
            del _translations[next(iter(_translations))]
        _translations[id(program)] = program, Translator(program).finish()
        _translations[id(program)][1].use_runs()
    return _translations[id(program)][1]


class Native(TranslatedScheduler):
    """Runs one work-group from the registers ``start``; a wavefront ends with the code.

    ``interpreted``: the instructions that native code left to the interpreter.
    """

    def __init__(self, launch: Launch, start: Wavefronts) -> None:
        super().__init__(launch, translation_of(launch.program))
        self.start = start
        self.interpreted: list[str] = []

    def _grow(self) -> bool:
        grown = super()._grow()
        (slot,) = self.arena.slots
        self.slot = slot
        slot.records[...] = 0
        slot.share[...] = 0
        for i, memory in enumerate(slot.records):
            header = memory[: record.VECTORS].view(np.int64)
            header[record.CONTEXT >> 3], header[record.SHARE >> 3] = (
                self.arena.context.ctypes.data,
                slot.share.ctypes.data,
            )
            header[record.NUMBER >> 3] = i
            header[record.PRIVATE >> 3] = memory.ctypes.data + self.arena.private
            memory[:512].view(np.uint32)[:] = self.start.s[i]
            memory[record.SCC] = self.start.scc[i]
            self._vectors(memory)[...] = self.start.v[:, i]
        self.arena.tables[2, 0] = 0
        self.state_[[execute.NEXT, execute.USED]] = 1
        return grown

    def _vectors(self, memory: np.ndarray) -> np.ndarray:
        vectors = memory[record.VECTORS :][: self.arena.pairs * record.PAIR_BYTES]
        return vectors.view(np.uint32).reshape(-1, LANES, 2)

    def _interpret(self, number: int) -> None:
        ends = len(self.translation.places)
        for wave in self._waves(number):
            if wave.state == record.STOPPED and wave.position == ends:
                wave.header[record.STATE >> 3] = record.ENDED
            elif wave.state == record.STOPPED:
                self.interpreted.append(self.translation.places[wave.position].instruction.text)
        super()._interpret(number)

    def result(self) -> tuple[Wavefronts, np.ndarray]:
        """Return the registers and the data share at the end."""
        v, s, scc = (np.zeros_like(a) for a in (self.start.v, self.start.s, self.start.scc))
        for i, memory in enumerate(self.slot.records):
            s[i], scc[i] = memory[:512].view(np.uint32), memory[record.SCC]
            v[:, i] = self._vectors(memory)
        share = self.slot.share[: max(1, self.launch.lds_bytes)].copy()
        return Wavefronts(self.start.chunk, self.start.wave, v, s, scc), share


def differences(wanted: Wavefronts, got: Wavefronts) -> list[str]:
    """Return the registers that differ, with their first lane; the payloads of NaNs may."""
    lines = []
    for name in ("s", "scc"):
        a, b = getattr(wanted, name), getattr(got, name)
        lines += [f"{name}{list(i)}: {a[tuple(i)]:#x}, {b[tuple(i)]:#x}" for i in np.argwhere(a != b)[:4]]
    same = wanted.v == got.v
    if same.all():
        return lines  # the usual case: millions of registers need not be looked at as floats
    for kind in (np.float32, np.float64, np.float16):
        x, y = (w.v.view(kind) for w in (wanted, got))
        nan = np.isnan(x) & np.isnan(y)
        if kind == np.float64:
            nan = np.repeat(nan, 2, axis=-1)
        if kind == np.float16:  # both halves are equal, or NaN
            equal = (x.view(np.uint16) == y.view(np.uint16)) | nan
            nan = equal.reshape(*same.shape, 2).all(axis=-1)
        same |= nan
    for pair, wave, lane, half in np.argwhere(~same)[:4]:
        a, b = (w.v[pair, wave, lane, half] for w in (wanted, got))
        lines.append(f"v{2 * pair + half}, wavefront {wave}, lane {lane}: {a:#x}, {b:#x}")
    return lines
