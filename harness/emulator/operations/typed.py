"""Typed buffer accesses: ``buffer_load_format_*``, ``buffer_store_format_*``, ``tbuffer_*``.

Source: AMD "CDNA3 ISA", vector memory. ``buffer_*_format_*`` take format and selection of components from the
descriptor, ``tbuffer_*`` the format from the instruction, and all components as they are. A component that the format
lacks is 0, the fourth one 1. An element that is not wholly in range is not accessed; a load of it returns 0. ``d16``
forms have two components of 16 bits in a register. ``operations.formats`` converts.
"""

from __future__ import annotations

import re

import numpy as np

from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.native import memory as native
from harness.emulator.operations import formats
from harness.emulator.operations.access import LOAD, STORE, Effect, FormatAccess
from harness.emulator.operations.addressing import address_form
from harness.emulator.operations.table import instruction

_NAME = re.compile(r"t?buffer_(load|store)_format_(d16_)?(hi_)?([xyzw]+)")
_FORMS = ("x", "xy", "xyz", "xyzw", "d16_x", "d16_xy", "d16_xyz", "d16_xyzw")


@instruction(
    " ".join(f"{space}_{kind}_format_{form}" for space in ("buffer", "tbuffer") for kind in (LOAD, STORE)
             for form in _FORMS) + " buffer_load_format_d16_hi_x buffer_store_format_d16_hi_x",
    klass="vmem",
)  # fmt: skip
def typed(instruction, context):
    if instruction.modifiers.keys() & {"lds", "tfe"}:
        raise UnimplementedInstruction(f"{instruction.mnemonic} with lds or tfe is not implemented")
    match = _NAME.fullmatch(instruction.mnemonic)
    assert match is not None  # sanity check
    kind, halves, components = match[1], match[2] is not None, len(match[4])
    half = (2 if match[3] else 1) if halves and components == 1 else 0
    (data,), address = address_form(instruction, context, data_first=True)
    fixed = number_of(instruction.modifiers.get("format", "1")) if instruction.mnemonic.startswith("t") else -1
    if fixed >= 0:
        formats.check(fixed & 15, fixed >> 4, components, kind == STORE)
    # Launch records count the bytes of the element, or, where only the descriptor names its format, those in registers.
    site = context.access(instruction, kind, formats.size_of(fixed & 15) if fixed >= 0 else 4 * components)
    access = FormatAccess(instruction, site, kind, address, data, components, halves, half, fixed)
    return Effect(access, _loading(access) if kind == LOAD else _storing(access))


def number_of(text: str) -> int:
    """Return DATA_FORMAT | NUM_FORMAT << 4 of the modifier ``format``: a number, or one or two names in brackets."""
    if not text.startswith("["):
        number = int(text, 0)
        if number not in range(128):
            raise UnimplementedInstruction(f"format:{text}: expected a number below 128")
        return number
    data, kind = 1, 0
    for name in text.strip("[]").split(","):
        start, _, rest = name.strip().partition("_FORMAT_")
        if start == "BUF_DATA" and rest in formats.DATA_NAMES:
            data = formats.DATA_NAMES.index(rest)
        elif start == "BUF_NUM" and rest in formats.NUMBER_NAMES:
            kind = formats.NUMBER_NAMES.index(rest)
        else:
            raise UnimplementedInstruction(f"format:{text}: {name.strip()} is not a format of gfx9")
    return data | kind << 4


def _loading(access: FormatAccess):
    def step(wf):
        for rows, part, taking, registers, counts in _parts(access, wf):
            lane = native.load(
                registers, wf.s, taking, native.GLOBAL, 0, -1, -1, 0, 2, part.size, False, 0, *wf.chunk.table, counts
            )
            if lane >= 0:
                _fault(access, wf, registers, lane, part.size)
            words = part.loaded(_words(registers, 2, -(-part.size // 4)))
            words[~taking] = 0
            lanes = wf.exec_mask & rows[:, None]
            for i in range(part.words):
                column, value = wf.v[(access.data + i) >> 1][:, :, (access.data + i) & 1], words[..., i]
                if access.half:
                    shift = np.uint32(16 * (access.half - 1))
                    value = column & ~(np.uint32(0xFFFF) << shift) | value << shift
                np.copyto(column, value, where=lanes)

    return step


def _storing(access: FormatAccess):
    def step(wf):
        for _, part, taking, registers, counts in _parts(access, wf):
            words = _words(wf.v, access.data, part.words)
            element = part.element(words >> np.uint32(16) if access.half == 2 else words)
            for i in range(element.shape[-1]):
                registers[(2 + i) >> 1][:, :, i & 1] = element[..., i]
            lane = native.store(
                registers, wf.s, taking, native.GLOBAL, 0, -1, -1, 0, 2, part.size, False, *wf.chunk.table, counts
            )
            if lane >= 0:
                _fault(access, wf, registers, lane, part.size)

    return step


def _parts(access: FormatAccess, wf):
    """Yield for each format: wavefronts, access, accessing lanes, temporary registers (address, element) and counts."""
    counts = wf.chunk.count(access.site, wf)
    for rows, part in access.parts(wf):
        addresses, taking = part.addresses(wf)
        registers = np.zeros((3, *wf.exec_mask.shape, 2), np.uint32)
        registers[0] = addresses.view(np.uint32).reshape(registers[0].shape)
        yield rows, part, np.ascontiguousarray(taking & rows[:, None]), registers, counts


def _words(registers: np.ndarray, first: int, count: int) -> np.ndarray:
    return np.stack([registers[r >> 1][:, :, r & 1] for r in range(first, first + count)], axis=-1)


def _fault(access: FormatAccess, wf, registers: np.ndarray, lane: int, size: int) -> None:
    address = int(registers[0].reshape(-1).view(np.uint64)[lane])
    wf.chunk.memory_fault(wf, access.instruction, lane, address, size)
