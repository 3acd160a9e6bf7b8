"""Operators on gfx942 listings: each line of the kernel's code in turn is dropped, weakened, narrowed, shifted or
swapped.

The families are fence, wait, barrier, scope, width, offset, swap, mask and compare. A kernel of the suite calls the
library's op, and the op's code is part of it: only that is changed, since the rest is the suite's own.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import PurePath

from harness.isa import listing as amdgcn
from mutants.mutant import BINARY, Mutant

Change = tuple[str, str]
"""Operator, and the instruction that replaces the line's."""

NOTHING = "s_nop 0"
_MEMORY = re.compile(r"(global|buffer|flat)_(load|store|atomic)_\w+ ")
_SHORTER = {"dwordx4": "dwordx2", "dwordx3": "dwordx2", "dwordx2": "dword", "dword": "short", "short": "byte"}
_COUNTERS = {"vmcnt": 63, "lgkmcnt": 15, "expcnt": 7}
_SWAPPED = re.compile(r"(v_sub\w*|s_sub\w*|v_cndmask\w*|s_cselect\w*|v_ashrrev\w*|v_lshlrev\w*|s_lshl\w*|s_lshr\w*) ")
_DEBUG = re.compile(r'^\s*\.section\s+"?\.debug_', re.MULTILINE)
_SOURCE = re.compile(r"(\s\.(?:file|loc)\b).*")
_EDGE = {"_gt_": "_ge_", "_ge_": "_gt_", "_lt_": "_le_", "_le_": "_lt_"}


def key_of(listing: str) -> str:
    """Return the first 12 hex digits of the SHA-256 of the kernel's code, which identify it.

    Comments, and the paths and line numbers of the source, are not part of it. So equal code has one key in every
    checkout, also after an edit of other lines; and a line of the listing has the same number in all listings of a key.
    """
    lines = _DEBUG.split(listing, maxsplit=1)[0].splitlines()
    code = [_SOURCE.sub(r"\1", line.partition(";")[0]).rstrip() for line in lines]
    return hashlib.sha256("\n".join(code).encode()).hexdigest()[:12]


def mutants_in(kernel: str, listing: str, package: str = "") -> list[Mutant]:
    """Return the mutants of the code of one kernel, in the order of its lines.

    ``package``: name of the package whose code alone is changed, by the source lines that the listing names, inlined
    calls included.
    """
    of_package = {one.line for one in amdgcn.instructions(listing) if _is_of(one, package)} if package else None
    mutants: list[Mutant] = []
    start, inside = 0, False
    file = f"{kernel}@{key_of(listing)}"
    for number, line in enumerate(listing.splitlines(keepends=True), 1):
        if line.startswith(f"{kernel}:"):
            inside = True
        elif line.startswith(".Lfunc_end"):
            inside = False
        elif inside and line.split() == [".p2align", "8"]:
            mutants.clear()  # what comes before is for firmware that does not preload arguments, and is never executed
        code = line.partition(";")[0].rstrip()
        instruction = code.strip()
        is_code = inside and instruction and not instruction.startswith(".") and not instruction.endswith(":")
        if is_code and (of_package is None or number in of_package):
            column = code.index(instruction)
            known = {instruction}
            for operator, new in changes(instruction):
                if new not in known:
                    known.add(new)
                    identity = f"{BINARY} {operator}:{file}:{number}:{len(known) - 1}"
                    place = start + column
                    mutants.append(
                        Mutant(identity, BINARY, operator, file, number, column + 1, place, instruction, new, kernel)
                    )
        start += len(line)
    return mutants


def _is_of(instruction: amdgcn.Instruction, package: str) -> bool:
    return any(package in PurePath(frame.file).parts for frame in instruction.frames)


def changes(instruction: str) -> Iterator[Change]:
    """Yield the changes of one instruction, such as ("fence-dropped", "s_nop 0") for ``buffer_inv sc0 sc1``."""
    for operator in _OPERATORS:
        yield from operator(instruction)


def _fence(text: str) -> Iterator[Change]:
    if text.startswith(("buffer_wbl2", "buffer_inv")):
        yield "fence-dropped", NOTHING


