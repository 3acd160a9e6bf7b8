"""What a memory instruction does, as data: the seam between the ops tables and the watched modes.

A builder in ``memory``, ``atomics`` or ``lds`` returns an ``Effect``: the access, and the step that executes it on
coherent memory. ``fast`` runs the step; a watched mode sees the access and runs the step, or puts its own in its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from harness.emulator import native
from harness.emulator.listing import Instruction
from harness.emulator.ops.table import Step
from harness.emulator.state import LANES, Wavefronts

LOAD, STORE, ATOMIC = "load", "store", "atomic"


class AddressForm(NamedTuple):
    """How a global or buffer instruction forms its lanes' addresses, as ``native`` takes it.

    ``form`` is ``native.GLOBAL``, ``GLOBAL_SADDR`` or ``BUFFER``; ``areg`` the vector register (pair) with the
    lane's part or -1; ``sreg`` the scalar base or descriptor; ``soffset`` a scalar offset register or -1;
    ``offset`` in bytes.
    """

    form: int
    areg: int
    sreg: int
    soffset: int
    offset: int


@dataclass(frozen=True)
class GlobalAccess:
    """A ``global_*``, ``buffer_*`` access. ``kind`` is ``load``, ``store`` or ``atomic``, ``size`` in bytes a lane.

    ``site``      index of the access site in the program
    ``data``      first data register: a load's destination, a store's source, an atomic's operand
    ``target``    where an atomic leaves the old value, or -1
    ``operation`` an atomic's ``native`` operation; ``signed`` and ``half`` (0 whole register, 1 low half, 2 high half)
                  are those of an access narrower than a register
    """

    instruction: Instruction
    site: int
    kind: str
    size: int
    address: AddressForm
    data: int
    target: int = -1
    operation: int = -1
    signed: bool = False
    half: int = 0

    def addresses(self, wf: Wavefronts) -> tuple[np.ndarray, np.ndarray]:
        """Each lane's address, uint64[W, 64], and which lanes access memory: active, and inside a buffer's range."""
        out = np.zeros((len(wf), LANES), np.uint64)
        inside = np.zeros((len(wf), LANES), np.bool_)
        native.addresses(wf.v, wf.s, *self.address, self.size, out, inside)
        return out, inside & wf.exec_mask

    @property
    def scope(self) -> str:
        """How far the access itself reaches: ``wave``, ``workgroup``, ``agent`` or ``system``.

        LLVM AMDGPUUsage, "Memory Model gfx942": sc1:sc0 on loads and stores; on read-modify-writes sc0 asks for the old
        value, and without sc1 they act at agent scope.
        """
        sc0, sc1 = ("sc0" in self.instruction.modifiers), ("sc1" in self.instruction.modifiers)
        if self.kind == ATOMIC:
            return "system" if sc1 else "agent"
        return ("system" if sc0 else "agent") if sc1 else ("workgroup" if sc0 else "wave")


@dataclass(frozen=True)
class LdsAccess:
    """A ``ds_*`` access to the local data share: ``parts`` are (offset in bytes, data register) by address ``areg``.

    ``kind``, ``size``, ``target``, ``operation``, ``signed`` and ``half`` as in ``GlobalAccess``; ``size`` is that
    of one part.
    """

    instruction: Instruction
    kind: str
    size: int
    areg: int
    parts: tuple[tuple[int, int], ...]
    target: int = -1
    operation: int = -1
    signed: bool = False
    half: int = 0


@dataclass(frozen=True)
class ScalarAccess:
    """An ``s_load_*``: ``words`` dwords to scalar register ``target``."""

    instruction: Instruction
    target: int
    words: int


@dataclass(frozen=True)
class Effect:
    """What a builder of a memory instruction returns: see the module docstring."""

    access: GlobalAccess | LdsAccess | ScalarAccess
    step: Step
