"""Addresses of ``global_*`` and ``buffer_*`` instructions: their syntax, and the registers that hold them.

Source: AMD "CDNA3 ISA", chapters on vector memory and flat memory. ``global_*``: a 64-bit lane address, or a scalar
base plus an unsigned 32-bit lane offset; the instruction's offset has 13 bits and a sign. ``buffer_*``: a descriptor of
four scalars, a 12-bit offset, a scalar offset, and with ``offen`` and ``idxen`` a lane's offset and index. An access
may have any alignment and cross pages (LLVM AMDGPUUsage: gfx942 runs in unaligned access mode), except atomics, which
must be aligned to their size. A scalar load ignores the two low bits of its address.
"""

from __future__ import annotations

import numpy as np

from harness.emulator.native import memory as native
from harness.emulator.operations.access import AddressForm
from harness.emulator.wavefront import operands
from harness.emulator.wavefront.state import M0


def address_form(instruction, context, data_first: bool):
    """Return the data registers and the ``AddressForm`` of a global or buffer instruction.

    ``global_*``: address pair and ``off``, or a lane offset and a scalar base; ``data_first``: the data operand
    precedes the address (atomics that return have data on both sides). ``buffer_*``: data, lane index and offset or
    ``off``, descriptor, scalar offset.
    """
    parsed = [operands.parse(text, context.accum_offset) for text in instruction.operands]
    offset = int(instruction.modifiers.get("offset", "0"), 0)
    if instruction.mnemonic.startswith(("buffer", "tbuffer")):
        *data, lane_part, descriptor, outer = parsed
        form = native.BUFFER
        if "idxen" in instruction.modifiers:
            form = native.BUFFER_INDEX_OFFSET if "offen" in instruction.modifiers else native.BUFFER_INDEX
        areg = lane_part.register if lane_part.space == "v" else -1
        if outer.space == "const":
            offset, soffset = offset + int(outer.value), -1
        elif outer.space == "s":
            soffset = M0 if outer.text == "m0" else outer.register
        else:
            soffset = -1
        return [d.register for d in data], AddressForm(form, areg, descriptor.register, soffset, offset)
    base = parsed[-1]
    if data_first:
        *before, lane, _ = parsed
        data = [d.register for d in before]
    else:
        lane, *after, _ = parsed
        data = [d.register for d in after]
    if base.space == "off":
        return data, AddressForm(native.GLOBAL, lane.register, -1, -1, offset)
    return data, AddressForm(native.GLOBAL_SADDR, lane.register, base.register, -1, offset)


def lane_address(wf, address, lane: int) -> int:
    """Return the address that flat lane ``lane`` formed, for fault messages."""
    out, inside = np.zeros((len(wf), 64), np.uint64), np.zeros((len(wf), 64), np.bool_)
    native.addresses(wf.v, wf.s, *address, 1, out, inside)
    return int(out.reshape(-1)[lane])
