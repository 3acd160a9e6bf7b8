"""Which opcodes a listing needs, and which of them the emulator has.

    python -m harness.emulator coverage ~/.triton/cache

reads every amdgcn listing below a folder. ``met`` counts instructions, not executions; ``executed`` tells which opcodes
of a launch were reached.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.emulator.faults import ListingError, UnimplementedInstruction
from harness.emulator.launch import Launch
from harness.emulator.limits import ARCHS
from harness.emulator.listing import parse
from harness.emulator.ops import TABLE, find
from harness.emulator.program import ENDS, decode

_ENCODING = re.compile(r"(_e32|_e64|_sdwa|_dpp)+$")


@dataclass
class Coverage:
    """What was met on one arch.

    ``met``: opcodes with their number of instructions; ``lacking``: those that the emulator does not have, with an
    example (the instruction, its kernel and source line); ``refused``: kernels that it does not run although it has
    their opcodes, and why.
    """

    arch: str
    listings: int = 0
    met: Counter[str] = field(default_factory=Counter)
    lacking: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "arch": self.arch,
            "listings": self.listings,
            "implemented": sorted(implemented(self.arch)),
            "met": dict(sorted(self.met.items())),
            "lacking": dict(sorted(self.lacking.items())),
            "refused": dict(sorted(self.refused.items())),
        }


def implemented(arch: str) -> set[str]:
    """The opcodes that the emulator executes on ``arch``, encodings (``_e32``, ``_dpp``) not told apart."""
    names = (name.partition("@") for name in TABLE)
    return {name for name, _, only in names if only in ("", arch)} | set(ENDS)


def opcode(mnemonic: str, arch: str) -> str | None:
    """The implemented opcode of a mnemonic, None when there is none."""
    if mnemonic in ENDS:
        return mnemonic
    entry, _ = find(mnemonic, arch)
    return None if entry is None else entry.name.partition("@")[0]


def survey(listings: Iterable[str]) -> dict[str, Coverage]:
    """Coverage by arch over the texts of amdgcn listings; ``ListingError`` for a text that is none."""
    found = {arch: Coverage(arch) for arch in ARCHS}
    for text in listings:
        listing = parse(text)
        if listing.arch not in found:
            raise ListingError(f"kernel {listing.name} was compiled for {listing.arch}, not for {', '.join(ARCHS)}")
        coverage = found[listing.arch]
        coverage.listings += 1
        known = True
        for instruction in listing.instructions:
            name = opcode(instruction.mnemonic, listing.arch)
            if name is None:
                known = False
                name = _ENCODING.sub("", instruction.mnemonic)
                coverage.lacking.setdefault(name, f"{instruction.text!r} in {listing.name}, at {instruction.source}")
            coverage.met[name] += 1
        if known:
            try:
                decode(text)
            except UnimplementedInstruction as error:
                coverage.refused[listing.name] = str(error)
    return found


def executed(launch: Launch) -> set[str]:
    """The opcodes that some wavefront of a launch reached."""
    listing = launch.program.listing
    names: set[str] = set()
    for block in launch.program.blocks:
        first = block.first
        for segment in block.segments:
            behind = first + sum(segment.counts.values())
            if launch.waves[segment.index]:
                names.update(opcode(i.mnemonic, listing.arch) or i.mnemonic for i in listing.instructions[first:behind])
            first = behind
    return names


def read(paths: Iterable[Path]) -> Iterator[str]:
    """The listings at ``paths``: files, and every ``*.amdgcn`` below folders. ``FileNotFoundError`` for a path that
    does not exist."""
    for path in paths:
        if path.is_dir():
            yield from (p.read_text() for p in sorted(path.rglob("*.amdgcn")))
        else:
            yield path.read_text()
