"""Rules for the undefined bits of a result, given those of the sources.

The rules are those of memcheck (Seward and Nethercote, "Using Valgrind to detect undefined value errors with
bit-precision", USENIX 2005). The field ``undefined`` of an op's entry selects one:

exact   bitwise logic, shifts, bit fields, packs and selections: each result bit is determined by itself, by executing
        the op on both values of every undefined bit. An undefined shift count or selector makes all bits undefined.
upward  sums and products of integers: everything from the lowest undefined bit on
all     the rest: one undefined bit makes the whole result undefined
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np

from harness.emulator.operations.table import Chain, Op, Select, Undefined
from harness.emulator.wavefront.state import DTYPES

# Undefined bits by source (unsigned, or bool for a lane mask and SCC) and the sources' values -> undefined bits by
# result.
Arrays = Sequence[np.ndarray]
Rule = Callable[[Arrays, Arrays], list[np.ndarray]]

UNSIGNED = {"f32": "u32", "i32": "u32", "f64": "u64", "i64": "u64", "f16": "u16", "i16": "u16", "hf16": "h16",
            "hi16": "h16", "imm": "u32", "uimm": "u32"}  # fmt: skip
_BOOLEAN = ("mask", "exec", "scc", "vcc")


def rule_of(op: Op, modified: bool) -> Rule:
    """Return the rule of an op; ``modified``: clamp or omod changes its result."""
    about = op.undefined or Undefined("all")
    if about.rule == "byte":
        mask = np.uint32(0xFF << 8 * about.byte)
        return lambda bits, values: [_whole(bits[0] & mask != 0, "u32")]
    if about.rule == "halves":
        return _halves
    if modified or any(t.lstrip("@")[0] == "f" for t in (*op.results, *op.sources)):
        return _all(op.results)
    if isinstance(op.function, Select):
        return _select
    if about.rule == "bitwise":
        return _exact(op, (), every=True)
    if about.rule == "moves":
        return _exact(op, about.control, every=False)
    if about.rule == "upward":
        return _upward(op, about)
    if about.rule == "equality":
        return _equality(op.results)
    return _all(op.results)


def anything(bits: Arrays) -> np.ndarray:
    """Return True for each lane in which any source has an undefined bit."""
    bad: Any = np.False_
    for each in bits:
        bad = bad | (each != 0)
    return np.asarray(bad)


def _all(kinds: Sequence[str]) -> Rule:
    return lambda bits, values: [_whole(anything(bits), kind) for kind in kinds]


def _whole(bad: np.ndarray, kind: str) -> np.ndarray:
    if kind in _BOOLEAN:
        return bad
    dtype = DTYPES[UNSIGNED.get(kind, kind)]
    words: np.ndarray = np.where(bad, ~dtype.type(0), dtype.type(0))
    return words


def _exact(op: Op, control: tuple[int, ...], every: bool) -> Rule:
    """Return the rule ``exact``.

    ``every``: an undefined bit of one source may cancel that of another, so all combinations are tried; otherwise the
    result is monotone in the sources, and trying all 0 and all 1 is enough.
    """
    main = next(i for i, kind in enumerate(op.results) if i == len(op.results) - 1 or op.results[i + 1] == "scc")
    saves_exec = "exec" in op.results

    def outcomes(values: Arrays) -> Any:
        result = op.function(*values)
        return result[main] if len(op.results) > 1 else result

    def rule(bits: Arrays, values: Arrays) -> list[np.ndarray]:
        pairs = []
        for i, (undefined, value) in enumerate(zip(bits, values, strict=True)):
            if i in control or not undefined.any():
                pairs.append((value, value))
            else:
                same = undefined if value.dtype == np.bool_ else undefined.view(value.dtype)
                pairs.append((value & ~same, value | same))
        low = outcomes([pair[0] for pair in pairs])
        bad = np.zeros_like(_unsigned(low))
        choices = [pair if pair[0] is not pair[1] else pair[:1] for pair in pairs]
        for choice in product(*choices) if every else [[pair[1] for pair in pairs]]:
            bad = bad | _unsigned(outcomes(choice)) ^ _unsigned(low)
        for i in control:
            bad = np.where(bits[i] != 0, ~bad.dtype.type(0) if bad.dtype != np.bool_ else np.True_, bad)
        results: list[np.ndarray] = []
        for i, kind in enumerate(op.results):
            if i == main:
                results.append(bad)
            elif kind == "scc":
                # SCC is "the result is not zero": any bit known to be 1 decides it.
                results.append((bad != 0) & (_unsigned(low) & ~bad == 0))
            else:
                results.append(np.zeros_like(bad) if saves_exec else bad)
        return results

    return rule


def _unsigned(value: Any) -> np.ndarray:
    array = np.asarray(value)
    return array if array.dtype == np.bool_ else array.view(f"u{array.dtype.itemsize}")


def _upward(op: Op, about: Undefined) -> Rule:
    kind = UNSIGNED.get(op.results[0], op.results[0])
    word = DTYPES[kind].type
    modulo = word(getattr(op.function, "modulo", 32) - 1)
    # Index of the shift count in a sum with a shift: 1 if the first source is shifted, 2 if the sum is.
    count = op.function.count if isinstance(op.function, Chain) else 0

    def rule(bits: Arrays, values: Arrays) -> list[np.ndarray]:
        wide = [np.asarray(each).astype(word) for each in bits]
        if about.bits:
            wide[:2] = [each & word((1 << about.bits) - 1) for each in wide[:2]]
        after = None
        if about.first_shift:
            wide[0] = wide[0] << word(about.first_shift)
        elif count == 1:
            wide[0] = wide[0] << (values[1].astype(word) & modulo)
        elif count == 2:
            after = values[2].astype(word) & modulo
        joined = wide[0]
        for each in wide[1:]:
            joined = joined | each
        bad = joined | (~joined + word(1))
        if after is not None:
            bad = np.where(bits[2] != 0, ~word(0), (bad & ~word(0)) << after)
        elif count == 1:
            bad = np.where(bits[1] != 0, ~word(0), bad)
        return [bad, *[_whole(anything(bits), other) for other in op.results[1:]]]

    return rule


def _select(bits: Arrays, values: Arrays) -> list[np.ndarray]:
    """Rule of a selection: an undefined condition matters where the two sides differ."""
    clear, chosen, mask = bits
    either = clear | chosen | (values[0] ^ values[1])
    return [np.where(mask, either, np.where(values[2], chosen, clear))]


def _equality(kinds: Sequence[str]) -> Rule:
    """Return the rule of a comparison for equality: values are unequal as soon as one defined bit differs."""

    def rule(bits: Arrays, values: Arrays) -> list[np.ndarray]:
        undefined = bits[0] | bits[1].view(bits[0].dtype)
        differ = (_unsigned(values[0]) ^ _unsigned(values[1])) & ~undefined
        bad = (undefined != 0) & (differ == 0)
        return [bad for _ in kinds]

    return rule


def _halves(bits: Arrays, values: Arrays) -> list[np.ndarray]:
    """Rule of a pack: the low half comes from the first source, the high half from the second; MODE may follow them."""
    low, high = (np.where(each != 0, np.uint32(0xFFFF), np.uint32(0)) for each in bits[:2])
    return [low | high << np.uint32(16)]
