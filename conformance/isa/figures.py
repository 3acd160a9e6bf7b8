"""The figures of a compiled kernel that a baseline keeps, and how two sets of them differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from conformance.isa.contract import Code
from conformance.isa.targets import SPILLS
from harness.isa import protocol

Figures = dict[str, Any]
"""Plain data: numbers, and tables of numbers by text; ``sha256`` is of the normalised instructions."""


def figures_of(code: Code) -> Figures:
    """Return the figures of a kernel: sizes, fences, and how often which access occurs."""
    seen = code.fingerprint
    plain: Figures = {
        "kernel": code.kernel,
        "sha256": seen.sha256[:16],
        "instructions": seen.instructions,
        "registers": seen.registers if seen.vgprs is None else seen.vgprs,
        "agprs": seen.agprs,
        "sgprs": seen.sgprs,
        "spills": sum(getattr(seen, name) or 0 for name in SPILLS[seen.language]),
        "lds": code.lds,
        "scratch": seen.scratch,
        "waits": seen.waits,
        "barriers": seen.barriers,
        "fences": _fences(code),
        "accesses": dict(sorted(_accesses(code).items())),
    }
    spins = protocol.spins(code.program)
    polls = Counter(f"{poll.op or poll.access} {poll.width} {poll.scope}" for spin in spins for poll in spin.polls)
    plain["spins"] = len(spins)
    plain["polls"] = dict(sorted(polls.items()))
    plain["retries"] = len(protocol.retries(code.program))
    return {key: value for key, value in plain.items() if value not in (None, {})}


def _fences(code: Code) -> dict[str, int]:
    seen = code.fingerprint
    counts = dict(seen.fences or {})
    for name, table in (("write-back", seen.writebacks), ("invalidation", seen.invalidates)):
        counts |= {f"{name} {bits}": count for bits, count in (table or {}).items()}
    return dict(sorted(counts.items()))


def _accesses(code: Code) -> Counter[str]:
    table: Counter[str] = Counter()
    for access in code.fingerprint.accesses:
        if access.space != "scalar":
            words = (access.where, access.kind, str(access.width), *access.bits)
            table[" ".join(words)] += access.count
    return table


def changes(before: list[Figures], after: list[Figures]) -> Iterator[str]:
    """Yield what changed in the kernels of one call: "ring_gluon: registers 52 -> 60; fences: write-back sc0 sc1 2 ->
    1"."""
    old, new = _by_name(before), _by_name(after)
    for name in dict.fromkeys([*old, *new]):
        if name not in new:
            yield f"{name}: no longer launched"
        elif name not in old:
            yield f"{name}: new"
        elif parts := list(_changed(old[name], new[name])):
            yield f"{name}: " + "; ".join(parts)


def _by_name(kernels: list[Figures]) -> dict[str, Figures]:
    """Return the figures by kernel; a second kernel of one name, as for other arguments, is numbered."""
    named: dict[str, Figures] = {}
    for one in kernels:
        name, number = one["kernel"], 2
        while name in named:
            name, number = f"{one['kernel']} {number}", number + 1
        named[name] = one
    return named


def _changed(old: Figures, new: Figures) -> Iterator[str]:
    if old == new:
        return
    counted = [key for key in dict.fromkeys([*new, *old]) if key not in ("kernel", "sha256")]
    parts = [part for key in counted for part in _of_one(key, old.get(key, 0), new.get(key, 0))]
    yield from parts or ["the same figures, but other instructions"]


def _of_one(key: str, old: Any, new: Any) -> Iterator[str]:
    if isinstance(old, Mapping) or isinstance(new, Mapping):
        before, after = old or {}, new or {}
        names = [name for name in dict.fromkeys([*before, *after]) if before.get(name, 0) != after.get(name, 0)]
        if names:
            yield f"{key}: " + ", ".join(f"{name} {before.get(name, 0)} -> {after.get(name, 0)}" for name in names)
    elif old != new:
        yield f"{key} {old} -> {new}"
