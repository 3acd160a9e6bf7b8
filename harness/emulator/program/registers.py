"""Registers that an instruction names, checked while a listing is decoded: the compiled functions check no bounds.

LLVM's assembler would refuse such an instruction, or the hardware would access registers that the wavefront does not
have. Listings that were changed by hand or by ``driver.rewrite`` never passed through an assembler.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from harness.emulator.faults import ListingError
from harness.emulator.listing.instructions import Instruction, Listing
from harness.emulator.listing.limits import SGPRS
from harness.emulator.native import memory as native
from harness.emulator.operations.access import (
    ATOMIC,
    LOAD,
    Access,
    CopyAccess,
    FormatAccess,
    GlobalAccess,
    LdsAccess,
    ScalarAccess,
    ScratchAccess,
)
from harness.emulator.wavefront import operands

_NAMED = re.compile(r"(?<![\w.\[])([vsa])(?:(\d+)|\[(\d+):(\d+)\])(?![\w\]])")
# Registers of the lane's or the wavefront's part of an address, and of the scalar base or descriptor.
_ADDRESS = {native.GLOBAL: (2, 0), native.GLOBAL_SADDR: (1, 2), native.BUFFER: (1, 4),
            native.BUFFER_INDEX: (1, 4), native.BUFFER_INDEX_OFFSET: (2, 4)}  # fmt: skip
# Modifiers with a constant part of an address, by the start of the mnemonic: name, lowest and highest value (AMD "CDNA3
# ISA", fields OFFSET of the encodings FLAT, MUBUF, DS and SMEM).
_OFFSETS = {
    "global": [("offset", -4096, 4095)],
    "scratch": [("offset", -4096, 4095)],
    "flat": [("offset", 0, 4095)],
    "buffer": [("offset", 0, 4095)],
    "tbuffer": [("offset", 0, 4095)],
    "ds": [("offset", 0, 65535), ("offset0", 0, 255), ("offset1", 0, 255)],
    "s": [("offset", -(2**20), 2**20 - 1)],
}
_Part = tuple[str, int, int]
"""Kind of register (v or s), the first one, and their number."""


@dataclass(frozen=True)
class Available:
    """Registers of a wavefront: ``vectors`` v0, v1, ..., ``accumulators`` a0, a1, ..., and scalars s0, s1, ..."""

    kernel: str
    vectors: int
    accumulators: int
    accum_offset: int

    @classmethod
    def of(cls, listing: Listing) -> Available:
        total = listing.directives.get("next_free_vgpr", 256)
        offset = listing.directives.get("accum_offset", 0)
        shared = 0 < offset < total
        return cls(listing.name, offset if shared else total, total - offset if shared else 0, offset)

    def check(self, instruction: Instruction, access: Access | None) -> None:
        """Raise ``ListingError`` for a register that does not exist, or for an operand with too few registers."""
        vectors, accumulators, scalars = _needed(instruction.operands)
        if vectors > self.vectors or accumulators > self.accumulators or scalars > SGPRS:
            self._refuse(instruction)
        if access is None:
            return
        self._check_offsets(instruction)
        parsed = [operands.parse(text, self.accum_offset) for text in instruction.operands]
        for space, first, count in _parts(access):
            fits = any(
                o.space == space and o.register <= first and first + count <= o.register + o.count for o in parsed
            )
            if not fits:
                named = ", ".join(o.text for o in parsed if o.space == space and o.register == first) or "none"
                raise self._error(
                    instruction, f"expected an operand of {count} {space} registers for this access, got {named}"
                )

    def _refuse(self, instruction: Instruction) -> None:
        limits = {"v": self.vectors, "a": self.accumulators, "s": SGPRS}
        for text in instruction.operands:
            for kind, first, last in _named(text):
                if last >= (limit := limits[kind]) or first > last:
                    have = f"{kind}0 to {kind}{limit - 1}" if limit else f"no register {kind}0"
                    raise self._error(instruction, f"operand {text!r}: the wavefront has {have}")

    def _check_offsets(self, instruction: Instruction) -> None:
        for name, lowest, highest in _OFFSETS[instruction.mnemonic.partition("_")[0]]:
            if name in instruction.modifiers and not lowest <= int(instruction.modifiers[name], 0) <= highest:
                value = instruction.modifiers[name]
                raise self._error(instruction, f"{name}:{value}: expected a number from {lowest} to {highest}")

    def _error(self, instruction: Instruction, why: str) -> ListingError:
        return ListingError(
            f"kernel {self.kernel}, listing line {instruction.line}: {instruction.text!r}: {why} "
            f"(at {instruction.source})"
        )


@lru_cache(maxsize=1 << 16)  # most operands of a kernel are in others too
def _needed(operands: tuple[str, ...]) -> tuple[int, int, int]:
    """Return how many vector registers, accumulators and scalars there have to be: more than exist for a range that
    ends before it begins."""
    count = {"v": 0, "a": 0, "s": 0}
    for text in operands:
        for kind, first, last in _named(text):
            count[kind] = max(count[kind], last + 1 if first <= last else sys.maxsize)
    return count["v"], count["a"], count["s"]


@lru_cache(maxsize=1 << 16)
def _named(text: str) -> tuple[tuple[str, int, int], ...]:
    return tuple((match[1], int(match[2] or match[3]), int(match[2] or match[4])) for match in _NAMED.finditer(text))


def _parts(access: Access) -> Iterator[_Part]:
    """Yield the registers that the functions of ``native`` access for an access."""
    words = access.words if isinstance(access, (ScalarAccess, FormatAccess)) else max(1, access.size // 4)
    if isinstance(access, ScalarAccess):
        yield "s", access.target, max(words, access.data)
        yield "s", access.base, 4 if "buffer" in access.instruction.mnemonic else 2
        return
    if isinstance(access, (GlobalAccess, CopyAccess, FormatAccess)):
        lane, scalar = _ADDRESS[access.address.form]
        if access.address.areg >= 0:
            yield "v", access.address.areg, lane
        if scalar:
            yield "s", access.address.sreg, scalar
    if isinstance(access, (LdsAccess, ScratchAccess)) and access.areg >= 0:
        yield "v", access.areg, 1
    if isinstance(access, FormatAccess):
        yield "v", access.data, words
    if isinstance(access, GlobalAccess):
        yield "v", access.data, words * (2 if access.operation == native.CMPSWAP else 1)
    if isinstance(access, ScratchAccess):
        yield "v", access.data, words
    if isinstance(access, LdsAccess):
        yield from (("v", register, words) for register in access.stored)
        if access.loaded:
            yield "v", access.loaded[0], words * (len(access.loaded) if access.kind == ATOMIC else 1)
            yield from (("v", register, words) for register in access.loaded[1:] if access.kind == LOAD)
        return
    target = getattr(access, "target", -1)
    if target >= 0:
        yield "v", target, words
