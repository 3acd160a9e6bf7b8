"""Facts about compare-and-swaps for mode ``race``: loads that guess their values, and the bytes that they leave alone.

LLVM expands a read-modify-write that the hardware lacks into a plain load and a loop around a compare-and-swap. For an
addition to an element of 2 bytes the loop swaps the 4 bytes around it; the other half is put back as it was read:

    v_and_or_b32 v6, v7, v14, v6                             ; new = old & mask | shifted element
    global_atomic_cmpswap v6, v[8:9], v[6:7], off sc0        ; compares with old, v7

The program does not access the half under the mask: a store by another thread there makes the swap fail, and the loop
repeats it. Source: LLVM, "Atomic Instructions and Concurrency Guide", ExpandPartwordAtomics. A compare-and-swap of 2
bytes is expanded otherwise, and counts as an access to all 4.
"""

from __future__ import annotations

import numpy as np

from harness.emulator.faults import UnimplementedInstruction
from harness.emulator.listing.instructions import Instruction, Listing
from harness.emulator.operations.access import GlobalAccess
from harness.emulator.watch import registers
from harness.emulator.wavefront import operands
from harness.emulator.wavefront.operands import Operand
from harness.emulator.wavefront.state import Wavefronts


class Swaps:
    """The compare-and-swaps of a program. ``guesses``: the indices of the loads that only guess a value for one."""

    def __init__(self, listing: Listing) -> None:
        self.guesses, self._expanded = _expanded(listing)
        self._listing = listing
        self._masks: dict[int, Operand | None] = {}

    def kept(self, swap: Instruction, data: int) -> Operand | None:
        """Return the mask of the bits that a compare-and-swap of 4 bytes puts back.

        None for one that puts back none, and for one of the program's own, which may depend on all its bytes.
        ``data``: the register of the new value; that of the compared one follows.
        """
        if swap.index not in self._masks:
            narrow = swap.index in self._expanded and swap.mnemonic.endswith("_atomic_cmpswap")
            self._masks[swap.index] = _kept(self._listing, swap.index, data) if narrow else None
        return self._masks[swap.index]


def accessed(
    wf: Wavefronts, access: GlobalAccess, lanes: np.ndarray, mask: Operand
) -> list[tuple[int, int, np.ndarray]]:
    """Return the bytes that a compare-and-swap with a mask accesses: offset, size, and which of ``lanes``, bool[n]."""
    new, compared = registers.gather(wf, access, lanes)
    assert compared is not None  # sanity check
    kept = _value(wf, mask, lanes)[:, None].view(np.uint8)
    used = (kept != 0xFF) | (new[:, :4] != compared)
    first, past = used.argmax(1), 4 - used[:, ::-1].argmax(1)
    spans = {(a, b) for a, b, some in zip(first.tolist(), past.tolist(), used.any(1), strict=True) if some}
    return [(a, b - a, used.any(1) & (first == a) & (past == b)) for a, b in sorted(spans)]


def _expanded(listing: Listing) -> tuple[set[int], set[int]]:
    """Return the indices of loads that guess a value, and of the swaps that they do it for."""
    guesses: set[int] = set()
    expanded: set[int] = set()
    for swap in listing.instructions:
        if "_atomic_cmpswap" not in swap.mnemonic or not swap.frames:
            continue
        width = "_dwordx2" if swap.mnemonic.endswith("_x2") else "_dword"
        for load in reversed(listing.instructions[: swap.index]):
            alike = "_load_" in load.mnemonic and load.mnemonic.endswith(width) and load.frames == swap.frames
            if alike and load.index not in guesses:
                guesses.add(load.index)
                expanded.add(swap.index)
                break
    return guesses, expanded


def _kept(listing: Listing, swap: int, data: int) -> Operand | None:
    """Return the mask of ``new = old & mask | element``, in the swap's basic block; none of the three is written
    between."""
    accumulators, targets = listing.directives.get("accum_offset", 0), set(listing.labels.values())
    written: set[tuple[str, int]] = set()
    for at in range(swap - 1, -1, -1):
        code = listing.instructions[at]
        if at + 1 in targets or code.mnemonic.startswith(("s_cbranch", "s_branch", "s_setpc", "s_swappc")):
            return None
        if code.mnemonic == "v_and_or_b32" and code.operands[:2] == (f"v{data}", f"v{data + 1}"):
            mask = operands.parse(code.operands[2], accumulators)
            values = {("v", data), ("v", data + 1), (mask.space, mask.register)}
            return mask if mask.space in ("v", "s") and not values & written else None
        for text in code.operands[:2]:  # a second result follows the first one
            written |= _registers(text, accumulators)
    return None


def _registers(text: str, accumulators: int) -> set[tuple[str, int]]:
    try:
        operand = operands.parse(text, accumulators)
    except UnimplementedInstruction:  # a counter of s_waitcnt
        return set()
    return {(operand.space, operand.register + i) for i in range(operand.count)}


def _value(wf: Wavefronts, mask: Operand, lanes: np.ndarray) -> np.ndarray:
    """Return the mask of each lane, uint32[n]."""
    if mask.space == "v":
        words: np.ndarray = wf.v[mask.register >> 1][0, lanes, mask.register & 1]
        return words
    return np.full(len(lanes), wf.s[0, mask.register], np.uint32)