def _wait(text: str) -> Iterator[Change]:
    if text.startswith("s_waitcnt "):
        yield "wait-dropped", NOTHING
        counters = re.findall(r"(\w+)\((\d+)\)", text)
        if len(counters) > 1:
            for name, count in counters:
                yield "wait-counter", text.replace(f"{name}({count})", f"{name}({_COUNTERS[name]})")


def _barrier(text: str) -> Iterator[Change]:
    if text == "s_barrier":
        yield "barrier-dropped", NOTHING


_RETURNING = re.compile(r"((?:global|flat)_atomic_\w+ )[^,]+, (.*)")
"""An atomic with a register for the old value. Its ``sc0`` requests that value, and is not a scope."""


def _scope(text: str) -> Iterator[Change]:
    if _MEMORY.match(text) or text.startswith(("buffer_wbl2", "buffer_inv")):
        for bit in ("sc0", "sc1", "nt"):
            if text.endswith(f" {bit}") or f" {bit} " in text:
                without = re.sub(rf" {bit}\b", "", text, count=1)
                if bit == "sc0" and (match := _RETURNING.match(without)):
                    yield "result-dropped", match[1] + match[2]
                else:
                    yield f"scope-{bit}", without


def _width(text: str) -> Iterator[Change]:
    match = re.match(r"((?:global|buffer|flat)_(load|store)_)(dwordx[234]|dword|u?short|\w+)\b (.*)", text)
    if match is None or (shorter := _SHORTER.get(match[3].removeprefix("u"))) is None:
        return
    start, kind, long, operands = match.groups()
    if kind == "load" and shorter in ("short", "byte"):
        shorter = f"u{'short' if shorter == 'short' else 'byte'}"
    keep = {"dwordx2": 2, "dword": 1}.get(shorter, 1)
    yield "width-narrowed", f"{start}{shorter} {_narrowed(operands, kind, start, long, keep)}"


def _narrowed(operands: str, kind: str, start: str, long: str, keep: int) -> str:
    """Return the operands with the first ``keep`` registers of the data, which is the first or the second operand."""
    parts = operands.split(", ")
    place = 1 if kind == "store" and start.startswith(("global", "flat")) else 0
    words = re.fullmatch(r"([vas])\[(\d+):(\d+)\]", parts[place])
    if words is not None and long.startswith("dwordx"):
        first = int(words[2])
        parts[place] = f"{words[1]}{first}" if keep == 1 else f"{words[1]}[{first}:{first + keep - 1}]"
    return ", ".join(parts)


def _offset(text: str) -> Iterator[Change]:
    if not _MEMORY.match(text):
        return
    shift = 4
    if (match := re.search(r"\boffset:(-?\d+)", text)) is not None:
        yield "offset-shifted", text.replace(match[0], f"offset:{int(match[1]) + shift}")
        yield "offset-dropped", text.replace(f" {match[0]}", "")
    else:
        bits = re.search(r"(?: (?:sc0|sc1|nt))*$", text)
        assert bits is not None  # sanity check: the pattern matches the empty text
        yield "offset-shifted", f"{text[: bits.start()]} offset:{shift}{bits[0]}"


def _swap(text: str) -> Iterator[Change]:
    if (match := _SWAPPED.match(text)) is None:
        return
    operands = text[match.end() :].split(", ")
    first = 2 if "_co_" in match[0] else 1  # after the carry, a second result
    if len(operands) > first + 1 and "lit" not in text:
        operands[first], operands[first + 1] = operands[first + 1], operands[first]
        yield "swap-operands", f"{match[0]}{', '.join(operands)}"


def _mask(text: str) -> Iterator[Change]:
    if (match := re.fullmatch(r"s_and_saveexec_b64 (s\[\d+:\d+\]), \S+", text)) is not None:
        yield "mask-dropped", f"s_mov_b64 {match[1]}, exec"


def _compare(text: str) -> Iterator[Change]:
    if text.startswith(("v_cmp_", "s_cmp_")):
        for old, new in _EDGE.items():
            if old in text:
                yield "compare-edge", text.replace(old, new, 1)
                return


_OPERATORS: tuple[Callable[[str], Iterator[Change]], ...] = (
    _fence, _wait, _barrier, _scope, _width, _offset, _swap, _mask, _compare,
)  # fmt: skip
