"""Survey of the opcodes that listings need, and of those that the emulator has.

    python -m harness.emulator coverage ~/.triton/cache

reads every amdgcn listing below a folder. ``survey`` counts instructions, not executions; ``executed`` returns the
opcodes that a launch reached.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.emulator.execution.launch import Launch
from harness.emulator.faults import ListingError, UnimplementedInstruction
from harness.emulator.listing.limits import ARCHS
from harness.emulator.listing.parser import parse
from harness.emulator.operations import TABLE, find
from harness.emulator.program.decode import ENDS, decode

_ENCODING = re.compile(r"(_e32|_e64|_sdwa|_dpp)+$")


@dataclass
class Coverage:
    """Opcodes of the listings of one arch.

    ``opcodes``: each opcode with its number of instructions; ``lacking``: opcodes that the emulator does not have, with
    an example (the instruction, its kernel and source line); ``refused``: kernels that it cannot run although it has
    their opcodes, with the reason.
    """

    arch: str
    listings: int = 0
    opcodes: Counter[str] = field(default_factory=Counter)
    lacking: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "arch": self.arch,
            "listings": self.listings,
            "implemented": sorted(implemented(self.arch)),
            "opcodes": dict(sorted(self.opcodes.items())),
            "lacking": dict(sorted(self.lacking.items())),
            "refused": dict(sorted(self.refused.items())),
        }


def implemented(arch: str) -> set[str]:
    """Return the opcodes that the emulator executes on ``arch``, without encoding suffixes (``_e32``, ``_dpp``)."""
    names = (name.partition("@") for name in TABLE)
    return {name for name, _, only in names if only in ("", arch)} | set(ENDS)


def opcode(mnemonic: str, arch: str) -> str | None:
    """Return the implemented opcode of a mnemonic, None if the emulator does not have it."""
    if mnemonic in ENDS:
        return mnemonic
    entry, _ = find(mnemonic, arch)
    return None if entry is None else entry.name.partition("@")[0]


def survey(listings: Iterable[str]) -> dict[str, Coverage]:
    """Return the coverage per arch of the texts of amdgcn listings; ``ListingError`` for any other text."""
    surveyed = {arch: Coverage(arch) for arch in ARCHS}
    for text in listings:
        listing = parse(text)
        if listing.arch not in surveyed:
            raise ListingError(f"kernel {listing.name} was compiled for {listing.arch}, not for {', '.join(ARCHS)}")
        coverage = surveyed[listing.arch]
        coverage.listings += 1
        known = True
        for instruction in listing.instructions:
            name = opcode(instruction.mnemonic, listing.arch)
            if name is None:
                known = False
                name = _ENCODING.sub("", instruction.mnemonic)
                coverage.lacking.setdefault(name, f"{instruction.text!r} in {listing.name}, at {instruction.source}")
            coverage.opcodes[name] += 1
        if known:
            try:
                decode(text)
            except UnimplementedInstruction as error:
                coverage.refused[listing.name] = str(error)
    return surveyed


def executed(launch: Launch) -> set[str]:
    """Return the opcodes that at least one wavefront of a launch reached."""
    listing = launch.program.listing
    names: set[str] = set()
    for block in launch.program.blocks:
        first = block.first
        for segment in block.segments:
            end = first + sum(segment.counts.values())
            if launch.waves[segment.index]:
                names.update(opcode(i.mnemonic, listing.arch) or i.mnemonic for i in listing.instructions[first:end])
            first = end
    return names


def read(paths: Iterable[Path]) -> Iterator[str]:
    """Yield the listings at ``paths``: files, and every ``*.amdgcn`` below folders.

    ``FileNotFoundError`` for a path that does not exist.
    """
    for path in paths:
        if path.is_dir():
            yield from (p.read_text() for p in sorted(path.rglob("*.amdgcn")))
        else:
            yield path.read_text()
